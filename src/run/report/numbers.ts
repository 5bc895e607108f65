/** Formats numbers for reports, on a terminal or on a page. */
import { showEstimate, type Estimate } from '../../core/estimate.js';
import type { Speed } from '../metrics.js';
import type { BeforeAfter, HeldOut, HeldOutNumber, HeldOutScale } from './read.js';

/** Shown for a held-out mean that is NaN, because no answer has a score. */
export const UNSCORED = '– (unscored)';

/** A held-out mean with its error, or `UNSCORED`. */
export function showHeldOut(estimate: Estimate): string {
  return Number.isNaN(estimate.mean) ? UNSCORED : showEstimate(estimate);
}

/** A value with its sign. Zero gets `+`, and NaN becomes a dash. */
export function signed(value: number, digits = 3): string {
  if (Number.isNaN(value)) return '–';
  return `${value >= 0 ? '+' : ''}${value.toFixed(digits)}`;
}

/** A difference with its error: `+0.700 ± 0.200`. */
export function signedEstimate({ mean, stderr }: Estimate): string {
  return `${mean >= 0 ? '+' : ''}${showEstimate({ mean, stderr })}`;
}

/** `2,580 tokens/s` */
export function showSpeed({ unit, value }: Speed): string {
  return `${Math.round(value).toLocaleString('en-US')} ${unit}`;
}

/** Below this, four decimals leave a loss too few digits. */
const SMALL_LOSS = 0.001;

/** A loss with four decimals, or with three significant digits if it is small, like the errors of images. */
export function showLoss(value: number): string {
  const size = Math.abs(value);
  return size > 0 && size < SMALL_LOSS ? value.toExponential(2) : value.toFixed(4);
}

/** A difference of losses. */
export function signedLoss(value: number): string {
  return `${value >= 0 ? '+' : ''}${showLoss(value)}`;
}

/** The scale of a held-out number: `viescore, 0 to 10`, `loss, lower is better`. */
export function showScale({ label, most }: HeldOutScale): string {
  return most === null ? `${label}, lower is better` : `${label}, 0 to ${most}`;
}

export interface HeldOutRow {
  /** `reward, sampled`. For a single set `<set>, greedy`. */
  readonly label: string;
  /** Whether the row is for one of several sets. */
  readonly of_set: boolean;
  /** Null if there is none. */
  readonly before: string | null;
  readonly after: string | null;
  readonly change: string | null;
}

/** Rows for the measurements that have a number. A single set and a part that equals the reward get no row, because they would repeat one. */
export function heldOutRows({
  numbers,
  parts,
  loss,
  scale,
}: Pick<HeldOut, 'numbers' | 'parts' | 'loss' | 'scale'>): HeldOutRow[] {
  const reward = scale === null || scale.most === null ? 'reward' : `reward ${showScale(scale)}`;
  const isSingle =
    new Set(numbers.flatMap(({ set }) => set ?? [])).size === 1 && numbers.some(({ set }) => set === null);
  const shown = isSingle ? numbers.filter(({ set }) => set === null) : numbers;
  const repeats = ({ before, after }: BeforeAfter<number>): boolean =>
    numbers.some(
      (number) =>
        number.by === null &&
        number.set === null &&
        (before ?? null) === (number.before?.mean ?? null) &&
        (after ?? null) === (number.after?.mean ?? null),
    );
  const rows = shown.map((number) => {
    const { by, manner, set } = number;
    const label = `${set ?? (by === null ? reward : `measure ${by}`)}, ${manner}`;
    return rowOf(label, set !== null, number, { show: showHeldOut, change: () => showChange(number) ?? '' });
  });
  const ownParts = Object.entries(parts).filter(([, values]) => !repeats(values));
  const partRows = ownParts.map(([part, values]) =>
    rowOf(part, false, values, {
      show: (mean) => showEstimate({ mean, stderr: null }),
      change: (a, b) => signed(b - a),
    }),
  );
  const lossRow = rowOf('loss, lower is better', false, loss, { show: showLoss, change: (a, b) => signedLoss(b - a) });
  return [...rows, ...partRows, lossRow].filter(({ before, after }) => before !== null || after !== null);
}

/**
 * The paired difference over prompts with its error, or the difference of the means if only these are known. Null for a
 * single evaluation.
 */
export function showChange({ before, after, change }: HeldOutNumber): string | null {
  if (change !== undefined) return signedEstimate(change);
  return before === null || after === null ? null : signed(after.mean - before.mean);
}

function rowOf<T>(
  label: string,
  of_set: boolean,
  { before, after }: BeforeAfter<T>,
  { show, change }: { readonly show: (value: T) => string; readonly change: (before: T, after: T) => string },
): HeldOutRow {
  return {
    label,
    of_set,
    before: before === null ? null : show(before),
    after: after === null ? null : show(after),
    change: before === null || after === null ? null : change(before, after),
  };
}
