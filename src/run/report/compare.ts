/** Compares runs: results, paired differences over prompts, and different settings. */
import { settingsDifferences, type Difference, type Side } from '../../config/hash.js';
import { EditrlError, must, printable } from '../../core/errors.js';
import { meanDifference, type Estimate } from '../../core/estimate.js';
import { formatTable, textWidth, wrap, type Column } from '../../core/terminal.js';
import { measureScale, readMeasure, rewardScale } from '../../rewards/score/identity.js';
import type { ReadSettings } from '../../core/schema/mark.js';
import { getPath } from '../../core/schema/walk.js';
import { readMetrics, type MetricsLine } from '../metrics.js';
import type { RunPaths } from '../paths.js';
import { MANNERS, type Manner } from '../metric_names.js';
import { readRecord } from '../record.js';
import { recordedSettings } from '../recorded_config.js';
import { showChange, showHeldOut, showLoss, showScale, showSpeed, signedEstimate } from './numbers.js';
import { pairedByPrompt, promptScores } from './measures.js';
import { heldOutNumber, readRun, type HeldOutNumber, type RunReport } from './read.js';
import type { PairedDifference } from './results.js';

export interface ComparedRun {
  readonly paths: RunPaths;
  readonly report: RunReport;
  /** Oldest first. */
  readonly lines: readonly MetricsLine[];
}

/** The paired difference over prompts between a run and the first run, at their last evaluations. */
export interface PromptDifference extends PairedDifference {
  /** Index among the compared runs, from 0, because runs of different folders may share a name. */
  readonly at: number;
  readonly run_name: string;
  /** The compared measure. Null for the reward. */
  readonly by: string | null;
  /** The sampling mode of the answers: `sampled`, `greedy`. */
  readonly manner: string;
}

/** A setting that differs between runs. */
export interface SettingRow {
  readonly key: string;
  readonly effect: Difference['effect'];
  /** One value per run, in order. Undefined for a missing key. */
  readonly values: readonly unknown[];
}

export interface Comparison {
  readonly runs: readonly ComparedRun[];
  readonly paired: readonly PromptDifference[];
  /** Null if fewer than two runs have readable settings. A remark then reports it. */
  readonly settings: readonly SettingRow[] | null;
  /** Why results are missing or limited. */
  readonly remarks: readonly string[];
}

/** Compares all runs with the first. Raises RunError for unreadable records. */
export function compareRuns(all: readonly RunPaths[]): Comparison {
  return compareRead(
    all.map((paths) => {
      const lines = readMetrics(paths);
      return { paths, report: readRun(paths, lines), lines };
    }),
  );
}

/** Like `compareRuns`, for runs that have already been read. */
export function compareRead(runs: readonly ComparedRun[]): Comparison {
  const all = runs.map(({ paths }) => paths);
  const remarks: string[] = [];
  const settings = settingRows(all, remarks);
  return { runs, paired: promptDifferences(runs, basesOf(runs, remarks)), settings, remarks };
}

function settingRows(all: readonly RunPaths[], remarks: string[]): SettingRow[] | null {
  const sides = all.map((paths): Side | null => {
    try {
      const record = must(readRecord(paths), `the record of ${paths.dir}`);
      return {
        settings: recordedSettings(record.settings),
        ...(record.texts === undefined ? {} : { texts: record.texts }),
      };
    } catch (error) {
      if (!(error instanceof EditrlError)) throw error;
      remarks.push(`the settings of ${paths.runName} are left out: ${error.toText()}`);
      return null;
    }
  });
  const first = sides.findIndex((side) => side !== null);
  const base = sides[first] ?? null;
  if (all.length > 1 && sides.filter((side) => side !== null).length < 2) return null;
  if (base === null) return null;
  const differences = sides.map((side) => (side === null ? [] : settingsDifferences(base, side)));
  const rows = new Map<string, Difference>();
  for (const difference of differences.flat()) {
    if (!rows.has(difference.key) || difference.effect === 'result') rows.set(difference.key, difference);
  }
  // Run names always differ.
  rows.delete('run_name');
  return [...rows]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([key, { a, effect }]) => ({
      key,
      effect,
      values: sides.map((side, at) => {
        if (side === null) return undefined;
        const found = differences[at].find((difference) => difference.key === key);
        return found === undefined ? a : found.b;
      }),
    }));
}

/** A number by which runs are compared: the reward if it is the same for all runs, or a measure that all runs have. */
interface Basis {
  /** Null for the reward. */
  readonly label: string | null;
  readonly scores: readonly ReturnType<typeof promptScores>[];
}

