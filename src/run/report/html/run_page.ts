/** The report of a run as one file. */
import { readMetrics, type MetricsLine } from '../../metrics.js';
import type { RunPaths } from '../../paths.js';
import { readRecord, type RunRecord } from '../../record.js';
import { heldOutRows } from '../held_out_rows.js';
import { showEstimate, showLoss, showSpeed, signed, signedLoss } from '../numbers.js';
import { readRun, type RunReport } from '../read.js';
import { curveFigures, leadingFigure, type Group } from './figures.js';
import { html, page, type Markup } from './markup.js';
import {
  alarmTable,
  answerTable,
  differencesTable,
  factCards,
  settingsDetails,
  sheetSection,
  table,
  timeSplit,
  type Fact,
} from './sections.js';

/** What a run is part of, where it is a cell of an experiment. */
export interface Membership {
  readonly experiment: string;
  /** Settings that differ from the experiment's base. */
  readonly differs: Readonly<Record<string, unknown>>;
}

/** Makes the page of a run and its metrics. Raises RunError where the run's records cannot be read. */
export async function runPage(
  paths: RunPaths,
  member: Membership | null,
  lines: readonly MetricsLine[] = readMetrics(paths),
): Promise<string> {
  const report = readRun(paths, lines);
  const record = readRecord(paths);
  const groups: Group[] = [{ label: report.run_name, runs: [lines] }];
  const answers = answerTable(report.answers);
  const body = html` <h1>${report.run_name}</h1>
    <p class="muted">${stateOf(report)} · <code>${paths.dir}</code></p>
    ${factCards(facts(report, record))} ${leadingFigure(groups, report.heldout.metric)}
    <h2>Held-out</h2>
    ${heldOutTable(report)}
    <h2>Settings and what they differ in</h2>
    ${settingsSection(record, member)}
    <h2>Curves</h2>
    ${curveFigures(groups, report.heldout.metric)}
    <h2>Time</h2>
    ${timeSplit([{ label: report.run_name, seconds: report.seconds_per_iteration }])}
    <h2>Hack alarms</h2>
    ${alarmTable([{ run: report.run_name, alarms: report.alarms }])}
    <h2>Contact sheets</h2>
    ${await sheetSection('Held-out edits: source, edit, truth, score', paths)}
    ${
      answers === null
        ? null
        : html`<h2>Held-out answers</h2>
            ${answers}`
    }
    <h2>Attempts</h2>
    ${attempts(record)}`;
  return page(`${report.run_name}: report`, body);
}

function stateOf({ state, reason, iteration, num_iterations }: RunReport): string {
  return `${state}, iteration ${iteration} of ${num_iterations}${reason === null ? '' : ` (${reason})`}`;
}

function facts(report: RunReport, record: RunRecord | null): Fact[] {
  const { heldout, training_reward: reward, speed, seconds_per_iteration: time } = report;
  const { before, after, metric } = heldout;
  const isLoss = metric === 'validation/loss';
  const shown = (value: number | null): string => (value === null ? '–' : isLoss ? showLoss(value) : value.toFixed(3));
  const estimates = metric === 'validation/greedy/mean' ? heldout.greedy : heldout.sampled;
  const errors = [estimates.before?.stderr ?? null, estimates.after?.stderr ?? null];
  const more =
    before === null || after === null
      ? 'not evaluated twice yet'
      : `${isLoss ? signedLoss(after - before) : signed(after - before)}${errors.some((error) => error === null) ? '' : ` (standard errors ${errors.map((error) => (error ?? 0).toFixed(3)).join(' and ')})`}`;
  return [
    {
      name: `Held-out ${isLoss ? 'loss' : 'reward'}, before → after`,
      value: `${shown(before)} → ${shown(after)}`,
      more,
    },
    {
      name: 'Training',
      value:
        reward === null
          ? report.training_loss === null
            ? '–'
            : `loss ${showLoss(report.training_loss)}`
          : `reward ${showEstimate(reward)}`,
      more: reward === null ? 'last iteration' : `mean of the last ${reward.iterations} iterations`,
    },
    {
      name: 'Speed',
      value: time.total === null ? '–' : `${time.total.toFixed(2)} s an iteration`,
      more: speed === null ? null : showSpeed(speed),
    },
    {
      name: 'Alarms',
      value: report.alarms.length === 0 ? 'none' : html`<span class="bad">${report.alarms.length}</span>`,
      more: `${Object.values(report.unscored).reduce((sum, count) => sum + count, 0)} episodes unscored, ${report.non_finite} metrics not finite`,
    },
    {
      name: 'Starts from',
      value:
        record === null || record.parents.length === 0
          ? 'no other run'
          : record.parents.map(({ run }) => String(run)).join(', '),
      more: record?.fork === undefined ? null : `a fork of ${record.fork.run} at iteration ${record.fork.iteration}`,
    },
  ];
}

function heldOutTable({ heldout }: RunReport): Markup {
  const rows = heldOutRows(heldout).map(({ label, before, after, change }) => [
    label,
    before ?? '–',
    after ?? '–',
    change ?? '',
  ]);
  if (rows.length === 0) return html`<p class="muted">There was no held-out evaluation yet.</p>`;
  const at = (iteration: number | null): string => (iteration === null ? '' : ` (iteration ${iteration})`);
  const { before, after } = heldout.iterations;
  return table(['', `before${at(before)}`, `after${at(after)}`, 'change'], rows, 1);
}

function settingsSection(record: RunRecord | null, member: Membership | null): Markup {
  if (record === null) return html`<p class="muted">The run has no record.</p>`;
  const { config, settings } = record;
  const made =
    config === undefined
      ? html`<p>They were not read from a config file.</p>`
      : html`<p>
          Made of
          <code>${config.file}</code
          >${config.overlays.map((file) => html` with <code>${file}</code>`)}${config.sets.map((set) => html`, <code>--set ${set}</code>`)}.
        </p>`;
  const changed = record.attempts.flatMap(({ attempt, allowed_changes: changes = [] }) =>
    changes.map(({ key, before, after }) => [key, before, after, `attempt ${attempt}`] as const),
  );
  return html`${made}${member === null ? null : membership(member)}${
    changed.length === 0
      ? null
      : html`<h3>Changed on the way</h3>
          ${differencesTable(['before', 'after', 'since'], changed)}`
  }${settingsDetails('All settings', settings)}`;
}

function membership({ experiment, differs }: Membership): Markup {
  const rows = Object.entries(differs).map(([key, value]) => [key, value] as const);
  if (rows.length === 0) return html`<p>It is the base of the experiment ${experiment}.</p>`;
  return html`<h3>Differs from the base of the experiment ${experiment}</h3>
    ${differencesTable(['here'], rows)}`;
}

function attempts(record: RunRecord | null): Markup {
  if (record === null || record.attempts.length === 0) return html`<p class="muted">None is recorded.</p>`;
  return table(
    ['', 'started', 'from iteration', 'host', 'devices', 'editrl', 'command'],
    record.attempts.map((one) => [
      one.attempt,
      one.started_at,
      one.from_iteration,
      one.host,
      one.devices.length === 0 ? 'CPU' : one.devices.join(', '),
      one.versions['editrl'] ?? '–',
      html`<code>${one.command.join(' ')}</code>`,
    ]),
  );
}
