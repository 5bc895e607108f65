/** The live table of a sweep as lines of text: a pure function of where it stands and of how large the terminal is. */
import { formatDuration } from '../../run/progress.js';
import type { RunningRow, Standing } from './progress.js';
import type { Phase } from './schedule.js';

export type Paint = (text: string, style: 'red' | 'green' | 'yellow' | 'dim' | 'bold') => string;

export interface TableSize {
  readonly columns: number;
  readonly rows: number;
}

/** How a phase is called after its number, and its colour. In the order of the summary. */
const WORDS: Readonly<Record<Phase, { readonly word: string; readonly style: Parameters<Paint>[1] | null }>> = {
  finished: { word: 'finished', style: 'green' },
  running: { word: 'running', style: null },
  elsewhere: { word: 'running elsewhere', style: null },
  at_rung: { word: 'at a rung', style: null },
  queued: { word: 'queued', style: 'dim' },
  stopped: { word: 'stopped early', style: 'yellow' },
  interrupted: { word: 'interrupted', style: 'yellow' },
  blocked: { word: 'blocked', style: 'yellow' },
  failed: { word: 'failed', style: 'red' },
};
const ORDER = Object.keys(WORDS) as Phase[];

/** `12 of 24 finished, 2 running, 9 queued, 1 failed`; phases that no run is in are left out. */
export function countsLine(standing: Standing, paint: Paint = plain): string {
  return ORDER.filter((phase) => phase === 'finished' || standing.counts[phase] > 0)
    .map((phase) => {
      const { word, style } = WORDS[phase];
      const count = standing.counts[phase];
      const text = phase === 'finished' ? `${count} of ${standing.total} ${word}` : `${count} ${word}`;
      return style === null || count === 0 ? text : paint(text, style);
    })
    .join(', ');
}

/** How long it has taken and may still take. */
export function timeLine(standing: Standing): string {
  const left = standing.leftS === null ? '' : `, about ${formatDuration(standing.leftS)} left`;
  return `${formatDuration(standing.elapsedS)}${left}`;
}

const TITLES = ['run', 'iteration', '', 'latest', 'held-out', 'time', 'left', 'on'] as const;
const BAR_WIDTH = 16;
const LEFT_ALIGNED = new Set([0, 2, 7]);
/** What is given up step by step where the terminal is narrow: columns, and letters of the name. The iteration stays. */
const NARROWER: readonly { readonly without: readonly number[]; readonly shortestName: number }[] = [
  { without: [], shortestName: Number.POSITIVE_INFINITY },
  { without: [2], shortestName: Number.POSITIVE_INFINITY },
  { without: [2], shortestName: 24 },
  { without: [2, 7], shortestName: 24 },
  { without: [2, 7, 4], shortestName: 20 },
  { without: [2, 7, 4, 5], shortestName: 16 },
  { without: [2, 7, 4, 5, 3, 6], shortestName: 1 },
];

/** The lines, none longer than the terminal is wide and fewer than it is high. */
export function renderTable(experiment: string, standing: Standing, size: TableSize, paint: Paint = plain): string[] {
  const width = Math.max(20, size.columns - 1);
  const lines = ['', ...headLines(experiment, standing, width, paint)];
  const room = Math.max(1, size.rows - 7);
  const shown = standing.running.slice(0, room);
  if (shown.length > 0) lines.push(...runningTable(experiment, shown, width, paint));
  const hidden = standing.running.length - shown.length;
  if (hidden > 0) lines.push(paint(`  and ${hidden} more`, 'dim'));
  const next = nextLine(experiment, standing, width);
  if (next !== null) lines.push(paint(next, 'dim'));
  return lines;
}

/** In one line where it fits, else the time below. */
function headLines(experiment: string, standing: Standing, width: number, paint: Paint): string[] {
  const time = timeLine(standing);
  const counts = `${experiment}  ${countsLine(standing)}`;
  const head =
    length(counts) <= width ? `${paint(experiment, 'bold')}  ${countsLine(standing, paint)}` : clip(counts, width);
  if (length(counts) + 2 + length(time) <= width) return [`${head}  ${paint(time, 'dim')}`];
  return [head, paint(clip(`  ${time}`, width), 'dim')];
}

function runningTable(experiment: string, running: readonly RunningRow[], width: number, paint: Paint): string[] {
  const cells = running.map((row) => rowCells(experiment, row));
  const used = TITLES.map((_, index) => index).filter((index) => index === 2 || cells.some((row) => row[index] !== ''));
  const widths = TITLES.map((title, index) => Math.max(length(title), ...cells.map((row) => length(row[index]))));
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
      const padding = ' '.repeat(widths[index] - length(text));
      return LEFT_ALIGNED.has(index) ? text + padding : padding + text;
    });
    return clip(`  ${texts.join('  ')}`.trimEnd(), width);
  };
  return [paint(line(TITLES), 'dim'), ...cells.map(line)];
}

function rowCells(experiment: string, row: RunningRow): string[] {
  const fraction = row.numIterations === 0 ? 0 : Math.min(1, row.iteration / row.numIterations);
  const filled = Math.round(fraction * BAR_WIDTH);
  return [
    shortName(experiment, row.name),
    `${row.iteration}/${row.numIterations}`,
    '━'.repeat(filled) + '┄'.repeat(BAR_WIDTH - filled),
    row.waiting ? 'waits for the judge' : row.latest,
    row.heldOut === null ? '' : row.heldOut.toFixed(2),
    formatDuration(row.elapsedS),
    row.leftS === null ? '' : formatDuration(row.leftS),
    row.where,
  ];
}

/** As many names as fit, and how many more. */
function nextLine(experiment: string, standing: Standing, width: number): string | null {
  if (standing.next.length === 0) return null;
  let line = '  next: ';
  for (const [index, name] of standing.next.entries()) {
    const more = standing.next.length - index;
    const piece = `${index === 0 ? '' : ', '}${shortName(experiment, name)}`;
    const rest = more > 1 ? ` and ${more - 1} more` : '';
    if (length(line + piece + rest) > width) {
      return index === 0 ? clip(line + piece, width) : `${line} and ${more} more`;
    }
    line += piece;
  }
  return line;
}

/** A cell's name without its experiment's, which all of them begin with. */
export function shortName(experiment: string, name: string): string {
  const prefix = `${experiment}__`;
  return name.startsWith(prefix) && name.length > prefix.length ? name.slice(prefix.length) : name;
}

/** Text that is cut in its middle where it is too long: names differ at their ends. */
function clip(text: string, width: number): string {
  const letters = [...text];
  if (letters.length <= width) return text;
  if (width < 3) return letters.slice(0, width).join('');
  const tail = Math.floor((width - 1) / 2);
  return `${letters.slice(0, width - 1 - tail).join('')}…${letters.slice(letters.length - tail).join('')}`;
}

function length(text: string): number {
  return [...text].length;
}

function plain(text: string): string {
  return text;
}