function basesOf(runs: readonly ComparedRun[], remarks: string[]): Basis[] {
  const reads = runs.map(({ paths }): ReadSettings => {
    const settings = recordOf(paths)?.settings ?? {};
    return (path) => getPath(settings, path);
  });
  const measures = measuresOf(runs[0], reads[0]).flatMap(({ identity, label, where }): Basis[] => {
    const others = runs
      .slice(1)
      .map((run, i) => measuresOf(run, reads[i + 1]).find((one) => one.identity === identity));
    if (others.includes(undefined)) return [];
    const places = [where, ...others.map((one) => must(one, 'a measure that all runs have').where)];
    return [{ label, scores: runs.map(({ paths }, at) => promptScores(paths, places[at])) }];
  });
  const scales = reads.map(rewardScale);
  const known = scales.flatMap((scale) => scale ?? []);
  if (new Set(known.map(({ identity }) => identity)).size <= 1) {
    return [{ label: null, scores: runs.map(({ paths }) => promptScores(paths, null)) }, ...measures];
  }
  const labels = [...new Set(known.map(({ label }) => label))];
  const differ = labels.length === 1 ? `${labels[0]}, with other fields or another judge` : labels.join('; ');
  const instead =
    measures.length > 0
      ? `compared by ${measures.map(({ label }) => label).join(', ')}`
      : `not compared; to compare them, score each with one term: editrl rescore RUN --measure ${known[0].label.includes(' ') ? 'TERM' : known[0].label} (or set validation.measure in new configs)`;
  remarks.push(`the runs have different rewards (${differ}), so their numbers are on different scales; ${instead}`);
  return measures;
}

interface FoundMeasure {
  readonly label: string;
  readonly identity: string;
  readonly where: Parameters<typeof promptScores>[1];
}

function measuresOf({ report }: ComparedRun, read: ReadSettings): FoundMeasure[] {
  const own = readMeasure(read('validation.measure')).map((term) => measureScale(term, read));
  const found = report.heldout.numbers.flatMap(({ by, identity: again, set }): FoundMeasure[] => {
    const identity = again ?? own.find(({ label }) => label === by)?.identity;
    if (by === null || set !== null || identity === undefined) return [];
    return [{ label: by, identity, where: { name: by, identity: again } }];
  });
  return found.filter(({ identity }, at) => found.findIndex((one) => one.identity === identity) === at);
}

/** A run's record. Null if it is unreadable, which is reported with the settings. */
function recordOf(paths: RunPaths): ReturnType<typeof readRecord> {
  try {
    return readRecord(paths);
  } catch (error) {
    if (!(error instanceof EditrlError)) throw error;
    return null;
  }
}

function promptDifferences(runs: readonly ComparedRun[], bases: readonly Basis[]): PromptDifference[] {
  return bases.flatMap(({ label, scores: [first, ...others] }) =>
    others.flatMap((scores, i) =>
      [...new Set([...scores.values()].map(({ sampling }) => sampling))].flatMap((manner): PromptDifference[] => {
        const difference = meanDifference(pairedByPrompt(first, scores, manner));
        const run_name = runs[i + 1].paths.runName;
        return difference === null ? [] : [{ at: i + 1, run_name, by: label, manner, ...difference }];
      }),
    ),
  );
}

/** Letters for column titles, because names are long. */
export function letterOf(at: number): string {
  return at < 26 ? String.fromCharCode(65 + at) : `#${at + 1}`;
}

