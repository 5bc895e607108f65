/** Renders the live screen as lines of text: a pure function of the runs' progress and the terminal's size. */
import { type Paint, type Style, clip, plainPaint, textWidth } from '../../core/terminal.js';
import { printable } from '../../core/errors.js';
import { formatDuration } from '../../run/progress.js';
import { sparkline } from '../../core/curves.js';
import type { Phase } from '../sweep/schedule.js';
import { PHASES, type HeldOutCurve, type TrainingCurve, type RunningRow, type LiveSnapshot } from './watch.js';

export interface Size {
  readonly columns: number;
  readonly rows: number;
}

/** The word after the number of runs in a phase, and its colour. */
const WORDS: Readonly<Record<Phase, { readonly word: string; readonly style: Style | null }>> = {
  finished: { word: 'finished', style: 'green' },
  running: { word: 'running', style: null },
  elsewhere: { word: 'running elsewhere', style: null },
  queued: { word: 'queued', style: 'dim' },
  interrupted: { word: 'interrupted', style: 'yellow' },
  blocked: { word: 'blocked', style: 'yellow' },
  failed: { word: 'failed', style: 'red' },
};

/** Up to this many runs in progress get a panel each; more of them share a table. */
const PANELS = 1;

/** The lines, no wider and fewer than the terminal. */
export function renderScreen(snapshot: LiveSnapshot, size: Size, paint: Paint = plainPaint): string[] {
  const width = Math.max(20, size.columns - 1);
  const room = Math.max(1, size.rows - 7);
  const { running } = snapshot;
  const shown = running.slice(0, room);
  const body =
    running.length <= PANELS
      ? running.flatMap((row) => panel(snapshot, row, width, paint))
      : runningTable(snapshot.title, shown, width, paint);
  const hidden = running.length > PANELS ? running.length - shown.length : 0;
  const next = nextLine(snapshot, width);
  const lines = [
    '',
    ...headLines(snapshot, width, paint),
    ...body,
    ...(hidden > 0 ? [paint(`  and ${hidden} more`, 'dim')] : []),
    ...(next === null ? [] : [paint(next, 'dim')]),
  ];
  return lines.slice(0, Math.max(3, size.rows - 1));
}

/** `12 of 24 finished, 2 running, 9 queued, 1 failed`; empty phases are left out. */
export function countsLine({ names, total }: LiveSnapshot, paint: Paint = plainPaint): string {
  return PHASES.filter((phase) => phase === 'finished' || names[phase].length > 0)
    .map((phase) => {
      const { word, style } = WORDS[phase];
      const count = names[phase].length;
      const text = phase === 'finished' ? `${count} of ${total} ${word}` : `${count} ${word}`;
      return style === null || count === 0 ? text : paint(text, style);
    })
    .join(', ');
}

/** `8m 20s, about 4m 00s left`. */
export function timeLine({ elapsedS, leftS }: Pick<LiveSnapshot, 'elapsedS' | 'leftS'>): string {
  return `${formatDuration(elapsedS)}${leftS === null ? '' : `, about ${formatDuration(leftS)} left`}`;
}

/** One line if it fits, else the time goes on a second line. */
function headLines(snapshot: LiveSnapshot, width: number, paint: Paint): string[] {
  const { title, names, running } = snapshot;
  // The last run shows its own remaining time.
  const last = running.length === 1 && names.queued.length === 0;
  const time = timeLine(last ? { ...snapshot, leftS: null } : snapshot);
  const counts = `${title}  ${countsLine(snapshot)}`;
  const fits = textWidth(counts) <= width;
  const head = fits ? `${paint(title, 'bold')}  ${countsLine(snapshot, paint)}` : clip(counts, width);
  if (textWidth(counts) + 2 + textWidth(time) <= width) return [`${head}  ${paint(time, 'dim')}`];
  return [head, paint(clip(`  ${time}`, width), 'dim')];
}

/** Width of the column of labels, including two blanks: that of its longest label, within these bounds. */
const [LEAST_LABEL, MOST_LABEL] = [15, 28];

