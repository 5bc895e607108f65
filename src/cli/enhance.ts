/** `editrl enhance "a cat"`: rewrites prompts for an image model, with a trained run or an unmodified model. */
import { existsSync, readFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { DataError, UsageError } from '../core/errors.js';
import type { EnhancedPrompt, Enhancer, EnhancerOptions } from '../recipes/prompt_enhance/enhancer.js';
import { printError, printJson, printLine, styled } from './shared/output.js';
import {
  expDirOption,
  flag,
  jsonOption,
  numberOf,
  numberOption,
  text,
  textOption,
  texts,
  trustOption,
  wholeNumber,
  type Action,
  type Arguments,
} from './shared/verb.js';

/** Prompts per batch. */
const BATCH = 16;

export const enhanceVerb: Action = {
  positionals: '[prompts..]',
  build: (yargs) =>
    yargs
      .positional('prompts', {
        type: 'string',
        array: true,
        describe: 'Prompts to rewrite',
      })
      .option('file', textOption('Text file with one prompt per line. Lines that start with # are skipped'))
      .option('run', textOption('Run of task prompt_enhance, by name or folder. Its last checkpoint is used'))
      .option('model', textOption('Language model: a folder, or a Hub model in the cache (OWNER/NAME)'))
      .option('temperature', numberOption("Sampling temperature, 0 for greedy (default: the run's, else 0.7)"))
      .option('max-tokens', numberOption("Maximum tokens of a rewrite (default: the run's, else 100)"))
      .option('seed', numberOption('Sampling seed (default: 0)'))
      .option('json', jsonOption)
      .option('trust', trustOption)
      .option('exp-dir', expDirOption)
      .example('$0 enhance "a cat" --run prompt_enhance', 'With a trained run')
      .example('$0 enhance --file prompts.txt --model Qwen/Qwen2.5-0.5B-Instruct --json', 'With an untrained model'),
  run: async (args) => {
    const { prompts, single } = await promptsOf(args);
    const enhancer = await openEnhancer(args);
    for (const problem of enhancer.problems) printError(`editrl: ${problem}`);
    try {
      const all: EnhancedPrompt[] = [];
      for (let first = 0; first < prompts.length; first += BATCH) {
        const made = await enhancer.enhance(prompts.slice(first, first + BATCH), first);
        if (!flag(args, 'json')) made.forEach(print);
        all.push(...made);
      }
      if (flag(args, 'json')) printJson(single ? all[0] : { prompts: all });
      return 0;
    } finally {
      await enhancer.dispose();
    }
  },
};

/** Prints one rewrite per line. On a terminal it also prints the original prompt. */
function print({ prompt, enhanced_prompt: rewrite, finished, unread, prompt_unread }: EnhancedPrompt): void {
  if (process.stdout.isTTY) printLine(styled(prompt, 'dim'));
  printLine(rewrite);
  if (rewrite === '') printError(`editrl: the rewrite of '${prompt}' is empty`);
  else if (!finished) {
    printError(`editrl: the rewrite of '${prompt}' was cut off. Raise --max-tokens.`);
  }
  if (unread) printError(`editrl: the image model ignores the last ${tokens(unread)} of the rewrite of '${prompt}'`);
  if (prompt_unread) {
    printError(`editrl: CLIP ignores the last ${tokens(prompt_unread)} of '${prompt}'`);
  }
}

function tokens(count: number): string {
  return count === 1 ? 'token' : `${count} tokens`;
}

/** The prompts from the command line and the file. Raises UsageError or DataError if there are none, or if one is empty. */
async function promptsOf(args: Arguments): Promise<{ readonly prompts: readonly string[]; readonly single: boolean }> {
  const givenPrompts = texts(args, 'prompts');
  const file = text(args, 'file');
  if (givenPrompts.length > 0 && file !== '') throw new UsageError('found prompts and --file; allowed: one of them');
  if (file === '') {
    if (givenPrompts.length === 0) {
      throw new UsageError('missing prompt', { next: 'Usage: editrl enhance "a cat" --run RUN' });
    }
    if (givenPrompts.some((prompt) => prompt.trim() === '')) throw new UsageError('a prompt is empty');
    return { prompts: givenPrompts, single: givenPrompts.length === 1 };
  }
  if (!existsSync(file)) {
    throw new DataError('no such file', { where: file, next: 'Name a text file with one prompt per line.' });
  }
  const { promptLines } = await import('../data/rows.js');
  const prompts = promptLines(readFileSync(file), file).map(({ prompt }) => prompt);
  if (prompts.length === 0) {
    throw new DataError('the file contains no prompt', { where: file, next: 'Write one prompt per line.' });
  }
  return { prompts, single: false };
}

async function openEnhancer(args: Arguments): Promise<Enhancer> {
  const [run, model] = [text(args, 'run'), text(args, 'model')];
  if ((run === '') === (model === '')) {
    throw new UsageError(
      `found ${run === '' ? 'neither --run nor --model' : 'both --run and --model'}; allowed: one of them`,
      { next: 'Name a trained run with --run, or a language model with --model.' },
    );
  }
  const [temperature, maxTokens] = [
    numberOf(args, 'temperature', 'a number >= 0', (value) => value >= 0 && Number.isFinite(value)),
    wholeNumber(args, 'max-tokens', 1),
  ];
  const [{ openModelEnhancer, openRunEnhancer }, { runResolver }] = await Promise.all([
    import('../recipes/prompt_enhance/enhancer.js'),
    import('../launch/models/wanted.js'),
  ]);
  const options: Omit<EnhancerOptions, 'resolveRun'> = {
    seed: wholeNumber(args, 'seed', 0) ?? 0,
    sampling: { ...(temperature === null ? {} : { temperature }), ...(maxTokens === null ? {} : { maxTokens }) },
  };
  if (run === '') {
    const reference = isHubId(model) ? { hub: model, revision: 'main' } : model;
    return openModelEnhancer(reference, { ...options, resolveRun: runResolver('') });
  }
  const [{ findRun }, { readRecord }, { recordedConfig }, { latestWhole }, { RunError, must }] = await Promise.all([
    import('../run/find.js'),
    import('../run/record.js'),
    import('../run/recorded_config.js'),
    import('../run/checkpoints.js'),
    import('../core/errors.js'),
  ]);
  const expDir = text(args, 'exp-dir');
  const paths = findRun(run, expDir);
  const record = must(readRecord(paths), 'the record of a run');
  const { settings } = recordedConfig(paths, record, { trust: flag(args, 'trust') });
  const checkpoint = latestWhole(paths);
  if (checkpoint === null) {
    throw new RunError('the run has no complete checkpoint', { where: paths.dir, next: 'Train it further first.' });
  }
  const resolveRun = runResolver(dirname(paths.dir), () => record);
  return openRunEnhancer(settings, checkpoint.dir, { ...options, resolveRun });
}

function isHubId(model: string): boolean {
  return /^[\w.-]+\/[\w.-]+$/.test(model) && !existsSync(model);
}
