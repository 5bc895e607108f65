/** How many answers an iteration samples, and how often a run is evaluated, from the settings alone. */
import { isSupervised } from '../recipes/shared/rules/training.js';
import type { RunSettings } from '../schema/run.js';
import { getPath } from '../schema/walk.js';
import type { RolloutSettings } from '../schema/training.js';

type Planned = Pick<RolloutSettings, 'episodes_per_iteration' | 'refill'>;

/** The most: every group of the first round, and of every further one, lacks spread. */
export function mostEpisodes({ episodes_per_iteration: episodes, refill }: Planned): number {
  return episodes * (1 + (refill?.rounds ?? 0));
}

/** The fewest and the most where groups are refilled; null for a run whose iterations all sample the same number. */
export function episodeRange(settings: RunSettings): { readonly from: number; readonly to: number } | null {
  const rollout = getPath(settings, 'rollout') as Planned | undefined;
  if (rollout === undefined || (rollout.refill ?? null) === null) return null;
  if (isSupervised((path) => getPath(settings, path))) return null;
  return { from: rollout.episodes_per_iteration, to: mostEpisodes(rollout) };
}

/** How many held-out evaluations are left after `done` of all iterations: before the first, after every so many (null: none between), after the last. */
export function evaluationsLeft(
  { num_iterations: last }: Pick<RunSettings, 'num_iterations'>,
  every: number | null,
  done: number,
): number {
  if (done >= last) return 0;
  const between = every === null ? 0 : Math.floor((last - 1) / every) - Math.floor(done / every);
  return (done === 0 ? 1 : 0) + between + 1;
}
