/** Scores the records of finished cells by those of the experiment's measures that their evaluations lack. */
import type { Experiment } from '../../config/experiment/load.js';
import { EditrlError, must } from '../../core/errors.js';
import { isTrainable, rewardForms } from '../../config/recipes.js';
import { plannedPrompts, rewardOf } from '../../recipes/settings.js';
import { termName } from '../../rewards/score/choice.js';
import { measuredBy } from '../../run/report/measures.js';
import { RunPaths } from '../../run/paths.js';
import { readRecord } from '../../run/record.js';
import { readRun } from '../../run/report/read.js';
import { getPath } from '../../core/schema/walk.js';
import { EmbeddedJudges } from '../servers/gateway.js';
import { runResolver } from '../models/wanted.js';
import type { SweepRun } from './plan.js';
import { inspect } from './run_folders.js';

/**
 * Scores the first and the last evaluation of each finished cell by the measures that it lacks. Reports problems and
 * never raises them.
 */
export async function measureFinished(
  { cells, measure }: Pick<Experiment, 'cells' | 'measure'>,
  say: (sentence: string) => void,
  stop: AbortSignal,
): Promise<void> {
  const judges = new EmbeddedJudges({ say });
  try {
    for (const cell of measure.length === 0 ? [] : cells) {
      if (stop.aborted) return;
      try {
        await measureCell(cell, judges, say);
      } catch (error) {
        if (!(error instanceof EditrlError)) throw error;
        say(
          `${cell.run_name}: its records could not be scored by ${measure.map(rewardForms().metricOf).join(', ')}: ${error.toText()}`,
        );
      }
    }
  } finally {
    await judges.close();
  }
}

async function measureCell(
  { config }: SweepRun,
  judges: EmbeddedJudges,
  say: (sentence: string) => void,
): Promise<void> {
  const { settings } = config;
  const recordedReward = rewardOf(settings);
  if (recordedReward === null || !isTrainable(settings) || inspect(config).kind !== 'finished') return;
  const paths = RunPaths.of(config.settings);
  // The record lists the measures of its evaluations. A finished run has no measure that was added later.
  const recorded = must(readRecord(paths), `the record of ${settings.run_name}`).settings;
  const read = (path: string): unknown => getPath(recorded, path);
  const { heldout } = readRun(paths);
  for (const term of recordedReward.measure ?? []) {
    const found = measuredBy(term, heldout.numbers, read);
    const isSingle = heldout.iterations.after === null;
    if (found.some(({ before, after }) => (isSingle ? before : after) !== null)) continue;
    say(`${settings.run_name}: scoring its held-out answers by ${termName(term)}, from its records`);
    const [{ measureRecords }, { openRecipeOf }] = await Promise.all([
      import('../../train/rescore/measure.js'),
      import('../../recipes/open.js'),
    ]);
    const resolveRun = runResolver(settings.base_exp_dir, () => readRecord(paths) ?? {});
    const { episodes, rescored, not_rescored } = await measureRecords({
      paths,
      term,
      settings: read,
      recordedReward,
      openTask: async () =>
        must(await openRecipeOf(settings).openTask(settings, resolveRun), 'the task of a scored run'),
      promptsPerIteration: plannedPrompts(settings),
      resolveRun,
      judge: recordedReward.endpoint === '' ? null : () => judges.addressOf(recordedReward),
      endsOnly: true,
      onNote: say,
    });
    const without = episodes - rescored.scored - rescored.zero_by_rule;
    if (without === 0) continue;
    const why = [...Object.keys(not_rescored), ...(rescored.unscored > 0 ? ['no usable answer about them'] : [])];
    say(
      `${settings.run_name}: ${without} of ${episodes} held-out answers have no number by ${termName(term)} and count in no mean (${why.join('; ')})`,
    );
  }
}
