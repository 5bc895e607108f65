/** The report of a run. */
import { changedSettings, readRecord, type RunRecord } from '../../run/record.js';
import { showEstimate } from '../../core/estimate.js';
import type { ComparedRun } from '../../run/report/compare.js';
import { examCaption, examSentences, type ExamSummary } from '../../run/report/exam.js';
import {
  heldOutRows,
  showHeldOut,
  showLoss,
  showScale,
  showSpeed,
  signed,
  signedEstimate,
  signedLoss,
} from '../../run/report/numbers.js';
import { headlineNumber, type RunReport } from '../../run/report/read.js';
import { showSpent } from '../../run/spending.js';
import type { WireBlock, WireContent, WireFact, WireReport } from '../wire.js';
import { reportCurves } from '../curves.js';
import * as parts from './parts.js';
import { code, heading, NONE, paragraph, quiet, table } from './parts.js';

/** The report of a run. Raises RunError for an unreadable record. */
export async function runReport({ paths, report, lines }: ComparedRun): Promise<WireReport> {
  const record = readRecord(paths);
  const { state, iteration, num_iterations, reason, heldout } = report;
  const images = new parts.ReportImages();
  const answers = parts.answers(report.answers);
  const changes = await images.changes(paths);
  const sections = [
    { title: 'Held-out', blocks: [heldOutTable(report)] },
    { title: 'Settings', blocks: settings(record) },
    { title: 'Curves', blocks: [{ kind: 'curves' } as const] },
    { title: 'Time', blocks: [parts.times([{ label: report.run_name, seconds: report.seconds_per_iteration }])] },
    ...(report.spent === null
      ? []
      : [{ title: 'Training server', blocks: [paragraph(`Spent: ${showSpent(report.spent)}`)] }]),
    ...(report.exam === null ? [] : [{ title: 'Exam of the judge', blocks: exam(report.exam) }]),
    { title: 'Hack alarms', blocks: parts.alarms([{ run: report.run_name, alarms: report.alarms }]) },
    {
      title: 'Contact sheets',
      blocks: await images.sheets(`Held-out answers of ${report.run_name}`, paths),
    },
    ...(answers === null ? [] : [{ title: 'Held-out answers', blocks: [answers] }]),
    { title: 'Attempts', blocks: [attempts(record)] },
  ];
  return {
    heading: report.run_name,
    about: [...(reason === null ? [] : [reason]), code(paths.dir)],
    run: { state, iteration, num_iterations },
    facts: facts(report, record),
    notice: null,
    leading: heldout.metric,
    scale: heldout.scale === null ? null : showScale(heldout.scale),
    changes,
    curves: reportCurves([{ label: report.run_name, runs: [lines] }], heldout.metric),
    sections,
    images: images.addresses,
  };
}

function facts(report: RunReport, record: RunRecord | null): WireFact[] {
  const { heldout, training_reward: reward, speed, seconds_per_iteration: time } = report;
  const { before, after, metric } = heldout;
  const isLoss = metric === 'validation/loss';
  const shown = (value: number | null): string =>
    value === null ? NONE : isLoss ? showLoss(value) : showHeldOut({ mean: value, stderr: null });
  const change = headlineNumber(heldout)?.change;
  const more =
    before === null || after === null
      ? 'fewer than two evaluations'
      : isLoss
        ? signedLoss(after - before)
        : change === undefined
          ? signed(after - before)
          : `${signedEstimate(change)}, paired over ${change.n} prompts`;
  return [
    {
      name: `Held-out ${isLoss ? 'loss' : 'reward'}, before → after`,
      value: `${shown(before)} → ${shown(after)}`,
      more,
    },
    {
      name: reward === null ? 'Training loss' : 'Training reward',
      value:
        reward === null
          ? report.training_loss === null
            ? NONE
            : showLoss(report.training_loss)
          : showEstimate(reward),
      more: reward === null ? 'last iteration' : `mean of the last ${reward.iterations} iterations`,
    },
    {
      name: 'Speed',
      value: time.total === null ? NONE : `${time.total.toFixed(2)} s per iteration`,
      more: speed === null ? null : showSpeed(speed),
    },
    {
      name: 'Alarms',
      value: report.alarms.length === 0 ? 'none' : { text: alarmNames(report), as: 'bad' },
      more: `${Object.values(report.unscored).reduce((sum, count) => sum + count, 0)} unscored episodes, ${report.non_finite} non-finite metrics`,
    },
    {
      name: 'Initialized from',
      value:
        record === null || record.parents.length === 0
          ? 'no other run'
          : record.parents.map(({ run }) => String(run)).join(', '),
      more: record?.fork === undefined ? null : `fork of ${record.fork.run} at iteration ${record.fork.iteration}`,
    },
  ];
}

/** Names of the alarms, active ones first. */
function alarmNames({ alarms }: RunReport): string {
  const order = [...alarms].sort((a, b) => Number(b.active) - Number(a.active));
  return [...new Set(order.map(({ name }) => name))].join(', ');
}

function heldOutTable({ heldout }: RunReport): WireBlock {
  const rows = heldOutRows(heldout).map(({ label, before, after, change }) => [
    label,
    before ?? NONE,
    after ?? NONE,
    change ?? '',
  ]);
  if (rows.length === 0) return paragraph(quiet('No held-out evaluation yet.'));
  const at = (iteration: number | null): string => (iteration === null ? '' : ` (iteration ${iteration})`);
  const { before, after } = heldout.iterations;
  return table('Held-out', {
    titles: ['', `before${at(before)}`, `after${at(after)}`, 'change'],
    rows,
    numbers_from: 1,
  });
}

function settings(record: RunRecord | null): WireBlock[] {
  if (record === null) return [paragraph(quiet('The run has no record.'))];
  const { config } = record;
  const changed = changedSettings(record).map(
    ({ key, before, after, iteration }) => [key, before, after, `iteration ${iteration + 1}`] as const,
  );
  return [
    config === undefined
      ? paragraph('The settings did not come from a config file.')
      : paragraph(
          'Made of',
          code(config.file),
          ...config.overlays.flatMap((file) => ['with', code(file)]),
          ...config.sets.map((set) => code(`--set ${set}`)),
        ),
    ...(changed.length === 0
      ? []
      : [
          heading('Changed during training'),
          table('Changed during training', parts.differences(['before', 'after', 'since'], changed)),
        ]),
    parts.allSettings('All settings', record.settings),
  ];
}

function exam(found: ExamSummary): WireBlock[] {
  return [paragraph(`${examCaption(found)}. ${examSentences(found)}`), paragraph(found.folder)];
}

function attempts(record: RunRecord | null): WireBlock {
  if (record === null || record.attempts.length === 0) return paragraph(quiet('None is recorded.'));
  return table('Attempts', {
    titles: ['attempt', 'started', 'from iteration', 'host', 'devices', 'editrl', 'command'],
    rows: record.attempts.map((one): WireContent[] => [
      String(one.attempt),
      one.started_at,
      String(one.from_iteration),
      one.host,
      one.devices.length === 0 ? 'CPU' : one.devices.join(', '),
      one.versions['editrl'] ?? NONE,
      code(one.command.join(' ')),
    ]),
    long: true,
  });
}
