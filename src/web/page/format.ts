/** Formats numbers, times and texts for people. Pure functions. */
import { printable as visible } from '../../core/errors.js';
import { showEstimate } from '../../core/estimate.js';
import type { WireRun } from '../wire.js';

/** Text with control characters spelled out, as on a terminal. */
export { visible };

/** Words that are longer than any in a language, such as paths and keys; shorter ones are never broken. */
const LONG_WORD = /(\S{21,})/u;
/**
 * Where a long word breaks: behind its punctuation, and, without any, after as many letters as a short word may have. A hyphen or a dot before a digit
 * is no such place: `seed-1`, `3e-4` and `2.5` stay whole.
 */
const PART = /(?:[^/_.,:;=&?|-]|[.-](?=\d)){1,20}[/_.,:;=&?|-]*|[/_.,:;=&?|-]{1,20}/gu;

/** A text in pieces between which a line may break although there is no space. Joined, they are the text. */
export function piecesOf(text: string): string[] {
  return text
    .split(LONG_WORD)
    .flatMap((part, at) => (at % 2 === 0 ? [part] : (part.match(PART) ?? [])))
    .filter((piece) => piece !== '');
}

/** Words with a hyphen before a digit, such as `3e-4`, at every second place: browsers break a line behind any hyphen. */
export function withHyphens(text: string): string[] {
  return text.split(/(\S*-\d\S*)/u);
}

/** Four significant digits; a dash for a missing number. */
export function showNumber(value: number | null | undefined): string {
  if (value === null || value === undefined) return '–';
  if (!Number.isFinite(value)) return String(value);
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e6) return String(value);
  if (size >= 1e5 || size < 1e-3) return value.toExponential(2).replace('e+', 'e');
  return String(Number(value.toPrecision(4)));
}

/** A mean with its error, both with as many decimals; only the mean if its error is unknown. */
export function showMean(mean: number | null | undefined, stderr: number | null | undefined): string {
  if (typeof mean !== 'number' || typeof stderr !== 'number') return showNumber(mean);
  return showEstimate({ mean, stderr });
}

/** A number on an axis with ticks `step` apart, with as many digits as distinguish it from its neighbors. */
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

/** A setting: text as it is, everything else as JSON. */
export function showValue(value: unknown): string {
  if (value === null || value === undefined) return '–';
  if (typeof value === 'number') return showNumber(value);
  return typeof value === 'string' ? visible(value) : visible(JSON.stringify(value));
}

/** Whether a run ended before its last iteration because it had learned enough. */
export function isStoppedEarly({
  state,
  iteration,
  num_iterations,
}: Pick<WireRun, 'state' | 'iteration' | 'num_iterations'>): boolean {
  return state === 'finished' && iteration < num_iterations;
}

/** What the held-out rewards of some runs measure; null if that is unknown or not the same, and for losses. */
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

/** How long ago something was, both times in milliseconds since 1970. */
export function showAgo(moment: number | null, now: number): string {
  return moment === null ? '–' : `${showDuration((now - moment) / 1000)} ago`;
}

/** The name in a run's id, `FOLDER/NAME`; names contain no characters that need escaping in addresses. */
export function nameOfId(id: string): string {
  return id.slice(id.indexOf('/') + 1);
}
