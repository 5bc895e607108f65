/** The report of an experiment as one file: what won by how much, and everything that led there. */
import { basename } from 'node:path';
import { capitalised } from './words.js';
import type { ExperimentReport, ExperimentRun } from '../experiment.js';
import { readRecord } from '../../record.js';
import { RunError } from '../../../core/errors.js';
import {
  baselineOf,
  verdictOf,
  type PairedDifference,
  type ResultCell,
  type Results,
  type Verdict,
} from '../results.js';
import { cellName, resultCaption, resultRows, showSpread } from '../results_text.js';
import { signedEstimate } from '../numbers.js';
import { TIME_PARTS, type RunReport } from '../read.js';
import { curveFigures, leadingFigure, type Group } from './figures.js';
import { html, page, type Content, type Markup } from './markup.js';
import {
  alarmTable,
  answerTable,
  differencesTable,
  factCards,
  notice,
  settingsDetails,
  sheetSection,
  table,
  timeSplit,
  type Fact,
} from './sections.js';

/** A cell of the table with the runs that it was made of, whatever became of them. */
interface Cell {
  readonly cell: ResultCell;
  readonly name: string;
  readonly runs: readonly ExperimentRun[];
}

/** Makes the page. Nothing is raised for what is wrong with a run: the page says it. */
export async function experimentPage(report: ExperimentReport): Promise<string> {
  const { record, results, runs } = report;
  const cells = results.cells.map((cell): Cell => {
    const names = new Set(cell.runs.map(({ run_name }) => run_name));
    return { cell, name: cellName(cell, record.experiment), runs: runs.filter(({ run_name }) => names.has(run_name)) };
  });
  const groups = cells
    .map(({ name, runs: of }): Group => ({
      label: name,
      runs: of.map(({ lines }) => lines).filter((one) => one.length > 0),
    }))
    .filter((group) => group.runs.length > 0);
  const verdict = verdictOf(results);
  const base = baseOf(report, cells, verdict);
  const body = html` <h1>${record.experiment}</h1>
    <p class="muted">${countsOf(runs)} · <code>${record.file}</code></p>
    ${factCards(facts(report, base, verdict))} ${notice('Not all of it can be shown', problemsOf(report))}
    ${leadingFigure(groups, results.metric)}
    <h2>Results</h2>
    ${resultTable(results)}
    <p class="muted">${capitalised(resultCaption(results))}.</p>
    <h2>What the cells differ in</h2>
    ${cellDifferences(cells)}
    <h2>Curves</h2>
    ${curveFigures(groups, results.metric)}
    <h2>Time</h2>
    ${timeSplit(cells.map(({ name, runs: of }) => ({ label: name, seconds: meanSeconds(of) })))}
    <h2>Hack alarms</h2>
    ${alarmTable(runs.map(({ run_name, report: one }) => ({ run: run_name, alarms: one?.alarms ?? [] })))}
    <h2>Contact sheets</h2>
    ${await sheets(cells, base, verdict)} ${base === null ? null : settingsOf(base)}
    <h2>Runs</h2>
    ${runTable(runs)}`;
  return page(`${record.experiment}: report`, body);
}

/** The winner's baseline cell; without one the second best, which the winner is compared with. */
function baseOf({ results }: ExperimentReport, cells: readonly Cell[], verdict: Verdict | null): Cell | null {
  const own = verdict === null ? null : baselineOf(verdict.winner, results);
  const base = own ?? results.cells.find((cell) => cell.is_baseline) ?? verdict?.against ?? results.cells[0];
  return cells.find(({ cell }) => cell === base) ?? null;
}

function facts({ record, results }: ExperimentReport, base: Cell | null, verdict: Verdict | null): Fact[] {
  const axes = axesOf(record.cells);
  const shown = (cell: ResultCell): Content => `${showSpread(cell.before)} → ${showSpread(cell.after)}`;
  const config = record.base_file === undefined ? null : basename(record.base_file);
  const named = base !== null && results.cells.some((cell) => cell.is_baseline);
  return [
    {
      name: 'Base',
      value: named
        ? base.name
        : record.base_axis === null
          ? `${config ?? 'one config'}, no baseline named`
          : `given by the axis ${record.base_axis}`,
      more: named ? [shown(base.cell), config === null ? null : ` · ${config}`] : 'no cell is named as the baseline',
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
          more: capitalised(results.incomparable ?? resultCaption(results)),
        }
      : { name: 'Winner', value: cellName(verdict.winner, record.experiment), more: shown(verdict.winner) },
    differenceFact(verdict, results),
  ];
}

