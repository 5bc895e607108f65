/** The published numbers of a benchmark, from the records of an evaluation whose reward is that benchmark. */
import { existsSync, statSync } from 'node:fs';
import { DataError, RunError, must } from '../../core/errors.js';
import { writeFileAtomic } from '../../core/files.js';
import { grouped } from '../../core/grouped.js';
import { formatTable, type Column } from '../../core/terminal.js';
import { readRows, type Row } from '../../data/rows.js';
import {
  commonDifferences,
  type Benchmark,
  type BenchmarkAnswer,
  type BenchmarkTable,
} from '../../rewards/benchmarks/benchmark.js';
import { benchmarks, type BenchmarkName } from '../../rewards/benchmarks/table.js';
import { ownParts, worstParts } from '../../rewards/terms/judged/benchmark_term.js';
import { parseHeldOutKey, readRecordedEpisodes, type RecordedEpisode } from '../episodes.js';
import { encodeLine, readLines } from '../journal.js';
import type { RunPaths } from '../paths.js';

/** A benchmark's settings: those of its term. */
export interface BenchmarkChoice {
  readonly name: BenchmarkName;
  readonly folder: string;
}

export interface BenchmarkReport {
  readonly benchmark: BenchmarkName;
  readonly title: string;
  readonly repository: string;
  readonly judge: {
    /** The judge of the published numbers. */
    readonly published: string;
    /** The models that answered, according to their replies. */
    readonly models: readonly string[];
    /** When the last answer was recorded. Null without answers. */
    readonly until: string | null;
  };
  /** How the numbers may differ from published ones. */
  readonly differences: readonly string[];
  /** The tables by sampling mode: `sampled`, `greedy`. */
  readonly tables: Readonly<Record<string, readonly BenchmarkTable[]>>;
}

/**
 * Reads the evaluation at `iteration` and writes the report to `benchmark.json` in its folder. `lists` are the benchmark's files of rows. Raises
 * RunError for an evaluation without records, and DataError for a row that is not in the lists.
 */
export async function benchmarkReport(
  { paths, iteration }: { readonly paths: RunPaths; readonly iteration: number },
  choice: BenchmarkChoice,
  lists: readonly string[],
): Promise<BenchmarkReport> {
  const benchmark = benchmarks[choice.name] as unknown as Benchmark;
  const file = paths.heldOutEpisodes(iteration);
  if (!existsSync(file)) throw new RunError('no evaluation in this folder', { where: paths.dir });
  const rows = await rowsById(lists);
  const episodes = grouped(readRecordedEpisodes(file), ({ key }) => parseHeldOutKey(key)?.sampling ?? '');
  const tables = [...episodes].map(([sampling, own]): [string, readonly BenchmarkTable[]] => [
    sampling,
    benchmark.tables(
      own.map((episode) => answerOf(benchmark, choice, rows, episode)),
      choice as never,
    ),
  ]);
  const report: BenchmarkReport = {
    benchmark: choice.name,
    title: benchmark.title,
    repository: benchmark.repository,
    judge: { published: benchmark.judge, ...judgesOf(paths) },
    differences: [...commonDifferences, ...benchmark.differences],
    tables: Object.fromEntries(tables),
  };
  writeFileAtomic(paths.benchmark, `${encodeLine(report).line}\n`);
  return report;
}

async function rowsById(lists: readonly string[]): Promise<ReadonlyMap<string, Row>> {
  const rows = new Map<string, Row>();
  for (const list of lists) {
    const source = await readRows(list);
    for (let i = 0; i < source.length; i++) rows.set(source.id(i), source.read(i));
  }
  return rows;
}

function answerOf(
  benchmark: Benchmark,
  choice: BenchmarkChoice,
  rows: ReadonlyMap<string, Row>,
  { sample, outcome }: RecordedEpisode,
): BenchmarkAnswer {
  const row = rows.get(sample);
  if (row === undefined) {
    throw new DataError(`the answer to ${sample} was recorded, but no list has this row`, {
      where: choice.folder,
      next: 'Restore the files of the benchmark, and repeat the command.',
    });
  }
  switch (outcome.kind) {
    case 'scored':
      return { row, parts: ownParts(choice.name, outcome.parts) };
    case 'zero_by_rule':
      return { row, parts: worstParts(benchmark.questions(row, choice as never)) };
    case 'unscored':
      return { row, parts: null };
  }
}

function judgesOf(paths: RunPaths): Pick<BenchmarkReport['judge'], 'models' | 'until'> {
  const file = paths.judgements;
  if (!existsSync(file)) return { models: [], until: null };
  const models = readLines(file).flatMap(({ model, problem }) =>
    problem === null && typeof model === 'string' ? [model] : [],
  );
  return { models: [...new Set(models)].sort(), until: statSync(file).mtime.toISOString() };
}

/** The report for people. */
export function benchmarkText({ title, judge, differences, tables }: BenchmarkReport, width: number): string {
  const shown = Object.entries(tables).flatMap(([sampling, own]) =>
    own.map((table) => `${table.title} (${sampling})\n${tableText(table, width)}`),
  );
  const { models, until, published } = judge;
  const asked = models.length === 0 ? 'none' : models.join(', ');
  const date = until === null ? '' : `, ${must(until.split('T').at(0), 'a date')}`;
  return [
    ...shown,
    `judge      ${asked}${date} (published: ${published})`,
    [`${title}: differences from published numbers`, ...differences.map((one) => `  - ${one}`)].join('\n'),
  ].join('\n\n');
}

function tableText({ columns, lines }: BenchmarkTable, width: number): string {
  const right = (title: string): Column => ({ title, align: 'right' });
  return formatTable(
    [{ title: '' }, ...columns.map(right), right('n'), right('unscored')],
    lines.map(({ name, values, n, unscored }) => [
      name,
      ...values.map((value) => (value === null ? '\u2013' : showNumber(value))),
      String(n),
      String(unscored),
    ]),
    { width },
  );
}

/** Ratings have no decimals, and scores have three, as the published scripts print them. */
function showNumber(value: number): string {
  return Math.abs(value) >= 100 ? value.toFixed(0) : value.toFixed(3);
}
