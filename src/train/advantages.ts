/** Advantages: how much better an episode did than those it is compared with. Pure functions. */
import type { AdvantageSettings, GrpoSettings } from '../config/schema/algorithm.js';
import { must } from '../core/errors.js';
import { average, deviation } from '../core/statistics.js';
import type { Outcome } from '../rewards/score/types.js';
import { rewardOf } from './scoring/outcomes.js';

export interface AdvantageOptions extends Pick<AdvantageSettings, 'scope' | 'scale' | 'eps' | 'clip'> {
  /** Multiplies the result (`reward_scale`). */
  readonly factor: number;
}

/** An episode's advantage is one number for all of its actions. */
export interface GroupAdvantages {
  /** Per episode; null if it carries no loss: unscored, or in a dropped group. */
  readonly advantages: readonly (number | null)[];
  readonly dropped: boolean;
  readonly zeroSpread: boolean;
}

/** The part that a group's outcomes decide by themselves. */
export type Spread = Pick<GroupAdvantages, 'dropped' | 'zeroSpread'>;

/** Rewards of a group's episodes; null for an unscored one, which counts nowhere. */
type GroupRewards = readonly (number | null)[];

/**
 * factor (r - mean) / (std + eps), clipped; std over the population. The mean is taken over the scope: the group (EARL; Shao et al., 2024), all
 * episodes of the iteration (PPO's usual form), or all of the prompt's episodes so far including these (Black et al., 2023), or the iteration if
 * fewer than two of those are known. `scale` names the divisor: the deviation over the scope, over all episodes of the iteration, or none. A group
 * with fewer than two scored episodes to compare is dropped.
 *
 * @param history for the scope `prompt_history`: the latest rewards of each group's prompt, including this iteration's.
 */
export function groupAdvantages(
  groups: readonly GroupRewards[],
  { scope, scale, eps, clip, factor }: AdvantageOptions,
  history: readonly (readonly number[])[] = [],
): GroupAdvantages[] {
  const all = groups.flatMap(scoredOf);
  const globalStd = deviation(all);
  const compared: Record<AdvantageOptions['scope'], (group: GroupRewards, g: number) => readonly number[]> = {
    group: scoredOf,
    batch: () => all,
    prompt_history: (_, g) => {
      const known = must(history[g], "the history of a group's prompt");
      return known.length < 2 ? all : known;
    },
  };
  return groups.map((rewardsG, g) => {
    const others = compared[scope](rewardsG, g);
    if (others.length < 2 || scoredOf(rewardsG).length === 0) {
      return { advantages: rewardsG.map(() => null), dropped: true, zeroSpread: false };
    }
    const mean = average(others);
    const divisor = { std: deviation(others) + eps, global_std: globalStd + eps, none: 1 }[scale];
    return {
      advantages: rewardsG.map((reward) =>
        reward === null ? null : clipped((factor * (reward - mean)) / divisor, clip),
      ),
      dropped: false,
      zeroSpread: Math.max(...others) === Math.min(...others),
    };
  });
}

function scoredOf(group: GroupRewards): number[] {
  return group.filter((reward) => reward !== null);
}

/** Keeps an advantage within [-limit, limit]; null means no limit. */
export function clipped(value: number, limit: number | null): number {
  return limit === null ? value : Math.max(-limit, Math.min(limit, value));
}

/**
 * Advantages for several rewards with different spreads, each normalised separately so that none drowns out the others: GDPO (Liu et al., "Group
 * reward-Decoupled Normalization Policy Optimization", 2026, arXiv 2601.05242). With r_k the values of term k and w_k its weight,
 *
 *   A_k = (r_k - mean(r_k)) / (std(r_k) + eps)    within the group
 *   S   = sum_k w_k A_k
 *   A   = factor * S / (std(S) + eps)             std over all episodes of the iteration that carry a loss
 *
 * with standard deviations over the population; the mean of S over the iteration, which the paper subtracts, is 0, since each group's mean is.
 * `groups` holds each episode's values in the order of `weights`, null if it is unscored. A group has no spread when none of its terms has any.
 */
