/** How many questions a run asks judges, from its settings and the lengths of its held-out lists. */
import { countRows } from '../data/rows.js';
import { isSupervised } from '../recipes/shared/rules/training.js';
import { rewardOf } from '../recipes/settings.js';
import { decidingTerms, measuredTerms, questionsOf, recordedTerms } from '../rewards/score/choice.js';
import { getPath } from '../schema/walk.js';
import type { RunSettings } from '../schema/run.js';
import type { RolloutSettings, ValidationSettings } from '../schema/training.js';
import { evaluationsLeft, mostEpisodes } from './episodes.js';

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
