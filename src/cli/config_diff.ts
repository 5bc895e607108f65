/** editrl config diff: how two configs or runs differ. */
import { existsSync, statSync } from 'node:fs';
import { extname } from 'node:path';
import { settingsDifferences, type Difference, type Side } from '../config/diff.js';
import { must, UsageError } from '../core/errors.js';
import { findRun } from '../run/find.js';
import { readRecord } from '../run/record.js';
import { recordedSettings } from '../run/recorded_config.js';
import { formatTable, printJson, printLine, printWarnings } from './output.js';
import {
  configOf,
  expDirOption,
  flag,
  overlayOption,
  setOption,
  text,
  texts,
  type Action,
  type Arguments,
} from './verb.js';

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
