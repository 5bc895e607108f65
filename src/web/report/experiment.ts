/** The report of an experiment: the best cell, its difference from the reference, and all results. */
import { basename } from 'node:path';
import { RunError } from '../../core/errors.js';
import { CLEAR_ERRORS, significanceOf } from '../../core/estimate.js';
import { readRecord } from '../../run/record.js';
import type { ExperimentReport, ExperimentRun } from '../../run/report/experiment.js';
import { showScale, signedEstimate } from '../../run/report/numbers.js';
import { TIME_PARTS, type RunReport } from '../../run/report/read.js';
import {
  baselineOf,
  cellName,
  resultCaption,
  resultRows,
  showSpread,
  verdictOf,
  type PairedDifference,
  type ResultCell,
  type Results,
  type Verdict,
} from '../../run/report/results.js';
import type { WireBlock, WireFact, WireReport } from '../wire.js';
import { reportCurves } from '../curves.js';
import * as parts from './parts.js';
import { code, NONE, paragraph, quiet, table } from './parts.js';

/** A cell of the table with all its runs. */
interface Cell {
  readonly cell: ResultCell;
  readonly name: string;
  readonly runs: readonly ExperimentRun[];
}

/** The report of an experiment. It never raises for problems of a run. The page shows them instead. */
export async function experimentReport(report: ExperimentReport): Promise<WireReport> {
  const { record, results, runs } = report;
  const cells = results.cells.map((cell): Cell => {
    const names = new Set(cell.runs.map(({ run_name }) => run_name));
    return { cell, name: cellName(cell, record.experiment), runs: runs.filter(({ run_name }) => names.has(run_name)) };
  });
  const groups = cells.map(({ name, runs: of }) => ({
    label: name,
    runs: of.map(({ lines }) => lines).filter((one) => one.length > 0),
  }));
  const verdict = verdictOf(results);
  const base = baseOf(report, cells, verdict);
  const images = new parts.ReportImages();
  const settings = base === null ? null : settingsOf(base);
  const timed = cells.map(({ name, runs: of }) => ({ label: name, seconds: meanSeconds(of) }));
  return {
    heading: record.experiment,
    about: [`${countsOf(runs)} ·`, code(record.file)],
    run: null,
    facts: facts(report, base, verdict),
    notice: parts.notice('Some results are missing', problemsOf(report)),
    leading: results.metric,
    scale: results.scale === null ? null : showScale(results.scale),
    changes: null,
    curves: reportCurves(
      groups.filter((group) => group.runs.length > 0),
      results.metric,
    ),
    sections: [
      { title: 'Results', blocks: resultBlocks(results) },
      { title: 'Different settings', blocks: [cellDifferences(cells, results)] },
      { title: 'Curves', blocks: [{ kind: 'curves' }] },
      { title: 'Time', blocks: [parts.times(timed)] },
      {
        title: 'Hack alarms',
        blocks: parts.alarms(runs.map(({ run_name, report: one }) => ({ run: run_name, alarms: one?.alarms ?? [] }))),
      },
      { title: 'Contact sheets', blocks: await sheets(images, cells, base, verdict) },
      ...(settings === null ? [] : [{ title: 'Settings', blocks: [settings] }]),
      { title: 'Runs', blocks: [runTable(runs)] },
    ],
    images: images.addresses,
  };
}

/** The reference of the best cell: its baseline, or the second best cell if there is no baseline. */
function baseOf({ results }: ExperimentReport, cells: readonly Cell[], verdict: Verdict | null): Cell | null {
  const own = verdict === null ? null : baselineOf(verdict.winner, results);
  const base = own ?? results.cells.find((cell) => cell.is_baseline) ?? verdict?.against ?? results.cells[0];
  return cells.find(({ cell }) => cell === base) ?? null;
}

