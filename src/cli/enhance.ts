/** `editrl enhance "a cat"`: rewrites prompts for an image model, with a trained run or an unmodified model. */
import { existsSync, readFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { DataError, UsageError } from '../core/errors.js';
import type { EnhancedPrompt, Enhancer, EnhancerOptions } from '../recipes/prompt_enhance/enhancer.js';
import { printError, printJson, printLine, styled } from './shared/output.js';
import {
  expDirOption,
  flag,
  numberOf,
  numberOption,
  text,
  texts,
  wholeNumber,
  trustOption,
  type Action,
  type Arguments,
} from './shared/verb.js';

/** Prompts that are rewritten together. */
const BATCH = 16;

export const enhanceVerb: Action = {
  positionals: '[prompts..]',
  build: (yargs) =>
    yargs
      .positional('prompts', {
        type: 'string',
        array: true,
        describe: 'what is to be rewritten; several are rewritten together',
      })
      .option('file', {
        type: 'string',
        requiresArg: true,
        describe: 'a text file with a prompt on each line; lines that begin with # are left out',
      })
      .option('run', {
        type: 'string',
        requiresArg: true,
        describe: 'a run of prompt_enhance, or its folder: its last checkpoint rewrites',
      })
      .option('model', {
        type: 'string',
        requiresArg: true,
        describe: 'a language model as it is: a folder, or a model of the Hub in the cache (owner/name)',
      })
      .option('temperature', {
        ...numberOption,
        describe: '0 takes the most probable words (default: that of the run, else 0.7)',
      })
      .option('max-tokens', { ...numberOption, describe: 'the longest rewrite (default: that of the run, else 100)' })
      .option('seed', { ...numberOption, describe: 'another seed gives other rewrites (default: 0)' })
      .option('json', { type: 'boolean', default: false, describe: 'print one JSON document, for machines' })
      .option('trust', trustOption)
      .option('exp-dir', expDirOption)
      .example('$0 enhance "a cat" --run prompt_enhance', 'by a trained run')
      .example('$0 enhance --file prompts.txt --model Qwen/Qwen2.5-0.5B-Instruct --json', 'by a model as it is'),
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

/** Prints one rewrite per line; on a terminal, the original prompt as well. */
function print({ prompt, enhanced_prompt: rewrite, finished, unread, prompt_unread }: EnhancedPrompt): void {
  if (process.stdout.isTTY) printLine(styled(prompt, 'dim'));
  printLine(rewrite);
  if (rewrite === '') printError(`editrl: '${prompt}' was rewritten as no words at all`);
  else if (!finished) {
    printError(`editrl: the rewrite of '${prompt}' was cut off at its longest; --max-tokens allows more`);
  }
  if (unread) printError(`editrl: the image model leaves out the last ${tokens(unread)} of the rewrite of '${prompt}'`);
  if (prompt_unread) {
    printError(
      `editrl: clip leaves out the last ${tokens(prompt_unread)} of '${prompt}': no picture was compared with such words in training`,
    );
  }
}

function tokens(count: number): string {
  return count === 1 ? 'token' : `${count} tokens`;
}

/** The prompts of the command line and of the file. Raises UsageError and DataError when there are none, or when one is empty. */
async function promptsOf(args: Arguments): Promise<{ readonly prompts: readonly string[]; readonly single: boolean }> {
  const said = texts(args, 'prompts');
  const file = text(args, 'file');
  if (said.length > 0 && file !== '') throw new UsageError('found prompts and --file; allowed: one of the two');
  if (file === '') {
    if (said.length === 0) {
      throw new UsageError('there is no prompt', { next: 'Write: editrl enhance "a cat" --run RUN' });
    }
    if (said.some((prompt) => prompt.trim() === '')) throw new UsageError('a prompt is empty; allowed: words');
    return { prompts: said, single: said.length === 1 };
  }
  if (!existsSync(file)) {
    throw new DataError('there is no such file', { where: file, next: 'Name a text file with a prompt on each line.' });
  }
  const { promptLines } = await import('../data/rows.js');
  const prompts = promptLines(readFileSync(file), file).map(({ prompt }) => prompt);
  if (prompts.length === 0) {
    throw new DataError('the file holds no prompt', { where: file, next: 'Write a prompt on each line.' });
  }
  return { prompts, single: false };
}

async function openEnhancer(args: Arguments): Promise<Enhancer> {
  const [run, model] = [text(args, 'run'), text(args, 'model')];
  if ((run === '') === (model === '')) {
    throw new UsageError(
      `found ${run === '' ? 'neither --run nor --model' : 'both --run and --model'}; allowed: one of the two`,
      {
        next: 'Name a trained run with --run, or a language model as it is with --model.',
      },
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
  const paths = findRun(run, expDir === '' ? undefined : expDir);
  const record = must(readRecord(paths), 'the record of a run');
  const { settings } = recordedConfig(paths, record, { trust: flag(args, 'trust') });
  const checkpoint = latestWhole(paths);
  if (checkpoint === null) {
    throw new RunError('the run has no whole checkpoint', { where: paths.dir, next: 'Train it further first.' });
  }
  const resolveRun = runResolver(dirname(paths.dir), () => record);
  return openRunEnhancer(settings, checkpoint.dir, { ...options, resolveRun });
}

function isHubId(model: string): boolean {
  return /^[\w.-]+\/[\w.-]+$/.test(model) && !existsSync(model);
}
