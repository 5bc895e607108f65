/** Formats a run's report as a short table for a terminal. */
import { showEstimate } from '../../core/estimate.js';
import { printable } from '../../core/errors.js';
import { alignColumns, formatTable, wrap, type Column } from '../../core/terminal.js';
import { formatChangedSettings } from '../record.js';
import { formatDuration } from '../progress.js';
import type { AlarmSpan } from './alarms.js';
import type { RecordedAnswer } from './answers.js';
import { showBest } from '../chosen_checkpoint.js';
import { showSpent } from '../spending.js';
import { examLines } from './exam.js';
import { heldOutRows, showChange, showHeldOut, showLoss, showScale, showSpeed, signedLoss } from './numbers.js';
import { headlineNumber, LOSS, type RunReport } from './read.js';

/** The report without a final newline. Lines that can be broken are at most `width` columns wide. */
export function formatReport(report: RunReport, width = Infinity): string {
  const blocks = [
    wrap(`${report.run_name}: ${stateLine(report)}`, width),
    heldOutTable(report, width),
    training(report, width),
    answers(report, width),
    report.exam === null ? [] : examLines(report.exam, width),
    alarms(report, width),
    places(report),
    // Printed last, because terminals show the end of the output.
    headline(report, width),
  ];
  return blocks
    .filter((block) => block.length > 0)
    .map((block) => block.join('\n'))
    .join('\n\n');
}

function stateLine(report: RunReport): string {
  const reason = report.reason === null ? '' : ` (${printable(report.reason)})`;
  return `${report.state}, iteration ${report.iteration} of ${report.num_iterations}${reason}`;
}

function heldOutTable({ heldout }: RunReport, width: number): string[] {
  const { scale, iterations } = heldout;
  // The table's title names the scale. Naming it in every row would make the table too wide for a terminal.
  const rows = heldOutRows({ ...heldout, scale: null }).map(({ label, of_set, before, after, change }) => [
    of_set ? `  ${label}` : label,
    before,
    after,
    change,
  ]);
  if (rows.length === 0) return [];
  const at = (when: string, iteration: number | null): string =>
    iteration === null ? when : `${when}, at ${iteration}`;
  const columns: Column[] = [
    { title: scale === null || scale.most === null ? 'held-out' : `held-out: ${showScale(scale)}`, alone: true },
    { title: at('before', iterations.before) },
    { title: at('after', iterations.after) },
    { title: 'change' },
  ];
  return formatTable(columns, rows, { width }).split('\n');
}

/** The result of the run in one line. */
function headline({ heldout }: RunReport, width: number): string[] {
  const { metric, scale, before, after, iterations } = heldout;
  if (metric === null || before === null) return [];
  const isLoss = metric === LOSS;
  const show = isLoss ? showLoss : (mean: number): string => showHeldOut({ mean, stderr: null });
  const name = `held-out ${scale === null ? 'reward' : showScale(scale)}`;
  if (after === null) return wrap(`${name}: ${show(before)} at iteration ${iterations.before}`, width);
  const found = headlineNumber(heldout);
  const change = found === undefined ? signedLoss(after - before) : (showChange(found) ?? '');
  const over = found?.change === undefined ? '' : ` over ${found.change.n} prompts`;
  // There is no change if either number is missing.
  const changeText = Number.isNaN(after - before) ? '' : ` (${change}${over})`;
  return wrap(`${name}: ${show(before)} → ${show(after)}${changeText}`, width);
}

function training(report: RunReport, width: number): string[] {
  const rows: string[][] = [];
  const reward = report.training_reward;
  if (reward !== null) rows.push(['training reward', `${showEstimate(reward)}, last ${reward.iterations} iterations`]);
  else if (report.training_loss !== null) rows.push(['training loss', showLoss(report.training_loss)]);
  const time = report.seconds_per_iteration;
  if (time.total !== null) {
    const parts = Object.entries(time)
      // Leaves out parts that take no time, such as the exchange between processes when there is only one.
      .filter(([part, value]) => part !== 'total' && (value ?? 0) >= 0.005)
      .map(([part, value]) => `${part} ${(value ?? 0).toFixed(2)}`);
    const split = parts.length === 0 ? '' : ` (${parts.join(', ')})`;
    const total = time.total < 100 ? `${time.total.toFixed(2)} s` : formatDuration(time.total);
    rows.push(['time', `${total} per iteration${split}`]);
  }
  if (report.speed !== null) {
    rows.push(['speed', showSpeed(report.speed)]);
  }
  const unscored = Object.entries(report.unscored).filter(([, count]) => count > 0);
  if (unscored.length > 0) rows.push(['unscored', unscored.map(([why, count]) => `${why} ${count}`).join(', ')]);
  if (report.in_training > 0) rows.push(['held out', `${report.in_training} samples are also in the training data`]);
  const best = report.best_checkpoint;
  if (best !== null) rows.push(['best checkpoint', printable(showBest(best))]);
  if (report.spent !== null) rows.push(['spent', printable(showSpent(report.spent))]);
  for (const line of formatChangedSettings(report.changed_settings)) rows.push(['changed', printable(line)]);
  if (report.non_finite > 0) rows.push(['not finite', `${report.non_finite} metrics`]);
  return alignColumns(rows, width);
}

/** Maximum number of characters of an answer on a line. */
const MAX_CHARACTERS = 160;

function answers({ answers: shown }: RunReport, width: number): string[] {
  if (shown.length === 0) return [];
  const blocks = shown.map(({ which, prompt, expected, before, after }) => {
    const rows = [
      [`  ${which}`, '', 'prompt', oneLine(prompt)],
      ...(expected === null ? [] : [['', '', 'expected', oneLine(expected)]]),
      ...(before === null ? [] : answerRows('before', before)),
      ...answerRows(before === null ? 'answer' : 'after', after),
    ];
    return rows;
  });
  return ['held-out answers', ...alignColumns(blocks.flat(), width)];
}

function answerRows(when: string, { score, thought, answer }: RecordedAnswer): string[][] {
  const worth = score === null ? '-' : score.toFixed(3);
  const thinking = thought === null ? [] : [['', '', `${when}, thinking`, oneLine(thought)]];
  return [...thinking, ['', worth, when, oneLine(answer)]];
}

function oneLine(text: string): string {
  const characters = [...printable(text.replace(/\s+/g, ' ').trim())];
  return characters.length <= MAX_CHARACTERS
    ? characters.join('')
    : `${characters.slice(0, MAX_CHARACTERS - 1).join('')}…`;
}

function alarms(report: RunReport, width: number): string[] {
  if (report.alarms.length === 0) return [];
  const until = ({ to, from, active }: AlarmSpan): string =>
    active ? ' (still active)' : to === from ? '' : ` to ${to}`;
  const rows = report.alarms.map((span) => [
    `  ${span.name}`,
    `iteration ${span.from}${until(span)}${span.value === null ? '' : `, ${span.metric} ${span.value.toFixed(3)}`}`,
  ]);
  return ['hack alarms: possible reward hacking, check the answers', ...alignColumns(rows, width)];
}

function places(report: RunReport): string[] {
  const rows = [['run', report.paths.run]];
  if (report.paths.curve !== null) rows.push(['curve', report.paths.curve]);
  if (report.paths.contact_sheet !== null) rows.push(['contact sheet', report.paths.contact_sheet]);
  return alignColumns(rows);
}
