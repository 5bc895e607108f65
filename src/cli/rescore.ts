/** `editrl rescore RUN`: scores a run's episodes with another reward, from its records if possible. */
import { basename, extname } from 'node:path';
import { canonicalJson } from '../config/hash.js';
import { loadConfig } from '../config/load.js';
import { parseSet } from '../config/sets.js';
import { must, RunError, UsageError } from '../core/errors.js';
import { sha256 } from '../core/images/image.js';
import { EmbeddedJudges } from '../launch/servers/gateway.js';
import { runResolver } from '../launch/models/wanted.js';
import { openRecipeOf } from '../recipes/open.js';
import { isTrainable } from '../config/recipes.js';
import { plannedPrompts, rewardOf } from '../recipes/settings.js';
import type { RewardSettings } from '../rewards/schema/reward.js';
import { canonicalMode, type MeasureTerm } from '../rewards/score/settings.js';
import { findRun } from '../run/find.js';
import { encodeLine } from '../run/journal.js';
import { checkRunName, type RunPaths } from '../run/paths.js';
import { RESCORED_MEASURE } from '../run/report/measures.js';
import { readRecord, type RunRecord } from '../run/record.js';
import { recordedConfig } from '../run/recorded_config.js';
import { measureRecords } from '../train/rescore/measure.js';
import { rescore, type RescoreRequest } from '../train/rescore/rescore.js';
import type { RescoreSummary } from '../train/rescore/rescore_summary.js';
import { getPath } from '../core/schema/walk.js';
import type { RunSettings } from '../config/schema/run.js';
import { formatTable, printError, printJson, printLine } from './shared/output.js';
import {
  expDirOption,
  flag,
  jsonOption,
  overlayOption,
  setOption,
  switchOption,
  text,
  texts,
  trustOption,
  type Action,
  type Arguments,
} from './shared/verb.js';

export const rescoreVerb: Action = {
  positionals: '<run>',
  build: (yargs) =>
    yargs
      .positional('run', { type: 'string', describe: 'run_name, or the folder of a run' })
      .option('reward', { type: 'string', describe: 'Score with this reward.mode' })
      .option('config', { type: 'string', describe: "Score with this config's reward" })
      .option('measure', {
        type: 'string',
        array: true,
        describe: 'Score held-out answers with this term, for reports (repeatable)',
      })
      .option('with', { ...overlayOption, describe: 'Merge this Jsonnet file over --config (repeatable)' })
      .option('set', {
        ...setOption,
        describe: 'Set one key of the reward, as reward.a=VALUE (repeatable)',
      })
      .option('name', { type: 'string', describe: "Name of the result files in the run's rescored/ folder" })
      .option('offline', switchOption('Make no judge requests: score only episodes with recorded judge answers'))
      .option('held-out', switchOption('Only held-out episodes'))
      .option('json', jsonOption)
      .option('trust', trustOption)
      .option('exp-dir', expDirOption)
      .example('$0 rescore sft_s__rl_s --reward ground_score', 'Score the run with another reward')
      .example('$0 rescore sft_s__rl_s --measure ground_score', 'Add a measure to reports, like validation.measure')
      .example('$0 rescore sft_s__rl_s --offline', 'Parse the recorded judge answers again'),
  run: async (args) => {
    const expDir = text(args, 'exp-dir');
    const paths = findRun(text(args, 'run'), expDir);
    const record = readRecord(paths);
    if (record === null) throw new RunError('no run in this folder', { where: paths.dir });
    const { settings } = recordedConfig(paths, record, { trust: flag(args, 'trust') });
    const recordedReward = rewardOf(settings);
    if (!isTrainable(settings) || recordedReward === null) {
      throw new UsageError(`a run of task '${settings.task}' has no scored episodes`);
    }
    const resolveRun = runResolver(settings.base_exp_dir, () => record);
    const measures = texts(args, 'measure');
    const judges = new EmbeddedJudges({ say: printError });
    const shared = (endpoint: RewardSettings): Omit<RescoreRequest, 'reward' | 'name'> => ({
      paths,
      openTask: async () =>
        must(await openRecipeOf(settings).openTask(settings, resolveRun), 'the task of a scored run'),
      promptsPerIteration: plannedPrompts(settings),
      recordedReward,
      resolveRun,
      judge: flag(args, 'offline') || endpoint.endpoint === '' ? null : () => judges.addressOf(endpoint),
      offline: flag(args, 'offline'),
      onNote: printError,
      onProgress: ({ iteration, heldOut }, at, of) => {
        const kind = heldOut ? 'held-out episodes' : 'episodes';
        if (process.stderr.isTTY) process.stderr.write(`\r${at + 1}/${of}: ${kind} of iteration ${iteration}  `);
      },
    });
    const json = flag(args, 'json');
    const plain = (summary: RescoreSummary): unknown => JSON.parse(encodeLine(summary).line);
    const show = (summary: RescoreSummary): void => {
      if (process.stderr.isTTY) printError('');
      if (json) printJson(plain(summary));
      else printLine(formatSummary(summary));
    };
    try {
      if (measures.length > 0) {
        const { terms, endpoint } = measuresOf(args, paths, record);
        const read = (path: string): unknown => getPath(settings, path);
        const summaries: RescoreSummary[] = [];
        for (const term of terms) {
          const summary = await measureRecords({ ...shared(endpoint), term, settings: read });
          summaries.push(summary);
          if (!json || terms.length === 1) show(summary);
        }
        if (json && terms.length !== 1) printJson({ measures: summaries.map(plain) });
        return 0;
      }
      const reward = await otherReward(args, paths, record);
      const heldOutOnly = flag(args, 'held-out');
      show(await rescore({ ...shared(reward), reward, name: fileName(args, reward), heldOutOnly }));
      return 0;
    } finally {
      await judges.close();
    }
  },
};

