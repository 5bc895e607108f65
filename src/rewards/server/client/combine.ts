/** From a reply of a reward server to an outcome. */
import { fromWire, type ReplyItem } from '../wire.js';
import type { Outcome } from '../../score/types.js';
import { weightedSum } from '../../score/weighted.js';

/** Shares by the name of a term; they add up to 1. */
export type Weights = Readonly<Record<string, number>>;

/**
 * The outcome that the server weighed; with weights, the sum of the terms that they name: `sum_k w_k * normalised_k`. Parts keep the names
 * that the server gives. The reply has every term that is weighed.
 */
export function combine(reply: ReplyItem, weights: Weights | null): Outcome {
  if (weights === null) return fromWire(reply.outcome);
  return weightedSum(
    Object.entries(weights).map(([name, weight]) => ({ name, weight, outcome: fromWire(reply.terms[name]) })),
  );
}
