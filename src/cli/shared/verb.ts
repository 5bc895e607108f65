/** The type of a verb. Each verb is a file that exports one, and a line in the table of main.ts. */
import type { Argv } from 'yargs';
import type { LoadedConfig } from '../../config/load.js';
import { UsageError } from '../../core/errors.js';

export interface Action {
  /** Positional arguments, in yargs' notation, such as `<config>`; empty for none. */
  readonly positionals: string;
  /** Adds the options and at least one example. */
  readonly build: (yargs: Argv) => Argv;
  /** Does the work and returns the process's exit code. */
  readonly run: (args: Arguments) => Promise<number>;
}

/** Actions of a verb by name. */
export type Actions = Readonly<Record<string, Action & { readonly summary: string }>>;

/** A verb does the work itself, or has actions (`editrl config show`), or both: a word that names an action is one. */
export type Verb = (Action & { readonly actions?: Actions }) | { readonly actions: Actions };

/** Parsed flags by name, as yargs gives them. */
export type Arguments = Readonly<Record<string, unknown>>;

/** The value of a string flag; '' if it is not given. Raises UsageError if it is given more than once. */
export function text(args: Arguments, name: string): string {
  const value = args[name];
  if (Array.isArray(value)) throw new UsageError(`--${name} is given ${value.length} times; allowed: once`);
  return typeof value === 'string' ? value : '';
}

/** The values of a string flag that may be given several times. */
export function texts(args: Arguments, name: string): string[] {
  const value = args[name];
  const list: unknown[] = Array.isArray(value) ? value : [value];
  return list.filter((item) => typeof item === 'string');
}

/** An option that `wholeNumber` or `numberOf` reads. It has no type, so that yargs keeps a value that is not a number as it was written. */
export const numberOption = { requiresArg: true } as const;

/** The value of a whole-number flag; null if it is not given. Raises UsageError for any other value. */
export function wholeNumber(args: Arguments, name: string, least: number, most = Infinity): number | null {
  const allowed = `a whole number ${most === Infinity ? `>= ${least}` : `from ${least} to ${most}`}`;
  return numberOf(args, name, allowed, (value) => Number.isInteger(value) && value >= least && value <= most);
}

/** The value of a flag with a finite number; null if it is not given. Raises UsageError, which says what is `allowed`, for any other value. */
export function numberOf(
  args: Arguments,
  name: string,
  allowed = 'a number',
  may: (value: number) => boolean = Number.isFinite,
): number | null {
  const value = args[name];
  if (value === undefined) return null;
  if (typeof value === 'number' && may(value)) return value;
  const found = Array.isArray(value) ? value.join(' and ') : typeof value === 'string' ? value : JSON.stringify(value);
  throw new UsageError(`--${name}: found ${found}; allowed: ${allowed}`);
}

/** The value of a switch. */
export function flag(args: Arguments, name: string): boolean {
  return args[name] === true;
}

/** `--with`: overlays that are merged over the config. */
export const overlayOption = {
  type: 'string',
  array: true,
  nargs: 1,
  default: [],
  describe: 'merge this Jsonnet file over the config; may be repeated',
} as const;

/** `--only`: which cells of an experiment. */
const onlyOption = {
  type: 'string',
  requiresArg: true,
  describe: 'only cells with this in their name; * and ? match the whole name',
} as const;

/** `--set`: single keys of the config. */
export const setOption = {
  type: 'string',
  array: true,
  nargs: 1,
  default: [],
  describe: 'set one key, as a.b=value: JSON, or else a string; may be repeated; applied last',
} as const;

/** The options of every verb that takes a config. */
export function configOptions(yargs: Argv): Argv {
  return yargs
    .positional('config', {
      type: 'string',
      demandOption: true,
      describe: 'a Jsonnet file, such as configs/sft_s__rl_s.jsonnet',
    })
    .option('with', overlayOption)
    .option('set', setOption);
}

/** The options of every verb that takes an experiment. */
export function experimentOptions(yargs: Argv): Argv {
  return yargs
    .positional('experiment', {
      type: 'string',
      demandOption: true,
      describe: 'a Jsonnet file with a base and axes, such as experiments/reward_ablation.jsonnet, or a config',
    })
    .option('with', {
      ...overlayOption,
      describe: 'merge this Jsonnet file over the base, for the parents too; may be repeated',
    })
    .option('set', {
      ...setOption,
      describe: 'set one key in every cell, as a.b=value: JSON, or else a string; may be repeated; applied last',
    })
    .option('exp-dir', runDirOption)
    .option('only', onlyOption);
}

/** The config that the options of `configOptions` name. */
export async function configOf(args: Arguments, file = text(args, 'config')): Promise<LoadedConfig> {
  const { loadConfig } = await import('../../config/load.js');
  return loadConfig({ file, ...changesOf(args) });
}

/** A verb's changes to a config: `--with`, `--set`, and `--exp-dir`, which acts as one more `--set`. */
export function changesOf(args: Arguments): { overlays: string[]; sets: string[] } {
  const expDir = text(args, 'exp-dir');
  const place = expDir === '' ? [] : [`base_exp_dir=${JSON.stringify(expDir)}`];
  return { overlays: texts(args, 'with'), sets: [...texts(args, 'set'), ...place] };
}

/** `--exp-dir` of a verb that trains. */
export const runDirOption = {
  type: 'string',
  requiresArg: true,
  describe: 'the folder that runs lie in, parents too: another base_exp_dir than that of the config',
} as const;

/** `--exp-dir`: where a verb looks for runs. */
export const expDirOption = {
  type: 'string',
  requiresArg: true,
  describe: 'the folder that runs lie in (default: APP__BASE_EXP_DIR, else runs and runs/tiny)',
} as const;

/** `--trust` of a verb that follows the record of a run. */
export const trustOption = {
  type: 'boolean',
  default: false,
  describe: "follow the run's recorded settings, programs included, although another user may have written them",
} as const;

/** The options of every verb that trains: which keys may change when a run continues, and how the report is printed. */
export const trainingOptions = {
  'allow-changes': {
    type: 'string',
    array: true,
    nargs: 1,
    default: [],
    describe: 'settings that decide the result and may change on the way, as key,key',
  },
  json: {
    type: 'boolean',
    default: false,
    describe: 'print the final report as one JSON document, and nothing else',
  },
} as const;