/**
 * The terms of --measure, and the reward with the judge's endpoint. Raises ConfigError for terms that cannot score the run's answers, and UsageError if
 * another flag names a reward.
 */
function measuresOf(
  args: Arguments,
  paths: RunPaths,
  record: RunRecord,
): { readonly terms: readonly MeasureTerm[]; readonly endpoint: RewardSettings } {
  const others = ['reward', 'config', 'name'].filter((name) => text(args, name) !== '');
  const sets = texts(args, 'set');
  const other = others[0] ?? (texts(args, 'with').length > 0 ? 'with' : null);
  const set = sets.find((one) => parseSet(one).path !== 'reward.endpoint');
  if (other !== null || set !== undefined) {
    throw new UsageError(`found --measure beside --${other ?? `set ${String(set)}`}; allowed: one of them`, {
      next: 'Write a term with fields as JSON: --measure \'{"name": "ocr", "mode": "exact"}\'',
    });
  }
  const rewards = texts(args, 'measure').map((term) => {
    const { settings } = recordedConfig(paths, record, {
      sets: [...sets, `validation.measure=${term}`],
      trust: flag(args, 'trust'),
    });
    return requireReward(settings, paths.record);
  });
  return { terms: rewards.flatMap(({ measure }) => measure ?? []), endpoint: rewards[0] };
}

