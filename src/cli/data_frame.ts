/** editrl data frame: writes a run's or an experiment's records as parquet files. */
import { UsageError } from '../core/errors.js';
import { findReported } from '../run/report/find.js';
import { printError, printJson, printLine } from './output.js';
import { expDirOption, flag, text, type Action } from './verb.js';

export const frameAction: Action & { readonly summary: string } = {
  summary: "write a run's or an experiment's metrics, episodes and judgements for pandas, polars or DuckDB",
  positionals: '<run>',
  build: (yargs) =>
    yargs
      .positional('run', {
        type: 'string',
        demandOption: true,
        describe: 'a run_name, the folder of a run, or the name of an experiment that was swept',
      })
      .option('parquet', {
        type: 'string',
        describe: "write parquet files into this folder (default: frame in the run's folder, or EXPERIMENT.frame)",
      })
      .option('exp-dir', expDirOption)
      .option('json', { type: 'boolean', default: false, describe: 'print one JSON document, for machines' })
      .example('$0 data frame sft_s__rl_s --parquet', 'metrics.parquet, episodes.parquet and judgements.parquet')
      .example('$0 data frame reward_ablation --parquet table', 'all cells, with columns for run, cell, seed and axes'),
  run: async (args) => {
    if (args['parquet'] === undefined) {
      throw new UsageError('found no form to write; allowed: --parquet, or --parquet FOLDER');
    }
    const found = findReported(text(args, 'run'), text(args, 'exp-dir'));
    const { frameFolder, writeFrame } = await import('../run/frame/write.js');
    const frame = writeFrame(found, text(args, 'parquet') || frameFolder(found));
    for (const { run_name, problem } of frame.left_out) {
      printError(`warning: ${run_name} is left out: ${problem ?? 'it was never begun'}`);
    }
    if (flag(args, 'json')) printJson(frame);
    else {
      for (const { path, rows, columns } of Object.values(frame.tables)) {
        printLine(`written: ${path} (${rows} rows, ${columns.length} columns)`);
      }
    }
    return 0;
  },
};
