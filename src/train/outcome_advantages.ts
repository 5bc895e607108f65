/** From an iteration's outcomes to its advantages, as the config says. */
import type { AdvantageSettings } from '../config/settings.js';
import { must } from '../core/errors.js';
import type { Outcome } from '../rewards/types.js';
import { groupAdvantages, perTermAdvantages, type GroupAdvantages } from './advantages.js';
import { rewardOf } from './held_out.js';

/** `weights` are those of the reward's terms, in their order; `factor` is `reward_scale`. */
export function outcomeAdvantages(
  outcomes: readonly (readonly Outcome[])[],
  { scale, eps, clip, per_term }: AdvantageSettings,
  weights: readonly number[],
  factor: number,
): GroupAdvantages[] {
  if (!per_term) {
    return groupAdvantages(
      outcomes.map((group) => group.map(rewardOf)),
      { scale, eps, clip, factor },
    );
  }
  return perTermAdvantages(
    outcomes.map((group) => group.map((outcome) => termValuesOf(outcome, weights.length))),
    weights,
    { eps, clip, factor },
  );
}

/** The normalised value of each term of a weighted sum; 0 by rule is that of all of them. Null where there is none. */
function termValuesOf(outcome: Outcome, count: number): readonly number[] | null {
  switch (outcome.kind) {
    case 'scored':
      return must(outcome.terms, 'the terms of an outcome').map(({ normalised }) => normalised);
    case 'zero_by_rule':
      return new Array<number>(count).fill(0);
    case 'unscored':
      return null;
  }
}
