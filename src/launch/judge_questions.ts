/** How many questions a run asks judges, from its settings and the lengths of its held-out lists. */
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
  /** Most questions of an iteration. */
  readonly iteration: number;
  /** Most questions of a held-out evaluation. */
  readonly evaluation: number;
  /** Most questions of what is left, if every question is asked once. */
  readonly left: number;
  /**
   * The same without groups that `rollout.refill` may add. Exact where every answer can be shown to a judge, no two that are compared are equal, each question is asked once, and the run does
   * not end early: fewer are asked where answers decode to nothing, more where replies have to be asked for again.
   */
  readonly forecast: number;
}

/** Null for a run that asks no judge. `done` iterations are behind it. */
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

/** Held-out prompts of an evaluation: `prompts` of each set, or all where its list is known to be shorter. */
function heldOutPrompts(settings: RunSettings, prompts: number): number {
  const sets = (getPath(settings, 'data.validation') ?? []) as readonly { readonly path: string }[];
  if (sets.length === 0) return prompts;
  return sets.reduce((sum, { path }) => sum + (countRows(path, prompts) ?? prompts), 0);
}

type Planned = Pick<RolloutSettings, 'episodes_per_iteration' | 'refill'>;

/** The most: every group of the first round, and of every further one, lacks spread. */
export function mostEpisodes({ episodes_per_iteration: episodes, refill }: Planned): number {
  return episodes * (1 + (refill?.rounds ?? 0));
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

/**
 * Raises ConfigError where the requests so far and the forecast of those that are left come to more than `most`: such a run would pause half way. Answers
 * that are stored for what comes next are not asked for again. `startsOver`: its folder will be moved away.
 */
export function checkJudgeCalls(settings: RunSettings, most: number, startsOver: boolean): void {
  const paths = RunPaths.of(settings);
  const done = startsOver ? 0 : (readState(paths)?.iteration ?? 0);
  const questions = judgeQuestions(settings, done);
  if (questions === null) return;
  // The evaluation before the first iteration is among what is left of a run that has not come to that.
  const from = done === 0 ? 0 : done + 1;
  const { requests, known } = startsOver ? { requests: 0, known: 0 } : storedCalls(paths.judgements, from);
  const left = Math.max(0, questions.forecast - known);
  if (left === 0 || requests + left <= most) return;
  const iterations = settings.num_iterations - done;
  const before = requests === 0 ? '' : ` after ${shown(requests)} requests so far`;
  throw new ConfigError(
    `${settings.run_name} has about ${shown(left)} questions to ask judges in the ${shown(iterations)} iterations left${before}, and may send ${shown(most)} requests in all`,
    {
      where: 'reward.max_judge_calls',
      next: `Set reward.max_judge_calls to at least ${shown(requests + left)} (replies that have to be asked for again count, too) or to null, or lower num_iterations.`,
    },
  );
}

/** As `12,000`. */
function shown(count: number): string {
  return count.toLocaleString('en-US');
}
