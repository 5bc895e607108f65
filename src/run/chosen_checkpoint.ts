/**
 * Selects the best checkpoint of a run by its held-out evaluations: the existing checkpoint with the best recorded number, or the earliest of several
 * equal ones. It depends only on the records, so a resumed run selects the same one.
 */
import { existsSync } from 'node:fs';
import { CheckpointError, UsageError } from '../core/errors.js';
import { getPath } from '../core/schema/walk.js';
import { latestWhole, listCheckpoints, requireWhole, type WholeCheckpoint } from './checkpoints.js';
import { heldOutMeans } from './metric_names.js';
import { readMetrics, type Metrics, type MetricsLine } from './metrics.js';
import type { RunPaths } from './paths.js';
import { readRecord, type PlainObject } from './record.js';
import type { BestCheckpoint } from './state.js';

/** The number for comparing checkpoints. */
export interface BestMeasure {
  /** As in `checkpoint.keep_best`. */
  readonly name: string;
  /** Metrics in order of preference. The first recorded one counts. */
  readonly metrics: readonly string[];
  readonly lessIsBetter: boolean;
}

/** `40, reward 4.213` */
export function showBest({ iteration, by, value }: BestCheckpoint): string {
  return `${iteration}, ${by} ${value.toFixed(3)}`;
}

/** Parses `checkpoint.keep_best`: `loss`, `reward` or a measure, of sampled answers unless prefixed with `greedy/`. */
export function bestMeasure(name: string): BestMeasure {
  const [, manner, measure] = /^(?:(sampled|greedy)\/)?(.+)$/s.exec(name) ?? [];
  if (name === 'loss') return { name, metrics: ['validation/loss'], lessIsBetter: true };
  const manners = manner === undefined ? ['sampled', 'greedy'] : [manner];
  const part = measure === 'reward' ? '' : `measure/${measure}/`;
  return { name, metrics: manners.map((one) => `validation/${one}/${part}mean`), lessIsBetter: false };
}

/** The number of an evaluation. Null if it is missing or not finite. */
export function valueOf({ metrics: names }: BestMeasure, metrics: Metrics): number | null {
  const found = names.map((name) => metrics[name]).find((value) => value !== undefined);
  return found !== undefined && Number.isFinite(found) ? found : null;
}

/** The best of some iterations. Null if none has a value. */
export function bestOf(
  { name, lessIsBetter }: BestMeasure,
  values: ReadonlyMap<number, number>,
  iterations: readonly number[],
): BestCheckpoint | null {
  let best: BestCheckpoint | null = null;
  for (const iteration of [...iterations].sort((a, b) => a - b)) {
    const value = values.get(iteration);
    if (value === undefined) continue;
    if (best === null || (lessIsBetter ? value < best.value : value > best.value)) {
      best = { iteration, by: name, value };
    }
  }
  return best;
}

/** The recorded numbers of a run by iteration. */
export function evaluatedValues(measure: BestMeasure, lines: readonly MetricsLine[]): Map<number, number> {
  return new Map(
    lines.flatMap(({ iteration, metrics }) => {
      const value = valueOf(measure, metrics);
      return value === null ? [] : [[iteration, value] as const];
    }),
  );
}

/** The best checkpoint by `checkpoint.keep_best`. Null without that setting, or if no checkpoint was evaluated. */
export function keptBest(
  paths: RunPaths,
  settings: PlainObject,
  lines?: readonly MetricsLine[],
): BestCheckpoint | null {
  const name = getPath(settings, 'checkpoint.keep_best');
  if (typeof name !== 'string') return null;
  const measure = bestMeasure(name);
  return bestOf(measure, evaluatedValues(measure, lines ?? readMetrics(paths)), listCheckpoints(paths));
}