export function perTermAdvantages(
  groups: readonly (readonly (readonly number[] | null)[])[],
  weights: readonly number[],
  { eps, clip, factor }: Omit<AdvantageOptions, 'scope' | 'scale'>,
): GroupAdvantages[] {
  const within = { scope: 'group', scale: 'std', eps, clip: null, factor: 1 } as const;
  const perTerm = weights.map((_, k) =>
    groupAdvantages(
      groups.map((group) => group.map((values) => (values === null ? null : values[k]))),
      within,
    ),
  );
  const weighted = perTerm.map((term, k) =>
    term.map(({ advantages }) => advantages.map((advantage) => weights[k] * (advantage ?? NaN))),
  );
  const sums = groups.map((group, g) =>
    group.map((_, i) => {
      const sum = weighted.reduce((total, term) => total + term[g][i], 0);
      return Number.isNaN(sum) ? null : sum;
    }),
  );
  const divisor = deviation(sums.flat().filter((sum) => sum !== null)) + eps;
  return sums.map((group, g) => ({
    advantages: group.map((sum) => (sum === null ? null : clipped((factor * sum) / divisor, clip))),
    dropped: perTerm.every((term) => term[g].dropped),
    zeroSpread: perTerm.every((term) => term[g].zeroSpread),
  }));
}

/**
 * Computes an iteration's advantages from its outcomes, as configured. `weights` are those of the reward's terms, in their order.
 */
export function outcomeAdvantages(
  outcomes: readonly (readonly Outcome[])[],
  { per_term, ...options }: AdvantageSettings,
  weights: readonly number[],
  factor: number,
  history: readonly (readonly number[])[] = [],
): GroupAdvantages[] {
  if (!per_term) {
    const rewards = outcomes.map((group) => group.map(rewardOf));
    return groupAdvantages(rewards, { ...options, factor }, history);
  }
  const values = outcomes.map((group) => group.map((outcome) => termValuesOf(outcome, weights.length)));
  return perTermAdvantages(values, weights, { ...options, factor });
}

/** The advantages of a run as configured, with the history of its prompts. */
export class AdvantageRule {
  history: PromptHistory = {};

  /** `weights` are those of the reward's terms, in their order. */
  constructor(
    private readonly settings: Pick<GrpoSettings, 'advantage' | 'reward_scale' | 'drop_zero_spread'>,
    private readonly weights: readonly number[],
  ) {}

  /**
   * A group by itself: `zeroSpread` if its scored rewards are exactly equal (with `per_term`, those of each term), `dropped` if fewer than two are scored.
   */
  readonly spread = (outcomes: readonly Outcome[]): Spread =>
    outcomeAdvantages([outcomes], { ...this.settings.advantage, scope: 'group' }, this.weights, 1)[0];

  /** `keys` are those of the groups' prompts. Call `commit` once they are learned from. */
  of(
    outcomes: readonly (readonly Outcome[])[],
    keys: readonly string[],
  ): { readonly advantages: readonly GroupAdvantages[]; readonly commit: () => void } {
    const { advantage, reward_scale, drop_zero_spread } = this.settings;
    const history = this.#remembers ? extendHistory(this.history, keys, outcomes) : this.history;
    const compared = outcomeAdvantages(
      outcomes,
      advantage,
      this.weights,
      reward_scale,
      keys.map((key) => history[key] ?? []),
    );
    return {
      advantages: drop_zero_spread ? compared.map(withoutZeroSpread) : compared,
      commit: () => (this.history = history),
    };
  }

  /** The part of a checkpoint's trainer.json. */
  get state(): { readonly prompt_history?: PromptHistory } {
    return this.#remembers ? { prompt_history: this.history } : {};
  }

  get #remembers(): boolean {
    return this.settings.advantage.scope === 'prompt_history';
  }
}

/** Treats a group without spread as dropped. */
function withoutZeroSpread(group: GroupAdvantages): GroupAdvantages {
  return group.zeroSpread ? { ...group, advantages: group.advantages.map(() => null), dropped: true } : group;
}

/** The normalised value of each term of a weighted sum; all 0 for an outcome that is zero by rule. Null if there are none. */
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

/** Rewards kept per prompt: older ones were earned by a different policy. */
const KEPT = 32;

/** By the prompts' keys; plain data, as stored in a checkpoint. */
export type PromptHistory = Readonly<Record<string, readonly number[]>>;

/** The history after an iteration whose groups answered these prompts. */
export function extendHistory(
  history: PromptHistory,
  prompts: readonly string[],
  outcomes: readonly (readonly Outcome[])[],
): PromptHistory {
  const out: Record<string, readonly number[]> = { ...history };
  prompts.forEach((key, g) => {
    const rewards = outcomes[g].map(rewardOf).filter((reward) => reward !== null);
    out[key] = [...(out[key] ?? []), ...rewards].slice(-Math.max(KEPT, rewards.length));
  });
  return out;
}
