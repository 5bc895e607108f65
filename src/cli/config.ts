/** editrl config show|check|diff|explain|schema: what a config evaluates to, whether it is valid, and what it may contain. */
import { existsSync, statSync } from 'node:fs';
import { extname } from 'node:path';
import { experimentSchema } from '../config/experiment/schema.js';
import { jsonSchema } from '../config/json_schema.js';
import { originsOf, type LoadedConfig } from '../config/load.js';
import { cannotRunYet } from '../config/models.js';
import { listSettings } from '../config/validate.js';
import { EditrlError, must, UsageError } from '../core/errors.js';
import type { JudgeAddress } from '../rewards/judge/endpoints.js';
import type { RewardSettings } from '../rewards/schema/reward.js';
import { formatTable, printError, printJson, printLine, printWarnings, styled, outputWidth } from './shared/output.js';
import {
  configOf,
  configOptions,
  flag,
  text,
  texts,
  overlayOption,
  setOption,
  expDirOption,
  type Arguments,
  type Verb,
  type Action,
} from './shared/verb.js';
import { explain, type Explanation } from '../config/explain.js';
import { wrap } from '../core/terminal.js';
import { allRecipes } from '../config/recipes.js';
import { settingsDifferences, type Difference, type Side } from '../config/hash.js';
import { findRun } from '../run/find.js';
import { readRecord } from '../run/record.js';
import { recordedSettings } from '../run/recorded_config.js';

const jsonOption = { type: 'boolean', default: false, describe: 'print one JSON document, for machines' } as const;

async function show(args: Arguments): Promise<number> {
  const config = await configOf(args);
  const settings = listSettings(config.settings);
  const keys = settings.map(({ key }) => key);
  const origins = flag(args, 'origin') ? await originsOf(config, keys) : null;
  if (flag(args, 'json')) {
    const named = origins === null ? {} : { origins: Object.fromEntries(keys.map((key, i) => [key, origins[i]])) };
    printJson({ ...config, cannot_run_yet: cannotRunYet(config.settings), ...named });
    return 0;
  }
  if (flag(args, 'list') || origins !== null) {
    const last = origins === null ? 'effect' : 'set by';
    const rows = settings.map(({ key, value, effect }, i) => [key, JSON.stringify(value), origins?.[i] ?? effect]);
    printLine(formatTable([{ title: 'key' }, { title: 'value' }, { title: last }], rows));
  } else {
    printJson(config.settings);
  }
  printRemarks(config);
  return 0;
}

/** The result of checking one file. */
export interface CheckedFile {
  readonly file: string;
  /** Whether the config is valid, even if something prevents its run on this machine. */
  readonly ok: boolean;
  readonly error?: string;
  readonly run_name?: string;
  readonly warnings?: readonly string[];
  readonly resultHash?: string;
  readonly in_the_way?: readonly { readonly run: string; readonly message: string }[];
  /** Remarks that prevent nothing: models that have to be downloaded and, with `--deep`, notes about its servers. */
  readonly notes?: readonly string[];
}

async function check(args: Arguments): Promise<number> {
  const json = flag(args, 'json');
  const { configs, exitCode } = await checkConfigs(args, json ? () => {} : printChecked);
  if (json) printJson({ configs });
  return exitCode;
}

function printChecked({ file, run_name, error, warnings = [], notes = [], in_the_way = [] }: CheckedFile): void {
  if (error !== undefined) {
    printError(`${styled('wrong', 'red', process.stderr)}  ${error}`);
    return;
  }
  const mark = in_the_way.length > 0 ? styled('blocked', 'yellow') : styled('ok', 'green');
  printLine(`${mark}  ${file}  ${run_name ?? ''}`);
  printWarnings(warnings);
  for (const note of notes) printNote(note);
  for (const { run, message } of in_the_way) printError(`in the way of ${run}: ${message}`);
}