function facts({ record, results }: ExperimentReport, base: Cell | null, verdict: Verdict | null): WireFact[] {
  const axes = axesOf(record.cells);
  const shown = (cell: ResultCell): string => `${showSpread(cell.before)} → ${showSpread(cell.after)}`;
  const config = record.base_file === undefined ? null : basename(record.base_file);
  const named = base !== null && results.cells.some((cell) => cell.is_baseline);
  return [
    {
      name: 'Base',
      value: named
        ? base.name
        : record.base_axis === null
          ? `${config ?? 'one config'}`
          : `set by the axis ${record.base_axis}`,
      more: named ? `${shown(base.cell)}${config === null ? '' : ` · ${config}`}` : 'no baseline cell',
    },
    {
      name: axes.length === 1 ? 'Axis' : 'Axes',
      value: axes.map(([axis, values]) => `${axis} (${values.length})`).join(' × '),
      more: axes.map(([axis, values]) => `${axis}: ${values.join(', ')}`).join(' · '),
    },
    verdict === null
      ? {
          name: 'Winner',
          value: results.incomparable === null ? 'none yet' : 'none',
          more: capitalized(results.incomparable ?? resultCaption(results)),
        }
      : winnerFact(verdict, cellName(verdict.winner, record.experiment), shown(verdict.winner), results.greedy_fell),
    differenceFact(verdict, results),
  ];
}

/** The best cell is a winner only if its difference exceeds the noise. */
function winnerFact(verdict: Verdict, name: string, shown: string, fallen: readonly string[]): WireFact {
  const warning = fallen.length === 0 ? '' : ` · worse greedy answers in ${fallen.join(', ')}`;
  const numbers = `${shown}${warning}`;
  if (isNoise(verdict)) {
    return { name: 'Winner', value: 'no clear winner', more: `${name} has the best mean: ${numbers}` };
  }
  return { name: standingOf(verdict), value: name, more: numbers };
}

function isNoise({ difference }: Verdict): boolean {
  return difference !== null && significanceOf(difference) === 'noise';
}

/** The label of the best cell. */
function standingOf(verdict: Verdict): 'Winner' | 'Best mean' {
  const { against, difference } = verdict;
  const isKnown = against === null || (difference !== null && difference.stderr !== null);
  return isKnown && !isNoise(verdict) ? 'Winner' : 'Best mean';
}

function differenceFact(verdict: Verdict | null, { experiment, incomparable }: Results): WireFact {
  const name = 'Paired difference ± standard error';
  if (incomparable !== null) return { name, value: NONE, more: 'The cells cannot be compared.' };
  if (verdict === null || verdict.against === null) {
    return { name, value: NONE, more: 'There is no other cell to compare with.' };
  }
  const { difference, against } = verdict;
  const than = `${verdict.to_baseline ? 'against the baseline' : 'against the second best,'} ${cellName(against, experiment)}`;
  if (difference === null) return { name, value: NONE, more: `${than}: no seed finished in both cells` };
  const { n, over } = difference;
  return {
    name,
    value: signedEstimate(difference),
    more: `${than}, ${n} ${over ?? (n === 1 ? 'pair' : 'pairs')}. ${significanceInWords(difference)}`,
  };
}

/** Explains the significance of a difference. */
function significanceInWords({ mean, stderr, n }: PairedDifference): string {
  if (stderr === null) return 'A single pair has no standard error.';
  const errors = Math.abs(mean) / stderr;
  if (stderr === 0) return 'All pairs have the same difference.';
  const few = n < 5 ? '. With so few pairs the standard error itself is uncertain' : '';
  return `${errors.toFixed(1)} standard errors: ${errors < CLEAR_ERRORS ? 'within noise' : 'beyond noise'}${few}.`;
}

function axesOf(cells: ExperimentReport['record']['cells']): [string, string[]][] {
  const names = [...new Set(cells.flatMap(({ axes }) => Object.keys(axes)))];
  return names.map((axis) => [axis, [...new Set(cells.flatMap(({ axes }) => axes[axis] ?? []))]]);
}

function countsOf(runs: readonly ExperimentRun[]): string {
  const counts = new Map<string, number>();
  for (const { outcome } of runs) counts.set(outcome, (counts.get(outcome) ?? 0) + 1);
  const done = counts.get('finished') ?? 0;
  counts.delete('finished');
  const others = [...counts].map(([outcome, count]) => `, ${count} ${outcome}`).join('');
  return `${done} of ${runs.length} runs finished${others}`;
}

function problemsOf({ runs }: ExperimentReport): string[] {
  return runs.flatMap(({ run_name, problem, status }) => {
    if (problem !== null) return [`${run_name}: ${problem}`];
    return status === null ? [`${run_name}: not started, or its folder was removed`] : [];
  });
}

function resultBlocks(results: Results): WireBlock[] {
  const { titles, rows, leftColumns } = resultRows(results);
  const perSeed = results.cells.some(({ runs }) => runs.length > 1);
  return [
    table('Results', { titles, rows, numbers_from: leftColumns }),
    ...(perSeed ? [seedTable(results)] : []),
    paragraph(quiet(`${capitalized(resultCaption(results))}.`)),
  ];
}

