/** Renders the live screen as lines of text: a pure function of the runs' progress and the terminal's size. */
import { type Paint, type Style, clip, plainPaint, textWidth, wrap } from '../../core/terminal.js';
import { printable } from '../../core/errors.js';
import { formatDuration } from '../../run/progress.js';
import { sparkline } from '../../core/curves.js';
import type { Phase } from '../sweep/schedule.js';
import type { ObjectiveCurve, RunProgress } from './watch.js';

/** All runs of a command at one moment. */
export interface LiveSnapshot {
  /** The experiment's name, or the run's. */
  readonly title: string;
  readonly names: Readonly<Record<Phase, readonly string[]>>;
  readonly running: readonly RunProgress[];
  readonly elapsedS: number;
  /** Null while there is no estimate. */
  readonly leftS: number | null;
}

export interface Size {
  readonly columns: number;
  readonly rows: number;
}

/** The word after the number of runs in a phase, and its color, in the order in which phases are shown. */
const WORDS: Readonly<Record<Phase, { readonly word: string; readonly style: Style | null }>> = {
  finished: { word: 'finished', style: 'green' },
  running: { word: 'running', style: null },
  elsewhere: { word: 'running elsewhere', style: null },
  queued: { word: 'queued', style: 'dim' },
  interrupted: { word: 'interrupted', style: 'yellow' },
  blocked: { word: 'blocked', style: 'yellow' },
  failed: { word: 'failed', style: 'red' },
};
export const PHASES = Object.keys(WORDS) as Phase[];

/** The lines, no wider and fewer than the terminal. A single run gets a panel, several get a line each. */
export function renderScreen(snapshot: LiveSnapshot, size: Size, paint: Paint = plainPaint): string[] {
  const width = Math.max(20, size.columns - 1);
  const { title, names, running } = snapshot;
  const shown = running.slice(0, Math.max(1, size.rows - 7));
  const nameWidth = Math.max(...shown.map(({ name }) => textWidth(shortName(title, name))));
  const body =
    running.length === 1
      ? panel(snapshot, running[0], width, paint)
      : shown.map((run) => styledLine(runLine(title, run, width - 2, nameWidth), run, paint));
  const hidden = running.length - shown.length;
  const next = names.queued.map((name) => shortName(title, name)).join(', ');
  const lines = [
    '',
    ...wrap(`${paint(title, 'bold')}  ${countsLine(snapshot, paint)}  ${paint(timeLine(snapshot), 'dim')}`, width),
    ...body,
    ...(hidden > 0 ? [paint(`  and ${hidden} more`, 'dim')] : []),
    ...(next === '' ? [] : [paint(clip(`  next: ${next}`, width), 'dim')]),
  ];
  return lines.slice(0, Math.max(3, size.rows - 1));
}

/** `12 of 24 finished, 2 running, 9 queued, 1 failed`. Empty phases are left out. */
export function countsLine({ names }: LiveSnapshot, paint: Paint = plainPaint): string {
  return PHASES.filter((phase) => phase === 'finished' || names[phase].length > 0)
    .map((phase) => {
      const { word, style } = WORDS[phase];
      const count = names[phase].length;
      const text = phase === 'finished' ? `${count} of ${totalOf(names)} ${word}` : `${count} ${word}`;
      return style === null || count === 0 ? text : paint(text, style);
    })
    .join(', ');
}

/** Total number of runs. */
export function totalOf(names: LiveSnapshot['names']): number {
  return PHASES.reduce((sum, phase) => sum + names[phase].length, 0);
}

/** `8m 20s elapsed, about 4m 00s left`. */
export function timeLine({ elapsedS, leftS }: Pick<LiveSnapshot, 'elapsedS' | 'leftS'>): string {
  return `${formatDuration(elapsedS)} elapsed${leftS === null ? '' : `, about ${formatDuration(leftS)} left`}`;
}

