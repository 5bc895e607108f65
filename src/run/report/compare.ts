/** Runs side by side: what they learned, by how much they differ on the same prompts, and which settings they differ in. */
import { settingsDifferences, type Difference, type Side } from '../../config/diff.js';
import { EditrlError, must } from '../../core/errors.js';
import { average, standardError } from '../../core/statistics.js';
import { listEpisodeFiles } from '../episodes.js';
import { readLines } from '../journal.js';
import { readMetrics, type MetricsLine } from '../metrics.js';
import type { RunPaths } from '../paths.js';
import { readRecord } from '../record.js';
import { recordedSettings } from '../recorded_config.js';
import { showEstimate, showLoss, showSpeed, signedEstimate } from './numbers.js';
import { readRun, type Estimate, type RunReport } from './read.js';
import type { PairedDifference } from './results.js';

export interface ComparedRun {
  readonly paths: RunPaths;
  readonly report: RunReport;
  /** Oldest first. */
  readonly lines: readonly MetricsLine[];
}

/** How much higher a run scores than the first one, prompt by prompt, at the last evaluation of each. */
export interface PromptDifference extends PairedDifference {
  /** Which of the compared runs it is of, from 0: runs of different folders may share a name. */
  readonly at: number;
  readonly run_name: string;
  /** How answers were sampled: `sampled`, `greedy`. */
  readonly manner: string;
}

/** A setting that is not the same in all runs. */
export interface SettingRow {
  readonly key: string;
  readonly effect: Difference['effect'];
  /** One for each run, in their order; undefined where it has no such key. */
  readonly values: readonly unknown[];
}

export interface Comparison {
  readonly runs: readonly ComparedRun[];
  readonly paired: readonly PromptDifference[];
  readonly settings: readonly SettingRow[];
  /** Why some of it is missing, or means less than it seems to. */
  readonly remarks: readonly string[];
}

/** Compares runs, all with the first. Raises RunError where the records of one cannot be read. */
export function compareRuns(all: readonly RunPaths[]): Comparison {
  const runs = all.map((paths): ComparedRun => {
    const lines = readMetrics(paths);
    return { paths, report: readRun(paths, lines), lines };
  });
  const remarks: string[] = [];
  const settings = settingRows(all, remarks);
  const rewards = settings.filter(({ key, effect }) => effect === 'result' && key.startsWith('reward.'));
  if (rewards.length > 0) {
    remarks.push(
      `their rewards differ (${rewards.map(({ key }) => key).join(', ')}): their numbers may be of different things`,
    );
  }
  return { runs, paired: promptDifferences(all), settings, remarks };
}

function settingRows(all: readonly RunPaths[], remarks: string[]): SettingRow[] {
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
  if (base === null) return [];
  const differences = sides.map((side) => (side === null ? [] : settingsDifferences(base, side)));
  const rows = new Map<string, Difference>();
  for (const difference of differences.flat()) {
    if (!rows.has(difference.key) || difference.effect === 'result') rows.set(difference.key, difference);
  }
  // Two runs never have the same name, and that says nothing.
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

function promptDifferences(all: readonly RunPaths[]): PromptDifference[] {
  const [first, ...others] = all.map((paths, at) => ({ at, paths, scores: lastScores(paths) }));
  return others.flatMap(({ at, paths, scores }) =>
    [...new Set([...scores.values()].map(({ manner }) => manner))].flatMap((manner): PromptDifference[] => {
      const pairs = [...scores].flatMap(([prompt, own]) => {
        const base = first.scores.get(prompt);
        return own.manner !== manner || base === undefined || base.sample !== own.sample
          ? []
          : [own.score - base.score];
      });
      if (pairs.length === 0) return [];
      const stderr = standardError(pairs);
      const error = Number.isFinite(stderr) ? stderr : null;
      return [{ at, run_name: paths.runName, manner, mean: average(pairs), stderr: error, n: pairs.length }];
    }),
  );
}

interface Score {
  readonly sample: string;
  readonly manner: string;
  readonly score: number;
}

/** The scores of the last evaluation by set, manner and prompt; what no judge scored is left out. */
function lastScores(paths: RunPaths): Map<string, Score> {
  const file = listEpisodeFiles(paths).findLast(({ heldOut }) => heldOut);
  if (file === undefined) return new Map();
  return new Map(readLines(file.path).flatMap(scoreOf));
}

/** Of `validation/<iteration>/<set>/<manner>/<prompt>`. */
function scoreOf(line: Readonly<Record<string, unknown>>): [string, Score][] {
  const { key, sample, outcome } = line;
  if (typeof key !== 'string' || typeof sample !== 'string' || typeof outcome !== 'object' || outcome === null) {
    return [];
  }
  const { kind, value } = outcome as Readonly<Record<string, unknown>>;
  const score = kind === 'zero_by_rule' ? 0 : kind === 'scored' ? value : null;
  const [, , ...rest] = key.split('/');
  const manner = rest.at(-2);
  if (typeof score !== 'number' || manner === undefined) return [];
  return [[rest.join('/'), { sample, manner, score }]];
}

/** Letters for the runs, which are the titles of columns: names are long. */
export function letterOf(at: number): string {
  return at < 26 ? String.fromCharCode(65 + at) : `#${at + 1}`;
}

/** What runs came to, row by row: what is said, and one text for each run. */
export function comparisonRows({ runs, paired }: Comparison): { readonly label: string; readonly values: string[] }[] {
  const row = (label: string, of: (report: RunReport) => string | null): { label: string; values: string[] } => ({
    label,
    values: runs.map(({ report }) => of(report) ?? '–'),
  });
  const estimate = (value: Estimate | null): string | null => (value === null ? null : showEstimate(value));
  const loss = (value: number | null): string | null => (value === null ? null : showLoss(value));
  const manners = [...new Set(paired.map(({ manner }) => manner))];
  const rows = [
    row('state', ({ state }) => state),
    row('iteration', ({ iteration, num_iterations }) => `${iteration}/${num_iterations}`),
    row('held-out before, sampled', ({ heldout }) => estimate(heldout.sampled.before)),
    row('held-out after, sampled', ({ heldout }) => estimate(heldout.sampled.after)),
    row('held-out before, greedy', ({ heldout }) => estimate(heldout.greedy.before)),
    row('held-out after, greedy', ({ heldout }) => estimate(heldout.greedy.after)),
    row('held-out loss before', ({ heldout }) => loss(heldout.loss.before)),
    row('held-out loss after', ({ heldout }) => loss(heldout.loss.after)),
    ...manners.map((manner) => {
      const found = runs.map((_, at) => paired.find((one) => one.at === at && one.manner === manner));
      const counts = [...new Set(found.flatMap((one) => one?.n ?? []))];
      return {
        label: `against ${letterOf(0)}, ${manner} (${counts.join(', ')} pairs)`,
        values: found.map((one) => (one === undefined ? '–' : signedEstimate(one))),
      };
    }),
    row('training reward', ({ training_reward: reward }) => estimate(reward)),
    row('training loss', ({ training_loss: last, training_reward: reward }) => (reward === null ? loss(last) : null)),
    row('seconds an iteration', ({ seconds_per_iteration: { total } }) => total?.toFixed(2) ?? null),
    row('speed', ({ speed }) => (speed === null ? null : showSpeed(speed))),
    row('hack alarms', ({ alarms }) => (alarms.length === 0 ? 'none' : alarms.map(({ name }) => name).join(', '))),
    row('unscored episodes', ({ unscored }) => String(Object.values(unscored).reduce((sum, count) => sum + count, 0))),
  ];
  return rows.filter(({ values }) => values.some((value) => value !== '–'));
}
