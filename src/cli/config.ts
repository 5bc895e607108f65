/** `editrl config show|diff|explain|schema`: prints, compares and explains settings. */
import { existsSync, statSync } from 'node:fs';
import { extname } from 'node:path';
import { experimentSchema } from '../config/experiment/schema.js';
import { jsonSchema } from '../config/json_schema.js';
import { originsOf, type LoadedConfig } from '../config/load.js';
import { cannotRunYet } from '../config/models.js';
import { listSettings } from '../config/validate.js';
import { must, UsageError } from '../core/errors.js';
import { formatTable, outputWidth, printJson, printLine, printNote, printWarnings, styled } from './shared/output.js';
import {
  changeOptions,
  configOf,
  configOptions,
  expDirOption,
  flag,
  jsonOption,
  overlayOption,
  setOption,
  switchOption,
  text,
  textOption,
  texts,
  type Action,
  type Arguments,
} from './shared/verb.js';
import { explain, type Explanation } from '../config/explain.js';
import { wrap } from '../core/terminal.js';
import { allRecipes } from '../config/recipes.js';
import { settingsDifferences, type Difference, type Side } from '../config/hash.js';
import { findRun } from '../run/find.js';
import { readRecord } from '../run/record.js';
import { recordedSettings } from '../run/recorded_config.js';

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

/** The requested schema. */
export function schemaOf(args: Arguments): Readonly<Record<string, unknown>> {
  return flag(args, 'experiment') ? experimentSchema() : jsonSchema(text(args, 'task') || null);
}

/** Prints to standard error, so that standard output stays one document. */
function printRemarks(config: LoadedConfig): void {
  printWarnings(config.warnings);
  for (const reason of cannotRunYet(config.settings)) printNote(reason);
}

export const explainVerb: Action = {
  positionals: '<key> [config]',
  build: (yargs) =>
    yargs
      .positional('key', { type: 'string', describe: 'Key, such as algorithm.kl_coeff or kl_coeff, or a section' })
      .positional('config', { type: 'string', describe: 'Also print the values in this config and their origin' })
      .options({ ...changeOptions, json: jsonOption })
      .example('$0 config explain kl_coeff', 'One key')
      .example('$0 config explain rollout configs/sft_s__rl_s.jsonnet', 'A section, with the values of a config'),
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
  result: 'effect: result (affects training, so it cannot change on resume)',
  operation: 'effect: operation (may change on resume)',
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
    printLine(indented(`default: ${rest.default ?? 'none; required'}`));
  }
  if (effect !== null) printLine(indented(EFFECTS[effect]));
  if (!everywhere) printLine(indented(`recipes: ${recipes.join(', ')}`));
}

/** The meaning of a section's key. If recipes or variants differ, the first one. */
function meaningOf(key: string): string {
  const [first, ...others] = new Set(explain(key).map(({ meaning }) => meaning));
  return others.length === 0
    ? first
    : `${first} (One of ${others.length + 1} meanings; see: editrl config explain ${key})`;
}

function indented(line: string): string {
  return wrap(line, Math.max(20, outputWidth() - 2))
    .map((part) => `  ${part}`)
    .join('\n');
}

const SIDES = ['a', 'b'] as const;

export const diffVerb: Action = {
  positionals: '<a> <b>',
  build: (yargs) =>
    yargs
      .positional('a', { type: 'string', describe: 'Config, run_name, or folder of a run' })
      .positional('b', { type: 'string', describe: 'Another config or run' })
      .options({ with: overlayOption, set: setOption, 'exp-dir': expDirOption, json: jsonOption })
      .example('$0 config diff sft_s__rl_s low_kl', 'Two runs, by their recorded settings')
      .example(
        '$0 config diff sft_s__rl_s configs/sft_s__rl_s.jsonnet --with configs/lib/tiny.libsonnet',
        'What changed in a config since its run started',
      ),
  run: async (args) => {
    const names = SIDES.map((side) => text(args, side));
    if (!names.some(isConfig) && [...texts(args, 'with'), ...texts(args, 'set')].length > 0) {
      throw new UsageError('--with and --set do not apply to recorded runs', {
        next: 'Remove them, or name a config instead of a run.',
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

/** A name is a config if the file exists or the name has a config's extension. Any other name is a run. */
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

export const showVerb: Action = {
  positionals: '<config>',
  build: (yargs) =>
    configOptions(yargs)
      .options({
        json: switchOption('Print settings, hashes and warnings as one JSON document'),
        list: switchOption('Print one key per line, with its effect on resume'),
        origin: switchOption('Print one key per line, with the file or flag that sets it'),
      })
      .example('$0 config show configs/sft_s__rl_s.jsonnet --with configs/lib/tiny.libsonnet', 'All settings')
      .example('$0 config show configs/sft_s.jsonnet --set optimizer.learning_rate=1e-5 --list', 'As a list'),
  run: show,
};

export const schemaVerb: Action = {
  positionals: '',
  build: (yargs) =>
    yargs
      .options({
        json: switchOption('Has no effect, because the schema is always JSON'),
        experiment: switchOption('The schema of an experiment file'),
        task: textOption('Only the settings of this recipe'),
      })
      .example('$0 config schema > editrl.schema.json', 'For editors')
      .example('$0 config schema --experiment', 'Axes, designs, zip, exclude and overrides'),
  run: async (args) => {
    printJson(schemaOf(args));
    return 0;
  },
};