/** Everything about one run. */
function panel({ title, total }: LiveSnapshot, row: RunningRow, width: number, paint: Paint): string[] {
  const longest = Math.max(...[row.learning, ...row.heldOut].map((curve) => textWidth(curve?.label ?? '')));
  const column = Math.min(MOST_LABEL, Math.max(LEAST_LABEL, longest + 2));
  const room = width - column - 2;
  const line = (label: string, text: string, style: Style | null = null): string => {
    const shown = clip(text, room);
    return `  ${paint(clip(label, column - 2).padEnd(column), 'dim')}${style === null ? shown : paint(shown, style)}`;
  };
  const name = shortName(title, row.name);
  const lines = [
    ...(total === 1 && name === title ? [] : [`  ${paint(clip(name, width - 2), 'bold')}`]),
    progressLine(row, width, paint),
  ];
  const { learning } = row;
  if (learning !== null) {
    const value = lastOf(learning);
    const [low, high] = rangeOf(learning);
    const range = `${low} to ${high}`;
    const spark = sparkline(learning.values, Math.min(40, Math.max(0, room - value.length - range.length - 4)));
    lines.push(line(learning.label, `${value}  ${paint(spark, 'cyan')}  ${range}`));
  }
  for (const curve of row.heldOut) lines.push(line(curve.label, heldOutLine(curve, room)));
  if (row.figures.length > 0) lines.push(line('', fitted(row.figures, room)));
  if (row.waitsFor !== null) lines.push(line('waits', oneLine(row.waitsFor), 'yellow'));
  else if (row.unscored !== null) {
    const scored =
      row.unscored === 0 ? 'every episode scored' : `${row.unscored} episodes of the last iteration unscored`;
    lines.push(line('scoring', scored, row.unscored === 0 ? null : 'yellow'));
  }
  if (row.alarms.length > 0) lines.push(line('ALARM', row.alarms.join(', '), 'red'));
  if (row.says !== null) lines.push(line('says', oneLine(row.says)));
  const place = row.where === '' ? row.log : `${row.log} (${row.where})`;
  lines.push(line('log', place.length <= room ? place : row.log, 'dim'));
  return lines;
}

/** The bar, the progress, and the time. */
function progressLine(row: RunningRow, width: number, paint: Paint): string {
  const left = row.leftS === null ? '' : `, ${formatDuration(row.leftS)} left`;
  const text = `  ${row.iteration}/${row.numIterations}  ${formatDuration(row.elapsedS)}${left}`;
  const bar = Math.max(4, Math.min(40, width - 2 - textWidth(text)));
  const filled = barOf(row, bar);
  return `  ${paint('━'.repeat(filled), 'green')}${paint('┄'.repeat(bar - filled), 'dim')}${clip(text, Math.max(0, width - 2 - bar))}`;
}

function barOf({ iteration, numIterations }: RunningRow, width: number): number {
  return Math.round(Math.min(1, numIterations === 0 ? 0 : iteration / numIterations) * width);
}

/** The first evaluation and as many of the last ones as fit. */
export function heldOutLine({ points }: HeldOutCurve, room: number): string {
  const [first, ...later] = points.map(({ iteration, shown }) => `${shown} at ${iteration}`);
  let text = '';
  for (const [back, point] of [...later].reverse().entries()) {
    const gap = back === later.length - 1 ? ', ' : ', … ';
    const longer = text === '' ? point : `${point}, ${text}`;
    if (textWidth(first + gap + longer) > room) break;
    text = longer;
    if (back === later.length - 1) return `${first}, ${text}`;
  }
  return text === '' ? first : `${first}, … ${text}`;
}

const TITLES = ['run', 'iteration', '', 'latest', '', 'held-out', 'time', 'left', 'on'] as const;
const HELD_OUT = TITLES.indexOf('held-out');
const BAR_WIDTH = 12;
const SPARK_WIDTH = 10;
const LEFT_ALIGNED = new Set([0, 2, 4, 8]);
/** What is dropped step by step on a narrow terminal: columns, and letters of the name. The iteration stays. */
const NARROWER: readonly { readonly without: readonly number[]; readonly shortestName: number }[] = [
  { without: [], shortestName: Infinity },
  { without: [2], shortestName: Infinity },
  { without: [2, 8], shortestName: 24 },
  { without: [2, 8, 6], shortestName: 20 },
  { without: [2, 8, 6, 4], shortestName: 20 },
  { without: [2, 8, 6, 4, 5], shortestName: 16 },
  { without: [2, 8, 6, 4, 5, 3, 7], shortestName: 1 },
];

function runningTable(title: string, running: readonly RunningRow[], width: number, paint: Paint): string[] {
  const shared = sharedNumber(running);
  const titles = TITLES.map((head, index) => (index === HELD_OUT ? (shared ?? head) : head));
  const cells = running.map((row) => rowCells(title, row, shared !== null));
  const used = TITLES.map((_, index) => index).filter((index) => index === 2 || cells.some((row) => row[index] !== ''));
  const widths = titles.map((head, index) => Math.max(head.length, ...cells.map((row) => textWidth(row[index]))));
  const longest = widths[0];
  const total = (columns: readonly number[]): number => columns.reduce((sum, index) => sum + widths[index] + 2, 0);
  let columns = used;
  for (const { without, shortestName } of NARROWER) {
    columns = used.filter((index) => !without.includes(index));
    const shortest = Math.min(longest, shortestName);
    widths[0] = longest;
    widths[0] = Math.max(shortest, longest - Math.max(0, total(columns) - width));
    if (total(columns) <= width) break;
  }
  const line = (row: readonly string[]): string => {
    const texts = columns.map((index) => {
      const text = clip(row[index], widths[index]);
      const padding = ' '.repeat(widths[index] - textWidth(text));
      return LEFT_ALIGNED.has(index) ? text + padding : padding + text;
    });
    return clip(`  ${texts.join('  ')}`.trimEnd(), width);
  };
  const styleOf = ({ alarms, waitsFor }: RunningRow): Style | null =>
    alarms.length > 0 ? 'red' : waitsFor === null ? null : 'yellow';
  return [
    paint(line(titles), 'dim'),
    ...cells.map((row, index) => {
      const style = styleOf(running[index]);
      return style === null ? line(row) : paint(line(row), style);
    }),
  ];
}