/** Checks the configs that the flags name, one after the other. */
export async function checkConfigs(
  args: Arguments,
  onChecked: (checked: CheckedFile) => void,
): Promise<{ readonly configs: readonly CheckedFile[]; readonly exitCode: number }> {
  const [{ modelWarnings, Preflight }, { AnswerRoomChecks }, { missingModels }] = await Promise.all([
    import('../launch/preflight/preflight.js'),
    import('../launch/preflight/answer_room.js'),
    import('../launch/models/wanted.js'),
  ]);
  const preflight = new Preflight(undefined, flag(args, 'deep') ? judgeOf : undefined);
  const rooms = new AnswerRoomChecks();
  const servers = flag(args, 'deep') ? await openNetwork() : null;
  const configs: CheckedFile[] = [];
  let exitCode = 0;
  const add = (checked: CheckedFile): void => {
    configs.push(checked);
    onChecked(checked);
  };
  for (const file of texts(args, 'config')) {
    try {
      const config = await configOf(args, file);
      const found = await preflight.of(config);
      const left = await preflight.toTrain(config);
      const reached = servers === null ? null : await servers.of(left);
      const missing = servers === null ? left.flatMap(({ settings }) => missingModels(settings)) : [];
      const room = await rooms.of(left, new Set(found.map(({ run }) => run)));
      const remarks = reached?.notes ?? missing.map((model) => `not downloaded yet: ${model}`);
      const notes = [...remarks, ...room.warnings, ...(found.length === 0 ? await modelWarnings(left) : [])];
      // The trial of the rewards may already have reported that a server cannot be reached.
      const told = new Set(found.map(({ error }) => error.toText()));
      const all = [
        ...found,
        ...room.obstacles,
        ...(reached?.obstacles ?? []).filter(({ error }) => !told.has(error.toText())),
      ];
      const inTheWay = all.map(({ run, error }) => ({ run, message: error.toText() }));
      if (inTheWay.length > 0) exitCode = Math.max(exitCode, 1);
      const { warnings, resultHash, settings } = config;
      const noted = reached === null && notes.length === 0 ? {} : { notes };
      add({ file, ok: true, run_name: settings.run_name, warnings, resultHash, in_the_way: inTheWay, ...noted });
    } catch (error) {
      if (!(error instanceof EditrlError)) throw error;
      exitCode = Math.max(exitCode, error.exitCode);
      add({ file, ok: false, error: error.toText() });
    }
  }
  await servers?.close();
  return { configs, exitCode };
}

/** The judge that `--deep` asks; null for an embedded judge, which starts with the run, and for one whose host is not known yet. */
async function judgeOf({ endpoint }: RewardSettings): Promise<JudgeAddress | null> {
  const isThere = typeof endpoint === 'string' ? endpoint !== '' && endpoint !== 'embedded' : Array.isArray(endpoint);
  return isThere ? { endpoint, token: null } : null;
}

/** Checks servers and the Hub together. */
async function openNetwork() {
  const [{ ServerChecks }, { HubModels }] = await Promise.all([
    import('../launch/preflight/reachable.js'),
    import('../launch/models/hub.js'),
  ]);
  const [servers, models] = [new ServerChecks(), new HubModels({ say: printNote })];
  return {
    of: async (runs: readonly LoadedConfig[]) => {
      const [reached, missing] = [await servers.of(runs), await models.obstacles(runs)];
      return {
        obstacles: [...missing, ...reached.obstacles],
        notes: [...(missing.length > 0 ? [] : await models.notes(runs)), ...reached.notes],
      };
    },
    close: () => models.close(),
  };
}

async function schema(args: Arguments): Promise<number> {
  printJson(schemaOf(args));
  return 0;
}

/** The schema that the flags name. */
export function schemaOf(args: Arguments): Readonly<Record<string, unknown>> {
  return flag(args, 'experiment') ? experimentSchema() : jsonSchema(text(args, 'task') || null);
}

/** Prints to standard error, so that standard output stays one document. */
function printRemarks(config: LoadedConfig): void {
  printWarnings(config.warnings);
  for (const reason of cannotRunYet(config.settings)) printNote(reason);
}

function printNote(text: string): void {
  printError(`${styled('note', 'dim', process.stderr)}: ${text}`);
}