/** The run's own reward with the flags' changes, or a config's reward. Raises ConfigError for an invalid reward. */
async function otherReward(args: Arguments, paths: RunPaths, record: RunRecord): Promise<RewardSettings> {
  const [mode, config] = [text(args, 'reward'), text(args, 'config')];
  if (mode !== '' && config !== '') {
    throw new UsageError('found --reward and --config; allowed: one of them');
  }
  if (config === '' && texts(args, 'with').length > 0) {
    throw new UsageError(`found --with ${texts(args, 'with')[0]} without --config`, {
      next: '--with merges over a config. Add --config FILE.',
    });
  }
  const sets = [...(mode === '' ? [] : [`reward.mode=${String(canonicalMode(mode))}`]), ...texts(args, 'set')];
  for (const set of sets) {
    const { path } = parseSet(set);
    if (!path.startsWith('reward.')) {
      throw new UsageError(`--set ${set}: allowed: keys of the reward`, {
        next: 'Only the reward can change. Example: --set reward.mode=ground_score',
      });
    }
  }
  if (config !== '') {
    const { settings } = await loadConfig({ file: config, overlays: texts(args, 'with'), sets });
    return requireReward(settings, config);
  }
  const given = new Set(sets.map((set) => parseSet(set).path.split('.')[1]));
  const { settings } = recordedConfig(paths, record, {
    sets: [...implied(given), ...sets],
    trust: flag(args, 'trust'),
  });
  return requireReward(settings, paths.record);
}

/**
 * The settings for a named reward. It replaces the run's reward, and other terms are computed only on request.
 */
function implied(given: ReadonlySet<string>): string[] {
  return [
    ...(given.has('mode') ? ['reward.terms=[]'] : []),
    ...(given.has('terms') && !given.has('mode') ? ['reward.mode=null'] : []),
    ...(given.has('also_compute') ? [] : ['reward.also_compute=[]']),
  ];
}

function requireReward(settings: RunSettings, where: string): RewardSettings {
  const reward = rewardOf(settings);
  if (reward === null) throw new UsageError(`${where} is of task '${settings.task}', which has no reward`);
  return reward;
}

/** `--name`, else the mode, else a name derived from the reward's settings. */
function fileName(args: Arguments, reward: RewardSettings): string {
  const given = text(args, 'name');
  const { mode, terms, model, prompts } = reward;
  const config = text(args, 'config');
  const digest = sha256(canonicalJson({ mode, terms, model, prompts })).slice(0, 8);
  const stem = config === '' ? (mode ?? 'terms') : basename(config, extname(config));
  if (given.startsWith(RESCORED_MEASURE)) {
    throw new UsageError(`--name ${given}: names must not begin with '${RESCORED_MEASURE}'`, {
      next: 'Such files contain the results of --measure. To compare runs by a term: editrl rescore RUN --measure TERM',
    });
  }
  const name = given === '' ? `${stem.replace(/[^A-Za-z0-9]+/g, '_').replace(/^_|_$/g, '')}-${digest}` : given;
  checkRunName(name);
  return name;
}

function formatSummary(summary: RescoreSummary): string {
  const { rescored, judgements } = summary;
  const total = rescored.scored + rescored.zero_by_rule + rescored.unscored;
  const show = (value: number | null): string => (value === null ? '-' : value.toFixed(3));
  const rows = summary.rows.map((row) => [
    row.set,
    row.iteration,
    row.episodes,
    row.compared,
    show(row.recorded_mean),
    show(row.rescored_mean),
  ]);
  const table = formatTable(
    [
      { title: 'episodes of' },
      { title: 'iteration', align: 'right' },
      { title: 'there', align: 'right' },
      { title: 'compared', align: 'right' },
      { title: 'recorded', align: 'right' },
      { title: 'rescored', align: 'right' },
    ],
    rows,
  );
  const missing = Object.entries(summary.not_rescored).map(([why, count]) => `not rescored: ${count}, ${why}`);
  return [
    `${summary.run_name}: trained on ${summary.recorded_reward}, rescored with ${summary.reward}`,
    ...(rows.length === 0 ? ['It recorded no episodes.'] : ['', table]),
    '',
    `${total} of ${summary.episodes} episodes: ${rescored.scored} scored, ${rescored.zero_by_rule} zero by rule, ${rescored.unscored} unscored`,
    ...missing,
    `${summary.differ} of ${summary.compared} differ; correlation ${show(summary.correlation)}`,
    `judge answers: ${judgements.replayed} from the records, ${judgements.parsed_again} parsed again, ${judgements.asked} new requests`,
    summary.file,
  ].join('\n');
}
