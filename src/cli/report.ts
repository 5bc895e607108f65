/** `editrl report RUN|EXPERIMENT`: shows the results of a run or an experiment from its records. */
import { existsSync, statSync } from 'node:fs';
import { extname, join, resolve } from 'node:path';
import { RunError, UsageError } from '../core/errors.js';
import { writeFileAtomic } from '../core/files.js';
import { encodeLine } from '../run/journal.js';
import { readMetrics, type MetricsLine } from '../run/metrics.js';
import type { RunPaths } from '../run/paths.js';
import { writeCurve } from '../run/report/curve.js';
import { readExperimentReport, type ExperimentReport } from '../run/report/experiment.js';
import { findReported, type Found } from '../run/find.js';
import { readRun } from '../run/report/read.js';
import { formatReport } from '../run/report/text.js';
import { outputWidth, printError, printJson, printLine, formatTable, styled } from './shared/output.js';
import {
  changesOf,
  expDirOption,
  flag,
  jsonOption,
  overlayOption,
  setOption,
  text,
  texts,
  type Action,
  type Arguments,
} from './shared/verb.js';
import { resultCaption, resultRows, type Results } from '../run/report/results.js';

import { wrap } from '../core/terminal.js';

/** Prints tables, or one JSON document with `--json`, or writes a page with `--html`. For a single run it also redraws the curve. */
export const reportVerb: Action = {
  positionals: '<run>',
  build: (yargs) =>
    yargs
      .positional('run', {
        type: 'string',
        describe: 'run_name, folder of a run, name of a swept experiment, or its file',
      })
      .option('json', jsonOption)
      .option('html', htmlOption)
      .option('with', { ...overlayOption, describe: 'For an experiment file: the --with of the sweep' })
      .option('set', { ...setOption, describe: 'For an experiment file: the --set of the sweep' })
      .option('exp-dir', expDirOption)
      .example('$0 report sft_s__rl_s', 'Held-out reward before and after, and speed')
      .example('$0 report sft_s__rl_s --html', 'One page: report.html in its folder')
      .example('$0 report experiments/earl_table.jsonnet --html table.html', 'The result table of an experiment'),
  run: async (args) => {
    const found = await reportedOf(args);
    return found.kind === 'run' ? reportRun(found.paths, args) : reportExperiment(found, args);
  },
};

/** `--html [FILE]`. */
export const htmlOption = {
  type: 'string',
  describe: 'Write one self-contained page, to this file or the default one',
} as const;

/** The given run or experiment. Raises UsageError for changes to recorded settings, and the errors of the search. */
export async function reportedOf(args: Arguments): Promise<Found> {
  const name = text(args, 'run');
  const isFile = extname(name) === '.jsonnet' || (existsSync(name) && statSync(name).isFile());
  if (isFile) return ofFile(name, args);
  if ([...texts(args, 'with'), ...texts(args, 'set')].length > 0) {
    throw new UsageError('--with and --set do not apply to recorded runs', {
      next: 'Remove them, or name the experiment file.',
    });
  }
  return findReported(name, text(args, 'exp-dir'));
}

/** Finds the experiment or the run of a config file in the folder of its runs. */
async function ofFile(file: string, args: Arguments): Promise<Found> {
  const [{ loadExperiment }, { recordOf }, { RunPaths }] = await Promise.all([
    import('../config/experiment/load.js'),
    import('../launch/sweep/experiment.js'),
    import('../run/paths.js'),
  ]);
  const experiment = await loadExperiment({ file, ...changesOf(args) });
  const [{ config, axes }] = experiment.cells;
  const { base_exp_dir: baseExpDir, run_name } = config.settings;
  if (experiment.cells.length === 1 && Object.keys(axes).length === 0) {
    return { kind: 'run', paths: new RunPaths(baseExpDir, run_name) };
  }
  return { kind: 'experiment', baseExpDir, record: { format: 1, ...recordOf(experiment) } };
}

async function reportRun(paths: RunPaths, args: Arguments): Promise<number> {
  const lines = readMetrics(paths);
  if (lines.length > 0) await drawCurve(paths, lines);
  const report = readRun(paths, lines);
  if (args['html'] !== undefined) {
    const { runFile } = await import('../web/comparison.js');
    return writePage(await runFile({ paths, report, lines }), args, join(paths.dir, 'report.html'));
  }
  if (flag(args, 'json')) printJson(documentOf(report));
  else printLine(formatReport(report, outputWidth()));
  return 0;
}

async function reportExperiment(
  { baseExpDir, record }: Extract<Found, { kind: 'experiment' }>,
  args: Arguments,
): Promise<number> {
  const report = readExperimentReport(baseExpDir, record);
  if (args['html'] !== undefined) {
    const [{ experimentReport }, { reportDocument }] = await Promise.all([
      import('../web/report/experiment.js'),
      import('../web/report/document.js'),
    ]);
    const title = `${record.experiment}: report`;
    const page = reportDocument(title, await experimentReport(report), formatResults(report.results));
    return writePage(page, args, join(baseExpDir, `${record.experiment}.report.html`));
  }
  if (flag(args, 'json')) printJson(experimentDocument(report));
  else printLine(formatResults(report.results));
  for (const { run_name, problem } of report.runs) if (problem !== null) printError(`warning: ${run_name}: ${problem}`);
  return 0;
}

/** The document of `--json`. Non-finite numbers are strings. */
export function documentOf(value: object): Record<string, unknown> {
  return JSON.parse(encodeLine(value).line) as Record<string, unknown>;
}

/** The document of an experiment. */
export function experimentDocument({ record, results, runs }: ExperimentReport): Record<string, unknown> {
  const states = runs.map(({ run_name, outcome, problem }) => ({ run_name, state: outcome, problem }));
  return documentOf({ experiment: record.experiment, runs: states, results });
}

/** Writes a report's page to the file of `--html`, or to the default one, and prints the path. */
export function writePage(page: string, args: Arguments, usual: string): number {
  const path = text(args, 'html') === '' ? usual : text(args, 'html');
  writeFileAtomic(path, page);
  if (flag(args, 'json')) printJson({ html: resolve(path) });
  else printLine(`written: ${path}`);
  return 0;
}

/** Redraws the curve. Only warns on errors, because a report must also work for a read-only run. */
async function drawCurve(paths: RunPaths, lines: readonly MetricsLine[]): Promise<void> {
  try {
    await writeCurve(paths, lines);
  } catch (error) {
    if (!(error instanceof RunError)) throw error;
    printError(`warning: the curve was not redrawn: ${error.toText()}`);
  }
}

/** A caption that explains the numbers, and the table, best first. */
export function formatResults(results: Results): string {
  const { titles, rows, leftColumns } = resultRows(results);
  const columns = titles.map((title, index) => ({
    title,
    align: index < leftColumns ? ('left' as const) : ('right' as const),
  }));
  const caption = wrap(`${styled(results.experiment, 'bold')}: ${resultCaption(results)}`, outputWidth()).join('\n');
  return `${caption}\n\n${formatTable(columns, rows)}`;
}
