/** Formats numbers, times and texts for people. Pure functions. */
import { printable as visible } from '../../core/errors.js';
import { showEstimate } from '../../core/estimate.js';
import type { WireRun } from '../wire.js';

/** Text with its control characters escaped, as on a terminal. */
export { visible };

/** Matches words longer than natural ones, such as paths and keys. Shorter words are never broken. */
const LONG_WORD = /(\S{21,})/u;
/**
 * Break points in a long word: after punctuation, or after a fixed number of characters if there is none. There is no break between a hyphen or a dot
 * and a digit, so `seed-1`, `3e-4` and `2.5` stay whole.
 */
const PART = /(?:[^/_.,:;=&?|-]|[.-](?=\d)){1,20}[/_.,:;=&?|-]*|[/_.,:;=&?|-]{1,20}/gu;

/** Splits text into pieces between which a line may break without a space. Joining the pieces gives the text. */
export function piecesOf(text: string): string[] {
  return text
    .split(LONG_WORD)
    .flatMap((part, at) => (at % 2 === 0 ? [part] : (part.match(PART) ?? [])))
    .filter((piece) => piece !== '');
}

/** Splits text so that every second part is a word such as `3e-4`, which must not break: browsers break lines after any hyphen. */
export function withHyphens(text: string): string[] {
  return text.split(/(\S*-\d\S*)/u);
}

/** Four significant digits, or a dash for a missing number. */
export function showNumber(value: number | null | undefined): string {
  if (value === null || value === undefined) return '–';
  if (!Number.isFinite(value)) return String(value);
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e6) return String(value);
  if (size >= 1e5 || size < 1e-3) return value.toExponential(2).replace('e+', 'e');
  return String(Number(value.toPrecision(4)));
}

/** A mean with its error, both with the same decimals. Only the mean if the error is unknown. */
export function showMean(mean: number | null | undefined, stderr: number | null | undefined): string {
  if (typeof mean !== 'number' || typeof stderr !== 'number') return showNumber(mean);
  return showEstimate({ mean, stderr });
}

/** A number on an axis whose ticks are `step` apart, with just enough digits to distinguish the ticks. */
export function showTick(value: number, step: number): string {
  const size = Math.max(Math.abs(value), step);
  if (size >= 1e6 || size < 1e-4) return value === 0 ? '0' : String(Number(value.toPrecision(3)).toExponential());
  const digits = Math.max(0, Math.ceil(-Math.log10(step) - 1e-9));
  // One more digit, for steps such as 2.5.
  return String(Number(value.toFixed(digits + 1)));
}

/** A difference, with its sign. */
export function showChange(value: number): string {
  return value >= 0 ? `+${showNumber(value)}` : showNumber(value).replace('-', '−');
}

/** A setting: text unchanged, everything else as JSON. */
export function showValue(value: unknown): string {
  if (value === null || value === undefined) return '–';
  if (typeof value === 'number') return showNumber(value);
  return typeof value === 'string' ? visible(value) : visible(JSON.stringify(value));
}

/** Whether a run stopped before its last iteration because it reached its early-stopping condition. */
export function isStoppedEarly({
  state,
  iteration,
  num_iterations,
}: Pick<WireRun, 'state' | 'iteration' | 'num_iterations'>): boolean {
  return state === 'finished' && iteration < num_iterations;
}

/** The scale of some runs' held-out rewards. Null if it is unknown or differs between runs, and for losses. */
export function rewardScale(runs: readonly Pick<WireRun, 'held_out'>[]): string | null {
  const scales = new Set(runs.map(({ held_out: found }) => (found?.metric.endsWith('/mean') ? found.scale : null)));
  const [scale = null] = scales;
  return scales.size === 1 ? scale : null;
}

const UNITS = [
  ['d', 86_400],
  ['h', 3_600],
  ['min', 60],
] as const;

/** `40 s`, `12 min`, `3 h`, `5 d`. */
export function showDuration(seconds: number): string {
  for (const [unit, size] of UNITS) {
    if (seconds >= 2 * size) return `${Math.floor(seconds / size)} ${unit}`;
  }
  return `${Math.max(0, Math.floor(seconds))} s`;
}

/** The time since an event in words. Both times are in milliseconds since 1970. */
export function showAgo(moment: number | null, now: number): string {
  return moment === null ? '–' : `${showDuration((now - moment) / 1000)} ago`;
}

/** The name in a run's id, `FOLDER/NAME`. Names contain no characters that need escaping in addresses. */
export function nameOfId(id: string): string {
  return id.slice(id.indexOf('/') + 1);
}