export const explainAction: Action & { readonly summary: string } = {
  summary: 'say what a key, or each key of a section, means: its type, its default, and what a config sets it to',
  positionals: '<key> [config]',
  build: (yargs) =>
    yargs
      .positional('key', {
        type: 'string',
        demandOption: true,
        describe: 'a key such as algorithm.kl_coeff, or a section',
      })
      .positional('config', { type: 'string', default: '', describe: 'also say what this config has, and what set it' })
      .option('with', overlayOption)
      .option('set', setOption)
      .option('json', { type: 'boolean', default: false, describe: 'print one JSON document, for machines' })
      .example('$0 config explain kl_coeff', 'a key, also without its section')
      .example('$0 config explain rollout configs/sft_s__rl_s.jsonnet', 'a section, and what a config sets in it'),
  run: async (args) => {
    const found = explain(text(args, 'key'));
    const values = text(args, 'config') === '' ? [] : await valuesOf(args, found[0].key);
    if (flag(args, 'json')) {
      printJson({ explanations: found, ...(text(args, 'config') === '' ? {} : { values }) });
      return 0;
    }
    found.forEach((one, index) => printExplanation(one, index > 0));
    for (const { key, value, set_by } of values) printLine(`\n${key} = ${JSON.stringify(value)}\n  set by: ${set_by}`);
    if (text(args, 'config') !== '' && values.length === 0) printLine(`\n${text(args, 'config')} has no such key.`);
    return 0;
  },
};

interface Value {
  readonly key: string;
  readonly value: unknown;
  readonly set_by: string;
}

/** The values of a config at a key and below it. */
async function valuesOf(args: Arguments, key: string): Promise<readonly Value[]> {
  const config = await configOf(args);
  printWarnings(config.warnings);
  const pattern = new RegExp(`^${key.split('[]').map(escaped).join('\\.\\d+')}(?:\\.|$)`);
  const settings = listSettings(config.settings).filter((setting) => pattern.test(setting.key));
  const origins = await originsOf(
    config,
    settings.map((setting) => setting.key),
  );
  return settings.map((setting, index) => ({ key: setting.key, value: setting.value, set_by: origins[index] }));
}

function escaped(part: string): string {
  return part.replaceAll('.', '\\.');
}

const EFFECTS = {
  result: 'result: it decides what is learned, and a resumed run refuses to change it',
  operation: 'operation: it may change at any resume',
} as const;

function printExplanation(
  { key, meaning, type, effect, recipes, where, below, ...rest }: Explanation,
  again: boolean,
): void {
  const everywhere = recipes.length === allRecipes().length;
  if (again) printLine();
  printLine(`${styled(key, 'bold')}${where === '' ? '' : ` (${where})`}`);
  if (meaning !== '') printLine(indented(meaning));
  if (below.length > 0) {
    const rows = below.map((child) => [child, meaningOf(child)]);
    printLine(formatTable([{ title: 'key' }, { title: 'meaning', wraps: true }], rows));
  } else {
    printLine(indented(`type: ${type}`));
    printLine(indented(`default: ${rest.default ?? 'none; it has to be given'}`));
  }
  if (effect !== null) printLine(indented(EFFECTS[effect]));
  if (!everywhere) printLine(indented(`recipes: ${recipes.join(', ')}`));
}

/** The meaning of a section's key; the first one if recipes or variants differ. */
function meaningOf(key: string): string {
  const [first, ...others] = new Set(explain(key).map(({ meaning }) => meaning));
  return others.length === 0 ? first : `${first} (One of ${others.length + 1} meanings: config explain ${key}.)`;
}

function indented(line: string): string {
  return wrap(line, Math.max(20, outputWidth() - 2))
    .map((part) => `  ${part}`)
    .join('\n');
}

const SIDES = ['a', 'b'] as const;