/** Everything about one run. */
function panel({ title }: LiveSnapshot, run: RunProgress, width: number, paint: Paint): string[] {
  const { objective, heldOut, figures, waitsFor, alarms, says } = run;
  const labels = ['ALARM', ...[objective, ...heldOut].map((curve) => curve?.label ?? '')];
  const column = Math.min(Math.max(...labels.map(textWidth)), Math.floor(width / 2)) + 2;
  const room = width - column - 2;
  const line = (label: string, text: string, style: Style | null = null): string => {
    const shown = clip(text, room);
    return `  ${paint(clip(label, column - 2).padEnd(column), 'dim')}${style === null ? shown : paint(shown, style)}`;
  };
  return [
    ...(run.name === title ? [] : [`  ${paint(clip(shortName(title, run.name), width - 2), 'bold')}`]),
    progressBar(run, width, paint),
    ...(objective === null ? [] : [line(objective.label, objectiveLine(objective, room))]),
    ...heldOut.map(({ label, points }) => {
      const ends = points.length === 1 ? points : [points[0], points[points.length - 1]];
      return line(label, ends.map(({ iteration, shown }) => `${shown} at ${iteration}`).join(' -> '));
    }),
    ...(figures.length === 0 ? [] : [line('', fitted(figures, room))]),
    ...(waitsFor === null ? [] : [line('waits', oneLine(waitsFor), 'yellow')]),
    ...(alarms.length === 0 ? [] : [line('ALARM', alarms.join(', '), 'red')]),
    ...(says === null ? [] : [line('says', oneLine(says))]),
    line('log', fitted([run.log, run.where], room), 'dim'),
  ];
}

function progressBar({ iteration, numIterations, elapsedS, leftS }: RunProgress, width: number, paint: Paint): string {
  const left = leftS === null ? '' : `, ${formatDuration(leftS)} left`;
  const text = `  ${iteration}/${numIterations}  ${formatDuration(elapsedS)} elapsed${left}`;
  const bar = Math.max(4, Math.min(40, width - 2 - textWidth(text)));
  const filled = Math.round(bar * Math.min(1, numIterations === 0 ? 0 : iteration / numIterations));
  return `  ${paint('━'.repeat(filled), 'green')}${paint('┄'.repeat(bar - filled), 'dim')}${clip(text, Math.max(0, width - 2 - bar))}`;
}

/** The latest value, its curve and its range. */
function objectiveLine({ values, show }: ObjectiveCurve, room: number): string {
  const finite = values.filter(Number.isFinite);
  const low = finite.reduce((a, b) => Math.min(a, b), Infinity);
  const high = finite.reduce((a, b) => Math.max(a, b), -Infinity);
  const [value, range] = [show(values.at(-1) ?? NaN), `${show(low)} to ${show(high)}`];
  const spark = sparkline(values, Math.min(40, Math.max(0, room - value.length - range.length - 4)));
  return `${value}  ${spark}  ${range}`;
}

function styledLine(line: string, { alarms, waitsFor }: RunProgress, paint: Paint): string {
  if (alarms.length > 0) return paint(`  ${line}`, 'red');
  return waitsFor === null ? `  ${line}` : paint(`  ${line}`, 'yellow');
}

/** A run in one line of at most `width` columns, with its name padded to `nameWidth`. */
export function runLine(title: string, run: RunProgress, width: number, nameWidth = 0): string {
  const { objective, heldOut, alarms, waitsFor, leftS, elapsedS, says } = run;
  const name = clip(shortName(title, run.name), Math.max(8, Math.floor(width / 2))).padEnd(
    Math.min(nameWidth, width / 2),
  );
  const parts = [
    `${name}  ${run.iteration}/${run.numIterations}`,
    ...(alarms.length > 0 ? [`ALARM ${alarms.join(', ')}`] : []),
    ...(waitsFor !== null ? [`waits: ${oneLine(waitsFor)}`] : []),
    ...(objective === null ? [] : [`${objective.label} ${objective.show(objective.values.at(-1) ?? NaN)}`]),
    ...heldOut.slice(0, 1).map(({ label, points }) => `${label} ${points[points.length - 1].shown}`),
    leftS === null ? `${formatDuration(elapsedS)} elapsed` : `${formatDuration(leftS)} left`,
    ...(says === null ? [] : [oneLine(says)]),
    run.where,
  ];
  return clip(fitted(parts, width), width);
}

/** Joins the parts that fit, but at least the first. */
function fitted(parts: readonly string[], room: number): string {
  return parts.slice(1).reduce((text, part) => {
    const longer = `${text}  ${part}`.trimEnd();
    return textWidth(longer) > room ? text : longer;
  }, parts[0]);
}

/** A cell's name without the experiment's name that all of them begin with. */
export function shortName(experiment: string, name: string): string {
  const prefix = `${experiment}__`;
  return name.startsWith(prefix) && name.length > prefix.length ? name.slice(prefix.length) : name;
}

/** Foreign text without line ends and with its control characters spelled out. */
function oneLine(text: string): string {
  return printable(text.replace(/\s+/g, ' ').trim());
}
