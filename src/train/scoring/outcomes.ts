/** Converts outcomes to numbers and words. */
import { average, standardError } from '../../core/statistics.js';
import type { Outcome } from '../../rewards/score/types.js';

/** The reward of an outcome on its native scale. Null if it has none. */
export function rewardOf(outcome: Outcome): number | null {
  switch (outcome.kind) {
    case 'scored':
      return outcome.value;
    case 'zero_by_rule':
      return 0;
    case 'unscored':
      return null;
  }
}

/**
 * `<name>/mean`, `/stderr`, `/unscored` and the mean of every score part, and the same for every measure as
 * `<name>/measure/<term>/…`.
 */
export function summarizeOutcomes(name: string, outcomes: readonly Outcome[]): Record<string, number> {
  const rewards = outcomes.map(rewardOf).filter((reward) => reward !== null);
  const metrics: Record<string, number> = {
    [`${name}/mean`]: average(rewards),
    [`${name}/stderr`]: standardError(rewards),
    [`${name}/unscored`]: outcomes.length - rewards.length,
  };
  for (const [part, values] of scoreParts(outcomes)) metrics[`${name}/${part}`] = average(values);
  const measures = new Set(outcomes.flatMap((outcome) => Object.keys(outcome.measures ?? {})));
  for (const measure of measures) {
    const measured = outcomes.flatMap((outcome) => outcome.measures?.[measure] ?? []);
    Object.assign(metrics, summarizeOutcomes(`${name}/measure/${measure}`, measured));
  }
  return metrics;
}

/** Values of each score part over the outcomes that have it. */
export function scoreParts(outcomes: readonly Outcome[]): Map<string, number[]> {
  const out = new Map<string, number[]>();
  for (const { parts } of outcomes) {
    for (const [part, value] of Object.entries(parts)) {
      const values = out.get(part);
      if (values === undefined) out.set(part, [value]);
      else values.push(value);
    }
  }
  return out;
}

/** An outcome for people: `7.4`, `0.74` of 1, `0 (undecodable)`, `timeout`. */
export function showOutcome(outcome: Outcome): string {
  switch (outcome.kind) {
    case 'scored':
      return outcome.value.toFixed(outcome.value === outcome.normalised && outcome.value !== 0 ? 2 : 1);
    case 'zero_by_rule':
      return `0 (${outcome.reason})`;
    case 'unscored':
      return outcome.reason;
  }
}
