/** The number of judge questions of a run, from its settings and the lengths of its held-out lists. */
import { countRows } from '../data/rows.js';
import { isSupervised } from '../recipes/shared/rules/training.js';
import { rewardOf } from '../recipes/settings.js';
import { decidingTerms, measuredTerms, questionsOf, recordedTerms } from '../rewards/score/choice.js';
import { getPath } from '../core/schema/walk.js';
import type { RunSettings } from '../config/schema/run.js';
import type { RolloutSettings, ValidationSettings } from '../config/schema/training.js';
import { ConfigError } from '../core/errors.js';
import { storedCalls } from '../run/exchanges.js';
import { RunPaths } from '../run/paths.js';
import { readState } from '../run/state.js';

export interface JudgeQuestions {
  /** Maximum of an iteration. */
  readonly iteration: number;
  /** Maximum of a held-out evaluation. */
  readonly evaluation: number;
  /** Maximum of the rest of the run, if every question is sent once. */
  readonly left: number;
  /**
   * The same without groups that `rollout.refill` may add. Retries add requests. Answers that cannot be decoded, equal answers in a comparison and an
   * early stop save some.
   */
  readonly forecast: number;
}

/** Null for a run without a judge. `done`: the number of finished iterations. */
export function judgeQuestions(settings: RunSettings, done: number): JudgeQuestions | null {
  const reward = rewardOf(settings);
  const validation = getPath(settings, 'validation') as ValidationSettings | undefined;
  if (reward === null || validation === undefined) return null;
  const training = [...decidingTerms(reward), ...recordedTerms(reward)];
  const rollout = getPath(settings, 'rollout') as RolloutSettings | undefined;
  const learnsFromLabels = isSupervised((path) => getPath(settings, path));
  const learns = rollout !== undefined && !learnsFromLabels;
  const episodes = learns ? mostEpisodes(rollout) : 0;
  const fewest = learns ? rollout.episodes_per_iteration : 0;
  const answersOf = rollout?.generations_per_sample ?? 1;
  const perEpisode = questionsOf(training, answersOf) / answersOf;
  const iteration = episodes * perEpisode;
  const answers = heldOutPrompts(settings, validation.prompts) * (validation.greedy ? 2 : 1);
  const evaluation = answers * questionsOf([...training, ...measuredTerms(reward)], 1);
  if (iteration === 0 && evaluation === 0) return null;
  const left = Math.max(0, settings.num_iterations - done);
  const evaluations = evaluationsLeft(settings, validation.every_n_iterations, done);
  const of = (each: number): number => left * each * perEpisode + evaluations * evaluation;
  return { iteration, evaluation, left: of(episodes), forecast: of(fewest) };
}

/** Held-out prompts of an evaluation: `prompts` of each set, or all of a set that is known to be shorter. */
function heldOutPrompts(settings: RunSettings, prompts: number): number {
  const sets = (getPath(settings, 'data.validation') ?? []) as readonly { readonly path: string }[];
  if (sets.length === 0) return prompts;
  return sets.reduce((sum, { path }) => sum + (countRows(path, prompts) ?? prompts), 0);
}

type Planned = Pick<RolloutSettings, 'episodes_per_iteration' | 'refill'>;

/** The maximum: every group of every round has zero variance. */
export function mostEpisodes({ episodes_per_iteration: episodes, refill }: Planned): number {
  return episodes * (1 + (refill?.rounds ?? 0));
}

/** Held-out evaluations left after `done` iterations: before the first, after every `every` (null: none between), after the last. */
export function evaluationsLeft(
  { num_iterations: last }: Pick<RunSettings, 'num_iterations'>,
  every: number | null,
  done: number,
): number {
  if (done >= last) return 0;
  const between = every === null ? 0 : Math.floor((last - 1) / every) - Math.floor(done / every);
  return (done === 0 ? 1 : 0) + between + 1;
}

/**
 * Raises ConfigError if the requests so far and the forecast of the rest exceed `most`: such a run would pause half way. Stored replies to later questions
 * do not count twice. `startsOver`: the run's folder will be moved away.
 */
export function checkJudgeCalls(settings: RunSettings, most: number, startsOver: boolean): void {
  const paths = RunPaths.of(settings);
  const done = startsOver ? 0 : (readState(paths)?.iteration ?? 0);
  const questions = judgeQuestions(settings, done);
  if (questions === null) return;
  // A run at iteration 0 still has its first evaluation ahead.
  const from = done === 0 ? 0 : done + 1;
  const { requests, known } = startsOver ? { requests: 0, known: 0 } : storedCalls(paths.judgements, from);
  const left = Math.max(0, questions.forecast - known);
  if (left === 0 || requests + left <= most) return;
  const iterations = settings.num_iterations - done;
  const before = requests === 0 ? '' : `, after ${shown(requests)} requests so far`;
  throw new ConfigError(
    `${settings.run_name} needs about ${shown(left)} judge requests for its last ${shown(iterations)} iterations${before}; allowed: ${shown(most)} in total`,
    {
      where: 'reward.max_judge_calls',
      next: `Set reward.max_judge_calls to at least ${shown(requests + left)} (retries count too) or to null, or lower num_iterations.`,
    },
  );
}

/** Formats a count as `12,000`. */
function shown(count: number): string {
  return count.toLocaleString('en-US');
}