/** The name of the held-out number of all runs, such as `held-out viescore`; null if they differ, or there is none. */
function sharedNumber(running: readonly RunningRow[]): string | null {
  const [label, ...others] = new Set(running.flatMap(({ heldOut }) => heldOut.slice(0, 1).map((curve) => curve.label)));
  return label === undefined || others.length > 0 ? null : label;
}

/** `shared`: the title names the held-out number; else each cell does. */
function rowCells(title: string, row: RunningRow, shared: boolean): string[] {
  const [curve] = row.heldOut;
  const number = curve?.points.at(-1)?.shown ?? '';
  const filled = barOf(row, BAR_WIDTH);
  const { learning } = row;
  return [
    shortName(title, row.name),
    `${row.iteration}/${row.numIterations}`,
    '━'.repeat(filled) + '┄'.repeat(BAR_WIDTH - filled),
    latestOf(row),
    learning === null ? '' : sparkline(learning.values, SPARK_WIDTH),
    shared || number === '' ? number : `${curve.label.replace(/^held-out /, '')} ${number}`,
    formatDuration(row.elapsedS),
    row.leftS === null ? '' : formatDuration(row.leftS),
    row.where,
  ];
}

/** The most important fact about a run, in a few words. */
function latestOf({ waitsFor, alarms, learning }: RunningRow): string {
  if (waitsFor !== null) return 'waits';
  if (alarms.length > 0) return 'ALARM';
  return learning === null ? '' : `${learning.label} ${lastOf(learning)}`;
}

/** A run in one line of at most `width` columns, for output that cannot be redrawn. */
export function runLine(title: string, row: RunningRow, width: number): string {
  const { learning, heldOut } = row;
  const parts = [
    `${shortName(title, row.name)}  ${row.iteration}/${row.numIterations}`,
    ...(row.alarms.length > 0 ? [`ALARM ${row.alarms.join(', ')}`] : []),
    ...(row.waitsFor !== null ? [`waits: ${oneLine(row.waitsFor)}`] : []),
    ...(learning === null ? [] : [`${learning.label} ${lastOf(learning)}`]),
    ...heldOut.slice(0, 1).map(({ label, points }) => `${label} ${points[points.length - 1].shown}`),
    row.leftS === null ? formatDuration(row.elapsedS) : `${formatDuration(row.leftS)} left`,
    ...(row.says === null ? [] : [oneLine(row.says)]),
  ];
  return clip(fitted(parts, width), width);
}

/** As many parts as fit, but at least the first. */
function fitted(parts: readonly string[], room: number): string {
  let text = parts[0];
  for (const part of parts.slice(1)) {
    if (textWidth(`${text}  ${part}`) > room) continue;
    text = `${text}  ${part}`;
  }
  return text;
}

/** As many names as fit, and how many more there are. */
function nextLine({ names, title }: LiveSnapshot, width: number): string | null {
  const { queued } = names;
  if (queued.length === 0) return null;
  let line = '  next: ';
  for (const [index, name] of queued.entries()) {
    const more = queued.length - index;
    const piece = `${index === 0 ? '' : ', '}${shortName(title, name)}`;
    const rest = more > 1 ? ` and ${more - 1} more` : '';
    if (textWidth(line + piece + rest) > width) {
      return index === 0 ? clip(line + piece, width) : `${line} and ${more} more`;
    }
    line += piece;
  }
  return line;
}

/** A cell's name without the experiment's name that all of them begin with. */
export function shortName(experiment: string, name: string): string {
  const prefix = `${experiment}__`;
  return name.startsWith(prefix) && name.length > prefix.length ? name.slice(prefix.length) : name;
}

function lastOf({ values, show }: TrainingCurve): string {
  return show(values.at(-1) ?? NaN);
}

function rangeOf({ values, show }: TrainingCurve): [string, string] {
  const finite = values.filter(Number.isFinite);
  const [low, high] = [
    finite.reduce((a, b) => Math.min(a, b), Infinity),
    finite.reduce((a, b) => Math.max(a, b), -Infinity),
  ];
  return [show(low), show(high)];
}

/** Foreign text without line ends and with its control characters spelled out. */
function oneLine(text: string): string {
  return printable(text.replace(/\s+/g, ' ').trim());
}
