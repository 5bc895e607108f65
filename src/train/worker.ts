/** Trains an opened recipe to the end of its run, or evaluates weights once. */
import type { EvaluatedWeights } from '../config/load.js';
import type { CheckpointSettings, ValidationSettings } from '../config/schema/training.js';
import { WaitInterrupted } from '../core/group/rank_zero.js';
import { soloGroup, type ProcessGroup } from '../core/group/process_group.js';
import type { RunHandle } from '../run/claim/claim.js';
import { Spending } from '../run/spending.js';
import type { MetricsJournal } from '../run/metrics.js';
import type { TrainingContext } from './context.js';
import { runLoop, type LoopEnd, type LoopOptions, type Training } from './loop.js';

type CommonServices = Omit<TrainingContext, 'group' | 'handle' | 'checkpoint'> & {
  /** The run's processes. Default: only this one. */
  readonly group?: ProcessGroup;
};

/** Services of rank 0, which owns the run and writes its records and checkpoints. */
export interface LeaderServices extends CommonServices {
  readonly handle: RunHandle;
  readonly journal: MetricsJournal;
}

/** Services of the other ranks, which only join the process group. Rank 0 broadcasts the checkpoint to start from. */
export interface FollowerServices extends CommonServices {
  readonly handle: null;
}

export type WorkerServices = LeaderServices | FollowerServices;

/** The run settings that the loop depends on. */
export interface LoopSettings {
  readonly num_iterations: number;
  readonly validation: Pick<ValidationSettings, 'every_n_iterations'>;
  readonly checkpoint: CheckpointSettings;
}

/** The parts of a recipe that the loop uses. */
export interface OpenedRecipe extends Pick<LoopOptions, 'columns'> {
  readonly open: (context: TrainingContext) => Promise<Training>;
}

/**
 * Trains a run to its end, or until rank 0 is asked to stop. Every rank of `services.group` calls it with the same
 * settings. The other ranks follow rank 0's decisions. Raises ProcessGroupError when a rank dies.
 */
export async function trainRun(
  { num_iterations, validation, checkpoint }: LoopSettings,
  { open, columns }: OpenedRecipe,
  services: WorkerServices,
): Promise<LoopEnd> {
  const { group = soloGroup(), handle, stop } = services;
  // Waiting here also lets the other ranks open datasets and parents, which exist once rank 0 arrives.
  const from = await group.broadcast(handle?.checkpoint?.dir ?? null);
  return withTraining(open, services, from, (training, spending) => {
    const options = {
      numIterations: num_iterations,
      evaluateEvery: validation.every_n_iterations,
      checkpoint,
      columns,
      stop,
      spending,
    };
    return runLoop(training, options, services.handle === null ? null : services, group);
  });
}

/**
 * Evaluates weights once, and records that as the evaluation of their iteration in rank 0's run directory, without a
 * checkpoint.
 * Every rank of `services.group` calls it with the same arguments. Raises CheckpointError for a checkpoint that no
 * longer exists or does not fit the settings.
 */
export async function evaluateRun(
  { checkpoint, iteration }: EvaluatedWeights,
  { open }: Pick<OpenedRecipe, 'open'>,
  services: WorkerServices,
): Promise<LoopEnd> {
  const { group = soloGroup() } = services;
  await group.barrier();
  return withTraining(open, services, checkpoint, async (training) => {
    const metrics = await training.evaluate(iteration, true);
    if (services.handle !== null) {
      services.handle.requireOwned();
      services.journal.append(iteration, metrics);
      services.journal.sync();
      services.handle.setState({ state: 'finished', iteration, reason: null });
    }
    return { kind: 'finished', reason: null };
  });
}

/**
 * Calls `work` with an opened training, restored from a checkpoint if one is given. Returns `interrupted` if the run is
 * stopped while it waits.
 */
async function withTraining(
  open: OpenedRecipe['open'],
  services: WorkerServices,
  checkpoint: string | null,
  work: (training: Training, spending: Spending | null) => Promise<LoopEnd>,
): Promise<LoopEnd> {
  const { group = soloGroup(), handle } = services;
  const spending = handle === null ? null : new Spending(handle.paths);
  try {
    const training = await open({ ...services, group, checkpoint, spending });
    try {
      if (checkpoint !== null) await training.restore(checkpoint);
      return await work(training, spending);
    } finally {
      await training.dispose();
    }
  } catch (error) {
    if (!(error instanceof WaitInterrupted)) throw error;
    handle?.setState({ state: 'interrupted', reason: 'stopped on request' });
    return { kind: 'interrupted' };
  } finally {
    spending?.save();
  }
}
