/** Advantages: how much better an episode did than those it is compared with. Pure functions. */
import type { AdvantageSettings, GrpoSettings } from '../config/schema/algorithm.js';
import { average, deviation } from '../core/statistics.js';
import type { Outcome } from '../rewards/score/types.js';
import { rewardOf } from './scoring/outcomes.js';

export interface AdvantageOptions extends Pick<AdvantageSettings, 'scope' | 'scale' | 'eps' | 'clip'> {
  /** Multiplies the result (`reward_scale`). */
  readonly factor: number;
}

/** An episode's advantage is one number for all of its actions. */
export interface GroupAdvantages {
  /** Per episode. Null if the episode carries no loss because it is unscored or its group was dropped. */
  readonly advantages: readonly (number | null)[];
  readonly dropped: boolean;
  readonly zeroSpread: boolean;
}

/** The part that depends on a group's own outcomes only. */
export type Spread = Pick<GroupAdvantages, 'dropped' | 'zeroSpread'>;

/** Rewards of a group's episodes. Null for unscored episodes, which are ignored. */
type GroupRewards = readonly (number | null)[];

/**
 * factor (r - mean) / (std + eps), clipped, with population standard deviations.
 * The mean is over the scope: the group (EARL, and Shao et al., 2024) or all episodes of the iteration (PPO). `scale`
 * chooses the divisor: the deviation over the scope, over all episodes of the iteration, or none. A group with fewer
 * than two scored episodes is dropped.
 */
export function groupAdvantages(
  groups: readonly GroupRewards[],
  { scope, scale, eps, clip, factor }: AdvantageOptions,
): GroupAdvantages[] {
  const all = groups.flatMap(scoredOf);
  const globalStd = deviation(all);
  return groups.map((rewards) => {
    const others = scope === 'group' ? scoredOf(rewards) : all;
    if (others.length < 2 || scoredOf(rewards).length === 0) {
      return { advantages: rewards.map(() => null), dropped: true, zeroSpread: false };
    }
    const mean = average(others);
    const divisor = { std: deviation(others) + eps, global_std: globalStd + eps, none: 1 }[scale];
    return {
      advantages: rewards.map((reward) =>
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

/** Keeps an advantage within [-limit, limit]. Null means no limit. */
function clipped(value: number, limit: number | null): number {
  return limit === null ? value : Math.max(-limit, Math.min(limit, value));
}

/** Computes a run's advantages according to its settings. */
export class AdvantageRule {
  constructor(private readonly settings: Pick<GrpoSettings, 'advantage' | 'reward_scale' | 'drop_zero_spread'>) {}

  /**
   * A group by itself: `zeroSpread` if its scored rewards are exactly equal, `dropped` if fewer than two are scored.
   */
  readonly spread = (outcomes: readonly Outcome[]): Spread =>
    groupAdvantages([outcomes.map(rewardOf)], { ...this.settings.advantage, scope: 'group', factor: 1 })[0];

  /** The advantages of an iteration's groups. */
  of(outcomes: readonly (readonly Outcome[])[]): GroupAdvantages[] {
    const { advantage, reward_scale: factor, drop_zero_spread } = this.settings;
    const compared = groupAdvantages(
      outcomes.map((group) => group.map(rewardOf)),
      { ...advantage, factor },
    );
    return drop_zero_spread ? compared.map(withoutZeroSpread) : compared;
  }
}

/** Drops a group with zero variance. */
function withoutZeroSpread(group: GroupAdvantages): GroupAdvantages {
  return group.zeroSpread ? { ...group, advantages: group.advantages.map(() => null), dropped: true } : group;
}
