/** `editrl report RUN`: what a run learned, from its own records. */
import { RunError } from '../core/errors.js';
import { findRun } from '../run/find.js';
import { encodeLine } from '../run/journal.js';
import { readMetrics, type MetricsLine } from '../run/metrics.js';
import type { RunPaths } from '../run/paths.js';
import { writeCurve } from '../run/report/curve.js';
import { readRun } from '../run/report/read.js';
import { formatReport } from '../run/report/text.js';
import { outputWidth, printError, printJson, printLine } from './output.js';
import { expDirOption, flag, text, type Action } from './verb.js';

/** Draws the learning curve anew and prints the table, or one JSON document with `--json`. */
export const reportVerb: Action = {
  positionals: '<run>',
  build: (yargs) =>
    yargs
      .positional('run', { type: 'string', demandOption: true, describe: 'the run_name, or its folder' })
      .option('json', { type: 'boolean', default: false, describe: 'print one JSON document, for machines' })
      .option('exp-dir', expDirOption)
      .example('$0 report sft_s__rl_s', 'held-out reward before and after, speed, and where its pictures are'),
  run: async (args) => {
    const expDir = text(args, 'exp-dir');
    const paths = findRun(text(args, 'run'), expDir === '' ? undefined : expDir);
    const lines = readMetrics(paths);
    if (lines.length > 0) await drawCurve(paths, lines);
    const report = readRun(paths);
    if (flag(args, 'json')) printJson(JSON.parse(encodeLine(report).line));
    else printLine(formatReport(report, outputWidth()));
    return 0;
  },
};

/** A run that may be read but not written, such as a colleague's, still has its report. */
async function drawCurve(paths: RunPaths, lines: readonly MetricsLine[]): Promise<void> {
  try {
    await writeCurve(paths, lines);
  } catch (error) {
    if (!(error instanceof RunError)) throw error;
    printError(`warning: the curve was not drawn anew: ${error.toText()}`);
  }
}