/** The number for comparing checkpoints. Without a setting: the first measure, else the reward, else the loss. */
export function usualMeasure(settings: PlainObject, lines: readonly MetricsLine[]): BestMeasure {
  const configured = getPath(settings, 'checkpoint.keep_best');
  if (typeof configured === 'string') return bestMeasure(configured);
  const names = lines.flatMap(({ metrics }) => Object.keys(metrics));
  const measured = heldOutMeans(names).filter(({ set, manner }) => set === null && manner === 'sampled');
  const first = measured.find(({ by }) => by !== null)?.by;
  if (typeof first === 'string') return bestMeasure(first);
  const isScored = bestMeasure('reward').metrics.some((name) => names.includes(name));
  return bestMeasure(isScored && !isSupervised(settings) ? 'reward' : 'loss');
}

/** Supervised training only scores answers before and after training. */
function isSupervised(settings: PlainObject): boolean {
  return getPath(settings, 'algorithm.type') === 'sft';
}

/** An iteration, the last one, or the best by the run's held-out evaluations. */
export type CheckpointChoice = number | 'last' | 'best';

/** Parses a choice. Raises UsageError for an invalid one. `where` is the user's text. */
export function parseCheckpointChoice(text: string, where: string): CheckpointChoice {
  if (text === 'last' || text === 'best') return text;
  if (/^\d+$/.test(text)) return Number(text);
  throw new UsageError(`${where}: found '${text}'; allowed: the iteration of a checkpoint, last or best`);
}

/** `RUN`, or `RUN@CHECKPOINT`: an iteration, `last` or `best`. A run's name contains no `@`. Raises UsageError for any other checkpoint. */
export function parseRunSpec(spec: string): { readonly name: string; readonly checkpoint: CheckpointChoice } {
  const at = spec.lastIndexOf('@');
  if (at < 0 || existsSync(spec)) return { name: spec, checkpoint: 'last' };
  return { name: spec.slice(0, at), checkpoint: parseCheckpointChoice(spec.slice(at + 1), spec) };
}

/** The chosen checkpoint, with the problems of skipped ones. Raises CheckpointError if there is none. */
export function chosenCheckpoint(paths: RunPaths, choice: CheckpointChoice): WholeCheckpoint {
  const there = listCheckpoints(paths);
  if (choice === 'best') return bestCheckpoint(paths, there);
  if (choice === 'last') {
    const latest = latestWhole(paths);
    if (latest !== null) return latest;
  } else if (there.includes(choice)) return wholeAt(paths, choice, []);
  throw new CheckpointError(
    `run ${paths.runName} has no ${choice === 'last' ? 'complete checkpoint' : `checkpoint of iteration ${choice}`}`,
    {
      where: paths.checkpointsDir,
      next: there.length === 0 ? 'Train it further first.' : `Checkpoints: ${there.join(', ')}.`,
    },
  );
}

function bestCheckpoint(paths: RunPaths, there: readonly number[]): WholeCheckpoint {
  const lines = readMetrics(paths);
  const measure = usualMeasure(readRecord(paths)?.settings ?? {}, lines);
  const values = evaluatedValues(measure, lines);
  const best = bestOf(measure, values, there);
  if (best === null) {
    throw new CheckpointError(`no checkpoint of run ${paths.runName} was evaluated by '${measure.name}'`, {
      where: paths.checkpointsDir,
      next: there.length === 0 ? 'Train it further first.' : `Checkpoints: ${there.join(', ')}.`,
    });
  }
  const everBest = bestOf(measure, values, [...values.keys()]) ?? best;
  const lost = `iteration ${everBest.iteration} was better by ${measure.name} (${everBest.value} against ${best.value} at ${best.iteration}) but has no checkpoint. Set checkpoint.keep_best to keep the best one`;
  return wholeAt(paths, best.iteration, everBest.iteration === best.iteration ? [] : [lost]);
}

function wholeAt(paths: RunPaths, iteration: number, problems: readonly string[]): WholeCheckpoint {
  const dir = paths.checkpoint(iteration);
  requireWhole(dir, iteration);
  return { iteration, dir, problems };
}
