/** The type of a verb and the options that verbs share. The table in main.ts lists all verbs. */
import { delimiter } from 'node:path';
import type { Argv } from 'yargs';
import type { LoadedConfig } from '../../config/load.js';
import { LIBRARY_PATH, VARIABLE_PREFIX } from '../../config/jsonnet.js';
import { UsageError } from '../../core/errors.js';

export interface Action {
  /** Positional arguments in the notation of yargs, such as `<config>`. Empty for none. */
  readonly positionals: string;
  /** Adds the options and at least one example. */
  readonly build: (yargs: Argv) => Argv;
  /** Does the work and returns the exit code. */
  readonly run: (args: Arguments) => Promise<number>;
}

/** Parsed flags by name. */
export type Arguments = Readonly<Record<string, unknown>>;

/** The value of a string flag, or '' if it is absent. Raises UsageError for a repeated flag. */
export function text(args: Arguments, name: string): string {
  const value = args[name];
  if (Array.isArray(value)) throw new UsageError(`--${name} is given ${value.length} times; allowed: once`);
  return typeof value === 'string' ? value : '';
}

/** The values of a repeatable string flag. */
export function texts(args: Arguments, name: string): string[] {
  const value = args[name];
  const list: unknown[] = Array.isArray(value) ? value : [value];
  return list.filter((item) => typeof item === 'string');
}

/** A string flag. */
export function textOption(describe: string) {
  return { type: 'string', requiresArg: true, describe } as const;
}

/** A string flag that may be repeated. */
export function listOption(describe: string) {
  return { type: 'string', array: true, nargs: 1, describe } as const;
}

/** A switch. */
export function switchOption(describe: string) {
  return { type: 'boolean', describe } as const;
}

/** A flag for `wholeNumber` or `numberOf`. It has no type, so yargs keeps an invalid number as text. */
export function numberOption(describe: string) {
  return { requiresArg: true, describe } as const;
}

/** The value of a whole-number flag, or null if it is absent. Raises UsageError for any other value. */
export function wholeNumber(args: Arguments, name: string, least: number, most = Infinity): number | null {
  const allowed = `a whole number ${most === Infinity ? `>= ${least}` : `from ${least} to ${most}`}`;
  return numberOf(args, name, allowed, (value) => Number.isInteger(value) && value >= least && value <= most);
}

/** The value of a number flag, or null if it is absent. Raises UsageError with `allowed` for an invalid value. */
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

/** `--json`. */
export const jsonOption = switchOption('Print one JSON document');

/** `--with`: overlays. */
export const overlayOption = listOption('Merge this Jsonnet file over the config (repeatable)');

/** `--set`: single keys of the config. */
export const setOption = listOption('Set one key, as a.b=VALUE in JSON or plain text (repeatable). Applied last');

/** `--exp-dir` of a verb that reads a config. */
export const runDirOption = textOption('Directory for runs (overrides base_exp_dir)');

/** `--exp-dir` of a verb that searches for runs. */
export const expDirOption = textOption('Directory of runs (default: APP__BASE_EXP_DIR, else runs and runs/tiny)');

/** `--trust` of a verb that uses a run's recorded settings. */
export const trustOption = switchOption("Use a run's recorded settings and programs even if another user wrote them");

/** How Jsonnet finds imports and variables, with the flags of the jsonnet command. */
const libraryOptions = {
  jpath: {
    type: 'string',
    array: true,
    nargs: 1,
    alias: 'J',
    describe: 'Search this directory for imports (repeatable, the last one first). Also EDITRL_JPATH',
  },
  'ext-str': {
    type: 'string',
    array: true,
    nargs: 1,
    alias: 'V',
    describe: "Set std.extVar('NAME'), as NAME=VALUE (repeatable)",
  },
} as const;

/**
 * Stores the values of `libraryOptions` in the environment, which child processes and Slurm jobs inherit. Raises UsageError for a variable without a
 * value.
 */
export function setLibrary(args: Arguments): void {
  const folders = texts(args, 'jpath').reverse();
  const before = process.env[LIBRARY_PATH] ?? '';
  if (folders.length > 0) process.env[LIBRARY_PATH] = [...folders, before].filter(Boolean).join(delimiter);
  for (const variable of texts(args, 'ext-str')) {
    const [, name, value] = /^([^=]+)=(.*)$/s.exec(variable) ?? [];
    if (name === undefined) {
      throw new UsageError(`-V: found '${variable}'; allowed: NAME=VALUE`);
    }
    process.env[VARIABLE_PREFIX + name] = value;
  }
}

/** The options of every verb that changes a config. */
export const changeOptions = {
  with: overlayOption,
  set: setOption,
  'exp-dir': runDirOption,
  ...libraryOptions,
} as const;

/** The options of every verb that takes a config. */
export function configOptions(yargs: Argv): Argv {
  return yargs
    .positional('config', { type: 'string', describe: 'Jsonnet file, such as configs/sft_s__rl_s.jsonnet' })
    .options(changeOptions);
}

/** The options of every verb that takes an experiment. */
export function experimentOptions(yargs: Argv): Argv {
  return yargs
    .positional('experiment', {
      type: 'string',
      describe: 'Jsonnet file with a base and axes, such as experiments/reward_ablation.jsonnet, or a config',
    })
    .options({
      with: { ...overlayOption, describe: 'Merge this Jsonnet file over the base and its parents (repeatable)' },
      set: { ...setOption, describe: 'Set one key in every cell, as a.b=VALUE (repeatable). Applied last' },
      'exp-dir': runDirOption,
      ...libraryOptions,
      only: textOption('Only cells with this text in their name (with * or ?, a pattern for the whole name)'),
    });
}

/** The config from `configOptions`. */
export async function configOf(args: Arguments, file = text(args, 'config')): Promise<LoadedConfig> {
  const { loadConfig } = await import('../../config/load.js');
  return loadConfig({ file, ...changesOf(args) });
}

/** A verb's changes to a config: `--with`, `--set`, and `--exp-dir`, which acts like a `--set`. */
export function changesOf(args: Arguments): { overlays: string[]; sets: string[] } {
  const expDir = text(args, 'exp-dir');
  const place = expDir === '' ? [] : [`base_exp_dir=${JSON.stringify(expDir)}`];
  return { overlays: texts(args, 'with'), sets: [...texts(args, 'set'), ...place] };
}

/** The options of every verb that trains. */
export const trainingOptions = {
  'allow-changes': listOption('Result-affecting settings that may change on resume, as KEY,KEY'),
  json: switchOption('Print only the final report, as one JSON document'),
} as const;
