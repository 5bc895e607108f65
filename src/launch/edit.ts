/**
 * Applies a run's image editor to the user's image: an evaluation on a dataset of that one edit, of which only the
 * images are kept.
 */
import { readFileSync, rmSync } from 'node:fs';
import { must, UsageError } from '../core/errors.js';
import { isTrainable } from '../config/recipes.js';
import type { WantedEdit } from '../recipes/recipe.js';
import { recipeOf } from '../recipes/settings.js';
import type { CheckpointChoice } from '../run/chosen_checkpoint.js';
import { parseHeldOutKey, readRecordedEpisodes } from '../run/episodes.js';
import type { RunPaths } from '../run/paths.js';
import { readRecord } from '../run/record.js';
import { recordedConfig } from '../run/recorded_config.js';
import { evaluatedRun, withPinnedCheckpoint } from './evaluation.js';
import type { Launcher } from './launcher.js';
import { runResolver } from './models/wanted.js';

export interface EditorCall extends WantedEdit {
  readonly checkpoint: CheckpointChoice;
  /** Whether to sample, or to take the most likely answer. */
  readonly sampled: boolean;
  readonly seed: number;
  readonly trust: boolean;
}

/** A reward without a judge. Its value is not used. */
const NO_JUDGE = [
  'reward.mode=null',
  'reward.also_compute=[]',
  'reward.terms=[{"name":"image_similarity","weight":1}]',
];

/**
 * The answers as PNG files, or null for answers that are not images. Returns null if the launcher was stopped. Raises
 * UsageError for a run that edits no images, and the errors of an evaluation.
 */
export async function applyEditor(
  launcher: Launcher,
  paths: RunPaths,
  { checkpoint, sampled, seed, trust, ...edit }: EditorCall,
): Promise<(Uint8Array | null)[] | null> {
  const record = must(readRecord(paths), 'the record of a run');
  const { settings } = recordedConfig(paths, record, { trust });
  const { openRecipeOf } = await import('../recipes/open.js');
  const recipe = isTrainable(settings) ? openRecipeOf(settings) : null;
  if (!isTrainable(settings) || recipe?.writeEdit === undefined) {
    throw new UsageError(`${paths.runName}: found a run of task '${settings.task}'; allowed: a run that edits images`, {
      next: 'Runs of image_edit_tokens, edit_response and image_editor edit images.',
    });
  }
  const resolveRun = runResolver(paths.baseExpDir, () => record);
  const data = await recipe.writeEdit(settings, resolveRun, edit);
  const rewarded = recipeOf(settings).reward(settings) !== null;
  const subject = evaluatedRun(paths, checkpoint, {
    data: [data],
    measures: [],
    sets: [
      `validation.prompts=${edit.count}`,
      `validation.seed=${seed}`,
      'validation.measure=[]',
      // The run's own training data is not needed, and a user's image may be part of it.
      `data.train=${JSON.stringify([{ path: data }])}`,
      // One sampling mode is enough. Some recipes have no choice.
      ...('greedy' in settings.validation ? [`validation.greedy=${!sampled}`] : []),
      ...(rewarded ? NO_JUDGE : []),
    ],
    trust,
  });
  try {
    if ((await withPinnedCheckpoint(subject, (config) => launcher.evaluate(config))) === 'interrupted') return null;
    const episodes = readRecordedEpisodes(subject.paths.heldOutEpisodes(subject.config.evaluation.iteration));
    const manners = new Set(episodes.map(({ key }) => parseHeldOutKey(key)?.sampling));
    const wanted = manners.size === 1 ? [...manners][0] : sampled ? 'sampled' : 'greedy';
    const answers = episodes.filter(({ key }) => parseHeldOutKey(key)?.sampling === wanted);
    return answers.map(({ edited }) =>
      edited === null || edited === undefined ? null : readFileSync(subject.paths.media(edited)),
    );
  } finally {
    rmSync(subject.paths.dir, { recursive: true, force: true });
  }
}
