/** Which checkpoint of a run a person means. */
import { existsSync } from 'node:fs';
import { CheckpointError, UsageError } from '../core/errors.js';
import { bestOf, evaluatedValues, usualMeasure } from './best_checkpoint.js';
import { latestWhole, listCheckpoints, requireWhole, type WholeCheckpoint } from './checkpoints.js';
import { readMetrics } from './metrics.js';
import type { RunPaths } from './paths.js';
import { readRecord } from './record.js';

/** An iteration, the last one, or the best by the run's held-out evaluations. */
export type CheckpointChoice = number | 'last' | 'best';

/** Raises UsageError for what is no choice; `where` is what the user wrote. */
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

/** The run and the checkpoint that `RUN[@CHECKPOINT]` and `--checkpoint` name. Raises UsageError if both name a checkpoint. */
export function namedCheckpoint(spec: string, flag: string): ReturnType<typeof parseRunSpec> {
  const named = parseRunSpec(spec);
  if (flag === '') return named;
  if (named.name !== spec) throw new UsageError(`found ${spec} and --checkpoint ${flag}; allowed: one of the two`);
  return { name: named.name, checkpoint: parseCheckpointChoice(flag, '--checkpoint') };
}

/** The whole checkpoint that is meant, with remarks on others in its `problems`. Raises CheckpointError if there is none. */
export function chosenCheckpoint(paths: RunPaths, choice: CheckpointChoice): WholeCheckpoint {
  const there = listCheckpoints(paths);
  if (choice === 'best') return bestCheckpoint(paths, there);
  if (choice === 'last') {
    const latest = latestWhole(paths);
    if (latest !== null) return latest;
  } else if (there.includes(choice)) return wholeAt(paths, choice, []);
  throw new CheckpointError(
    `run ${paths.runName} has no ${choice === 'last' ? 'whole checkpoint' : `checkpoint of iteration ${choice}`}`,
    {
      where: paths.checkpointsDir,
      next: there.length === 0 ? 'Train it further first.' : `There are checkpoints of ${there.join(', ')}.`,
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
      next: there.length === 0 ? 'Train it further first.' : `There are checkpoints of ${there.join(', ')}.`,
    });
  }
  const everBest = bestOf(measure, values, [...values.keys()]) ?? best;
  const lost = `iteration ${everBest.iteration} was better by ${measure.name} (${everBest.value} against ${best.value} at ${best.iteration}), and has no checkpoint: checkpoint.keep_best keeps it`;
  return wholeAt(paths, best.iteration, everBest.iteration === best.iteration ? [] : [lost]);
}

function wholeAt(paths: RunPaths, iteration: number, problems: readonly string[]): WholeCheckpoint {
  const dir = paths.checkpoint(iteration);
  requireWhole(dir, iteration);
  return { iteration, dir, problems };
}