/** Rows of results: a label and one text per run. */
export function comparisonRows({ runs, paired }: Comparison): { readonly label: string; readonly values: string[] }[] {
  const row = (label: string, of: (report: RunReport) => string | null): { label: string; values: string[] } => ({
    label,
    values: runs.map(({ report }) => of(report) ?? '–'),
  });
  const estimate = (value: Estimate | null): string | null => (value === null ? null : showHeldOut(value));
  const loss = (value: number | null): string | null => (value === null ? null : showLoss(value));
  const manners = paired.filter(
    ({ by, manner }, at) => paired.findIndex((one) => one.by === by && one.manner === manner) === at,
  );
  const measures = [...new Set(runs.flatMap(({ report }) => report.heldout.numbers.flatMap(({ by }) => by ?? [])))];
  const heldOutPair = (by: string | null, manner: Manner): ReturnType<typeof row>[] => {
    const label = by === null ? manner : `${by}, ${manner}`;
    const of = ({ heldout }: RunReport): HeldOutNumber | undefined => heldOutNumber(heldout, manner, by);
    return [
      row(`held-out before, ${label}`, (report) => estimate(of(report)?.before ?? null)),
      row(`held-out after, ${label}`, (report) => estimate(of(report)?.after ?? null)),
      row(`held-out change, ${label}`, (report) => {
        const found = of(report);
        return found === undefined ? null : showChange(found);
      }),
    ];
  };
  const rows = [
    row('state', ({ state }) => state),
    row('iteration', ({ iteration, num_iterations }) => `${iteration}/${num_iterations}`),
    row('held-out number', ({ heldout }) => (heldout.scale === null ? null : showScale(heldout.scale))),
    ...[null, ...measures].flatMap((by) => MANNERS.flatMap((manner) => heldOutPair(by, manner))),
    row('held-out loss before', ({ heldout }) => loss(heldout.loss.before)),
    row('held-out loss after', ({ heldout }) => loss(heldout.loss.after)),
    ...manners.map(({ by, manner }) => {
      const found = runs.map((_, at) => paired.find((one) => one.at === at && one.manner === manner && one.by === by));
      const counts = [...new Set(found.flatMap((one) => one?.n ?? []))];
      return {
        label: `against ${letterOf(0)}${by === null ? '' : `, ${by}`}, ${manner} (${counts.join(', ')} pairs)`,
        values: found.map((one) => (one === undefined ? '–' : signedEstimate(one))),
      };
    }),
    row('training reward', ({ training_reward: reward }) => estimate(reward)),
    row('training loss', ({ training_loss: last, training_reward: reward }) => (reward === null ? loss(last) : null)),
    row('seconds per iteration', ({ seconds_per_iteration: { total } }) => total?.toFixed(2) ?? null),
    row('speed', ({ speed }) => (speed === null ? null : showSpeed(speed))),
    row('hack alarms', ({ alarms }) => (alarms.length === 0 ? 'none' : alarms.map(({ name }) => name).join(', '))),
    row('unscored episodes', ({ unscored }) => String(Object.values(unscored).reduce((sum, count) => sum + count, 0))),
  ];
  return rows.filter(({ values }) => values.some((value) => value !== '–'));
}

/** Width of a run's column: a number with its error, and a gap. */
const RUN_WIDTH = 16;

/**
 * Formats tables with one column per run, followed by the different settings, at most `width` columns wide. Runs that
 * do not fit continue in further tables.
 */
export function formatComparison(comparison: Comparison, width = Infinity): string {
  const { runs, settings, remarks } = comparison;
  const legend = runs.map(({ report }, at) => `${letterOf(at)}  ${report.run_name}`).join('\n');
  const rows = comparisonRows(comparison);
  const label = Math.max(...rows.map((row) => textWidth(row.label)));
  const perTable = Math.max(1, Math.min(runs.length, Math.floor((width - label) / RUN_WIDTH)));
  const blocks: Block[] = Array.from({ length: Math.ceil(runs.length / perTable) }, (_, at) => at * perTable).map(
    (from) => ({
      letters: runs.slice(from, from + perTable).map((_, at) => ({ title: letterOf(from + at), wraps: true })),
      of: <T>(values: readonly T[]): T[] => values.slice(from, from + perTable),
    }),
  );
  const results = blocks.map(({ letters, of }) =>
    formatTable(
      [{ title: '' }, ...letters.map((column) => ({ ...column, align: 'right' as const }))],
      rows.map((row) => [row.label, ...of(row.values)]),
      { width },
    ),
  );
  const notes = remarks.map((remark) => wrap(`Note: ${remark}`, width).join('\n'));
  return [legend, ...results, ...notes, ...formatSettings(settings, blocks, width)].join('\n\n');
}

/** Some of the runs, as columns. `of` selects their values from those of all runs. */
interface Block {
  readonly letters: readonly Column[];
  readonly of: <T>(values: readonly T[]) => T[];
}

function formatSettings(settings: Comparison['settings'], blocks: readonly Block[], width: number): string[] {
  if (settings === null) return ['The settings cannot be compared. See the note above.'];
  if (settings.length === 0) return ['The settings are the same.'];
  return blocks.map(({ letters, of }) =>
    formatTable(
      [{ title: 'setting', alone: true }, ...letters],
      settings.map(({ key, values }) => [key, ...of(values).map(shown)]),
      { width },
    ),
  );
}

function shown(value: unknown): string | null {
  if (value === undefined) return null;
  return printable(typeof value === 'string' ? value : JSON.stringify(value));
}