function seedTable({ cells, experiment }: Results): WireBlock {
  const rows = cells.flatMap((cell) =>
    cell.runs.map(({ run_name, seed, outcome, before, after }) => [
      cellName(cell, experiment),
      seed ?? NONE,
      run_name,
      outcome,
      before === null ? NONE : before.toFixed(3),
      after === null ? NONE : after.toFixed(3),
    ]),
  );
  return parts.folded('Every seed', {
    titles: ['cell', 'seed', 'run', 'state', 'before', 'after'],
    rows,
    numbers_from: 4,
  });
}

/** Uses the first seed of each cell. Settings that depend on the seed do not distinguish cells and are left out. */
function cellDifferences(cells: readonly Cell[], results: Results): WireBlock {
  /** A cell's value of a key: from its differences, else from its settings, else from its baseline. */
  const valueOf = ({ cell, runs }: Cell, key: string): unknown => {
    const [first] = runs;
    if (first !== undefined && Object.hasOwn(first.cell.differs, key)) return first.cell.differs[key];
    const own = first?.settings?.(key);
    const base = baselineOf(cell, results);
    const other = base === cell ? undefined : cells.find((one) => one.cell === base);
    return own !== undefined || other === undefined ? own : valueOf(other, key);
  };
  const keys = [...new Set(cells.flatMap(({ runs }) => Object.keys(runs[0]?.cell.differs ?? {})))]
    .filter((key) => new Set(cells.map((cell) => JSON.stringify(valueOf(cell, key)))).size > 1)
    .sort();
  if (keys.length === 0) return paragraph('None in the records.');
  const label = 'Different settings';
  return table(
    label,
    parts.differences(
      cells.map(({ name }) => name),
      keys.map((key) => [key, ...cells.map((cell) => valueOf(cell, key))] as const),
    ),
  );
}

function meanSeconds(runs: readonly ExperimentRun[]): RunReport['seconds_per_iteration'] {
  const all = runs.flatMap(({ report }) => (report === null ? [] : [report.seconds_per_iteration]));
  const mean = (part: keyof RunReport['seconds_per_iteration']): number | null => {
    const values = all.flatMap((one) => one[part] ?? []);
    return values.length === 0 ? null : values.reduce((sum, value) => sum + value, 0) / values.length;
  };
  return Object.fromEntries(TIME_PARTS.map((part) => [part, mean(part)])) as RunReport['seconds_per_iteration'];
}

/** Contact sheets and answers of the best cell and its reference, one seed each. */
async function sheets(
  images: parts.ReportImages,
  cells: readonly Cell[],
  base: Cell | null,
  verdict: Verdict | null,
): Promise<WireBlock[]> {
  const winner = cells.find(({ cell }) => cell === verdict?.winner);
  const blocks: WireBlock[] = [];
  const other = cells.find(({ cell }) => cell === verdict?.against) ?? base;
  for (const cell of new Set([winner, other])) {
    const run = cell?.runs.find(({ report }) => report !== null);
    if (cell === undefined || cell === null || run === undefined) continue;
    const standing = cell === winner && verdict !== null ? standingOf(verdict) : 'Compared with';
    const title = `${standing}: ${cell.name} (${run.run_name})`;
    const answers = parts.answers(run.report?.answers ?? []);
    blocks.push(...(await images.sheets(title, run.paths)), ...(answers === null ? [] : [answers]));
  }
  return blocks.length === 0 ? [paragraph(quiet('No run has started.'))] : blocks;
}

function settingsOf({ name, runs }: Cell): WireBlock | null {
  for (const { paths } of runs) {
    try {
      const record = readRecord(paths);
      if (record !== null) return parts.allSettings(`All settings of ${name} (${paths.runName})`, record.settings);
    } catch (error) {
      // The page shows the reason above, with the run's name.
      if (!(error instanceof RunError)) throw error;
    }
  }
  return null;
}

function runTable(runs: readonly ExperimentRun[]): WireBlock {
  return table('Runs', {
    titles: ['run', 'state', 'iteration', 'why'],
    rows: runs.map(({ run_name, outcome, status, cell }) => [
      run_name,
      outcome,
      status === null ? NONE : `${status.iteration}/${status.num_iterations}`,
      cell.refused ?? status?.reason ?? '',
    ]),
  });
}

function capitalized(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
