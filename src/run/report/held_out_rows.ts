/** The held-out numbers of a run as rows of text. */
import { showEstimate } from '../../core/estimate.js';
import { showHeldOut, showScale, showLoss, signed, signedEstimate, signedLoss } from './numbers.js';
import type { BeforeAfter, HeldOutChange, HeldOut } from './read.js';

export interface HeldOutRow {
  /** `reward, sampled`; for a single set `<set>, greedy`. */
  readonly label: string;
  /** Whether it is for one of the sets that the rows above cover together. */
  readonly of_set: boolean;
  /** Null if there is none. */
  readonly before: string | null;
  readonly after: string | null;
  readonly change: string | null;
}

/** Rows for the measurements that have a number. */
export function heldOutRows({
  sampled,
  greedy,
  sets,
  parts,
  loss,
  scale,
  measures,
}: Pick<HeldOut, 'sampled' | 'greedy' | 'sets' | 'parts' | 'loss' | 'scale' | 'measures'>): HeldOutRow[] {
  const reward = (label: string, values: HeldOutChange, of_set = false): HeldOutRow =>
    rowOf(label, of_set, values, { show: showHeldOut, change: () => showChange(values) ?? '' });
  const named = scale === null || scale.most === null ? 'reward' : `reward ${showScale(scale)}`;
  return [
    reward(`${named}, sampled`, sampled),
    reward(`${named}, greedy`, greedy),
    ...measures.flatMap((measure) => [
      reward(`measure ${measure.name}, sampled`, measure.sampled),
      reward(`measure ${measure.name}, greedy`, measure.greedy),
    ]),
    ...Object.entries(sets).flatMap(([set, values]) => [
      reward(`${set}, sampled`, values.sampled, true),
      reward(`${set}, greedy`, values.greedy, true),
    ]),
    ...Object.entries(parts).map(([part, values]) =>
      rowOf(part, false, values, {
        show: (mean) => showEstimate({ mean, stderr: null }),
        change: (a, b) => signed(b - a),
      }),
    ),
    rowOf('loss, lower is better', false, loss, { show: showLoss, change: (a, b) => signedLoss(b - a) }),
  ].filter(({ before, after }) => before !== null || after !== null);
}

/** The difference prompt by prompt with its error, or that of the means where only these are known; null for a single evaluation. */
export function showChange({ before, after, change }: HeldOutChange): string | null {
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