export const diffAction: Action & { readonly summary: string } = {
  summary: 'print what two configs, two runs, or a run and a config differ in; exit code 0 whether they do or not',
  positionals: '<a> <b>',
  build: (yargs) =>
    yargs
      .positional('a', { type: 'string', demandOption: true, describe: 'a config, a run_name, or the folder of a run' })
      .positional('b', { type: 'string', demandOption: true, describe: 'another one' })
      .option('with', { ...overlayOption, describe: 'merge this Jsonnet file over the configs; may be repeated' })
      .option('set', setOption)
      .option('exp-dir', expDirOption)
      .option('json', { type: 'boolean', default: false, describe: 'print one JSON document, for machines' })
      .example('$0 config diff sft_s__rl_s low_kl', 'two runs, by the settings that they recorded')
      .example(
        '$0 config diff sft_s__rl_s configs/sft_s__rl_s.jsonnet --with configs/lib/tiny.libsonnet',
        'what has changed in a config since its run was started',
      ),
  run: async (args) => {
    const names = SIDES.map((side) => text(args, side));
    if (!names.some(isConfig) && [...texts(args, 'with'), ...texts(args, 'set')].length > 0) {
      throw new UsageError('found --with or --set with two runs, whose settings are recorded', {
        next: 'Leave them out, or name a config in place of a run.',
      });
    }
    const [a, b] = [await sideOf(args, names[0]), await sideOf(args, names[1])];
    const differences = settingsDifferences(a, b);
    if (flag(args, 'json')) printJson({ a: names[0], b: names[1], differences });
    else if (differences.length === 0) printLine(`${names[0]} and ${names[1]} have the same settings.`);
    else printLine(table(names, differences));
    return 0;
  },
};

/** A config is an existing file, or a name with a config's extension even if no such file exists; any other name is a run. */
function isConfig(name: string): boolean {
  return ['.jsonnet', '.libsonnet', '.json'].includes(extname(name)) || (existsSync(name) && statSync(name).isFile());
}

async function sideOf(args: Arguments, name: string): Promise<Side> {
  if (isConfig(name)) {
    const { settings, warnings } = await configOf({ ...args, 'exp-dir': undefined }, name);
    printWarnings(warnings);
    return { settings };
  }
  const paths = findRun(name, text(args, 'exp-dir'));
  const record = must(readRecord(paths), `the record of ${paths.dir}`);
  return {
    settings: recordedSettings(record.settings),
    ...(record.texts === undefined ? {} : { texts: record.texts }),
  };
}

function table(names: readonly string[], differences: readonly Difference[]): string {
  const columns = ['key', ...names, 'effect'].map((title) => ({ title }));
  const rows = differences.map((difference) => [
    difference.key,
    ...SIDES.map((side) => (side in difference ? JSON.stringify(difference[side]) : null)),
    difference.effect,
  ]);
  return formatTable(columns, rows);
}

export const configVerb: Verb = {
  actions: {
    show: {
      summary: 'print the settings that a config evaluates to',
      positionals: '<config>',
      build: (yargs) =>
        configOptions(yargs)
          .option('json', { ...jsonOption, describe: 'settings, hashes and warnings as one JSON document' })
          .option('list', { type: 'boolean', default: false, describe: 'one key a line, with its effect at resume' })
          .option('origin', { type: 'boolean', default: false, describe: 'one key a line, with what set it' })
          .example('$0 config show configs/sft_s__rl_s.jsonnet --with configs/lib/tiny.libsonnet', 'all settings')
          .example('$0 config show configs/sft_s.jsonnet --set optimizer.learning_rate=1e-5 --list', 'as a list'),
      run: show,
    },
    check: {
      summary: 'report all that is wrong with configs (exit code 2), or in the way of their runs on this machine (1)',
      positionals: '<config..>',
      build: (yargs) =>
        configOptions(yargs)
          .option('json', jsonOption)
          .option('deep', {
            type: 'boolean',
            default: false,
            describe: 'ask the judges, the reward servers and the Hub, too, as a run would',
          })
          .example('$0 config check configs/sft_*.jsonnet --with configs/lib/tiny.libsonnet', 'the whole family')
          .example('$0 config check configs/sft_s__rl_s.jsonnet --deep', 'whether its judge can be asked'),
      run: check,
    },
    diff: diffAction,
    explain: explainAction,
    schema: {
      summary: 'print the JSON Schema of all settings, or of an experiment file',
      positionals: '',
      build: (yargs) =>
        yargs
          .option('json', { ...jsonOption, describe: 'accepted for uniformity: the schema is JSON in any case' })
          .option('experiment', { type: 'boolean', default: false, describe: 'what may stand in an experiment file' })
          .option('task', { type: 'string', requiresArg: true, describe: 'only the settings of this recipe' })
          .example('$0 config schema > editrl.schema.json', 'for editors')
          .example('$0 config schema --experiment', 'axes, designs, zip, exclude, overrides and the rest'),
      run: schema,
    },
  },
};
