/** How many questions a run asks judges, from its settings alone. */
import { isSupervised } from '../recipes/training_rules.js';
import { rewardOf } from '../recipes/settings.js';
import { decidingTerms, measuredTerms, questionsOf, recordedTerms } from '../rewards/score/choice.js';
import { getPath } from '../schema/paths.js';
import type { RunSettings } from '../schema/run.js';
import type { RolloutSettings, ValidationSettings } from '../schema/training.js';
import { mostEpisodes } from './episodes.js';

export interface JudgeQuestions {
  /** Most questions of an iteration. */
  readonly iteration: number;
  /** Most questions of a held-out evaluation. */
  readonly evaluation: number;
  /** Most questions of what is left, if every question is asked once. */
  readonly left: number;
}

/** Null for a run that asks no judge. `done` iterations are behind it. */
export function judgeQuestions(settings: RunSettings, done: number): JudgeQuestions | null {
  const reward = rewardOf(settings);
  const validation = getPath(settings, 'validation') as ValidationSettings | undefined;
  if (reward === null || validation === undefined) return null;
  const training = [...decidingTerms(reward), ...recordedTerms(reward)];
  const rollout = getPath(settings, 'rollout') as RolloutSettings | undefined;
  const learnsFromLabels = isSupervised((path) => getPath(settings, path));
  const episodes = rollout === undefined || learnsFromLabels ? 0 : mostEpisodes(rollout);
  const iteration = episodes * questionsOf(training);
  const sets = Math.max(1, (getPath(settings, 'data.validation') as readonly unknown[] | undefined)?.length ?? 1);
  const controls = getPath(settings, 'validation.shuffled_frames') === true ? 1 : 0;
  const answers = validation.prompts * sets * (validation.greedy ? 2 : 1) * (1 + controls);
  const evaluation = answers * questionsOf([...training, ...measuredTerms(reward)]);
  if (iteration === 0 && evaluation === 0) return null;
  const left = Math.max(0, settings.num_iterations - done);
  const every = validation.every_n_iterations;
  const evaluations = left === 0 ? 0 : (done === 0 ? 1 : 0) + (every === null ? 1 : Math.ceil(left / every));
  return { iteration, evaluation, left: left * iteration + evaluations * evaluation };
}
