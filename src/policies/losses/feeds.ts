/** Turns the targets of actions into inputs of a training graph. */
import { InternalError } from '../../core/errors.js';
import type { Target } from '../policy.js';
import type { LossInput } from './loss.js';

/** An input with one number per row of a micro-batch. `reference` holds log-probabilities under the frozen start. */
export type TargetInput = 'weights' | 'reference' | LossInput;

/** Consecutive actions of one answer, which fill consecutive rows of a micro-batch. */
export interface PlacedActions {
  readonly target: Target;
  /** Index of the first action. */
  readonly from: number;
  readonly count: number;
  /** Index of the first row. */
  readonly row: number;
}

const valuesOf: Readonly<Record<TargetInput, (target: Target) => number | Float32Array | undefined>> = {
  weights: ({ weights }) => weights,
  advantages: ({ advantages }) => advantages,
  old: ({ old }) => old?.logProbs,
  reference: ({ reference }) => reference?.logProbs,
};

/**
 * The inputs with these names, [rows] each. Rows without an action are 0, including their weight. Raises InternalError when a target lacks an input.
 */
export function targetFeeds(
  names: readonly TargetInput[],
  placed: readonly PlacedActions[],
  rows: number,
): Partial<Record<TargetInput, Float32Array>> {
  const feeds: Partial<Record<TargetInput, Float32Array>> = {};
  for (const name of names) {
    const feed = new Float32Array(rows);
    for (const { target, from, count, row } of placed) {
      const values = valuesOf[name](target);
      if (values === undefined) throw new InternalError(`the loss reads ${name}, which a target lacks`);
      if (typeof values === 'number') feed.fill(values, row, row + count);
      else feed.set(values.subarray(from, from + count), row);
    }
    feeds[name] = feed;
  }
  return feeds;
}