function differenceFact(verdict: Verdict | null, { experiment, incomparable }: Results): Fact {
  const name = 'Paired difference ± standard error';
  if (incomparable !== null) return { name, value: '–', more: 'The cells cannot be compared.' };
  if (verdict === null || verdict.against === null) {
    return { name, value: '–', more: 'There is nothing to compare with.' };
  }
  const { difference, against } = verdict;
  const than = `${verdict.to_baseline ? 'against the baseline' : 'against the second best,'} ${cellName(against, experiment)}`;
  if (difference === null) return { name, value: '–', more: `${than}: no seed that both have finished` };
  const { n, over } = difference;
  return {
    name,
    value: signedEstimate(difference),
    more: `${than}; ${n} ${over ?? (n === 1 ? 'pair' : 'pairs')}. ${weight(difference)}`,
  };
}

/** What such a difference is worth. */
function weight({ mean, stderr, n }: PairedDifference): string {
  if (stderr === null) return 'A single pair has no standard error.';
  const errors = Math.abs(mean) / stderr;
  if (stderr === 0) return 'All pairs agree exactly.';
  const few = n < 5 ? ', and so few pairs make the error itself uncertain' : '';
  return `${errors.toFixed(1)} standard errors: ${errors < 2 ? 'no more than noise may give' : 'more than noise usually gives'}${few}.`;
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
    return status === null ? [`${run_name}: it has no folder; it was not begun, or was removed`] : [];
  });
}

function resultTable(results: Results): Markup {
  const { titles, rows, leftColumns } = resultRows(results);
  const perSeed = results.cells.some(({ runs }) => runs.length > 1);
  return html`${table(titles, rows, leftColumns)}${perSeed ? seedTable(results) : null}`;
}

function seedTable({ cells, experiment }: Results): Markup {
  const rows = cells.flatMap((cell) =>
    cell.runs.map(({ run_name, seed, outcome, before, after }) => [
      cellName(cell, experiment),
      seed ?? '–',
      run_name,
      outcome,
      before === null ? '–' : before.toFixed(3),
      after === null ? '–' : after.toFixed(3),
    ]),
  );
  return html`<details>
    <summary>Every seed</summary>
    ${table(['cell', 'seed', 'run', 'state', 'before', 'after'], rows, 4)}
  </details>`;
}

/** Of each cell its first seed stands for all: seeds differ in what the seed sets, which is left out where all cells share it. */
function cellDifferences(cells: readonly Cell[]): Markup {
  const rows = cells.map(({ name, runs }) => ({ name, differs: runs[0]?.cell.differs ?? {} }));
  const keys = [...new Set(rows.flatMap(({ differs }) => Object.keys(differs)))]
    .filter((key) => new Set(rows.map(({ differs }) => JSON.stringify(differs[key]))).size > 1)
    .sort();
  if (keys.length === 0) return html`<p>In nothing that is recorded.</p>`;
  return differencesTable(
    rows.map(({ name }) => name),
    keys.map((key) => [key, ...rows.map(({ differs }) => differs[key])] as const),
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

/** Of the winner and of what it is compared with, a seed each. */
async function sheets(cells: readonly Cell[], base: Cell | null, verdict: Verdict | null): Promise<Markup> {
  const winner = cells.find(({ cell }) => cell === verdict?.winner);
  const shown = [...new Set([winner, base])].flatMap((cell) => {
    const run = cell?.runs.find(({ report }) => report !== null);
    return cell === undefined || cell === null || run === undefined ? [] : [{ cell, run }];
  });
  if (shown.length === 0) return html`<p class="muted">No run has begun.</p>`;
  const sections = await Promise.all(
    shown.map(async ({ cell, run }) => {
      const words = answerTable(run.report?.answers ?? []);
      return html`${await sheetSection(`${cell === winner ? 'Winner' : 'Compared with'}: ${cell.name} (${run.run_name})`, run.paths)}${words}`;
    }),
  );
  return html`${sections}`;
}

function settingsOf({ name, runs }: Cell): Markup | null {
  for (const { paths } of runs) {
    try {
      const record = readRecord(paths);
      if (record !== null) {
        return html`<h2>Settings</h2>
          ${settingsDetails(`All settings of ${name} (${paths.runName})`, record.settings)}`;
      }
    } catch (error) {
      // Why it cannot be read stands above, with the run's name.
      if (!(error instanceof RunError)) throw error;
    }
  }
  return null;
}

function runTable(runs: readonly ExperimentRun[]): Markup {
  return table(
    ['run', 'state', 'iteration', 'why'],
    runs.map(({ run_name, outcome, status, cell }) => [
      run_name,
      outcome,
      status === null ? '–' : `${status.iteration}/${status.num_iterations}`,
      cell.refused ?? status?.reason ?? '',
    ]),
  );
}
