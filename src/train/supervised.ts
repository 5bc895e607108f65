/**
 * Supervised fine-tuning on labeled answers, for every policy with the likelihood loss. It is the warm start of
 * reinforcement learning.
 */
import type { WordsSftSettings } from '../config/schema/algorithm.js';
import { learningRateAt, type ScheduleOptions } from '../compute/onnx/optimizer.js';
import type { CheckpointFiles } from '../models/files.js';
import type { LossSpec } from './policies/losses/table.js';
import type { Answer, TrainGroup, Policy, ReleaseCheckpoint } from './policies/policy.js';
import type { Metrics } from '../run/metrics.js';
import type { Prompt } from './scoring/task.js';
import { requireCapabilities } from './capabilities.js';
import { EarlyStopping, readTrainerState, trainerFile } from './trainer_state.js';
import type { HeldOut } from './held_out.js';
import type { Training } from './loop.js';

/** A labeled answer and the weight of each of its actions. */
export interface LabeledAnswer<P, A> {
  readonly prompt: P;
  readonly answer: A;
  readonly weights: Float32Array;
}

export interface SupervisedDeps<P extends Prompt, A extends Answer, H> {
  readonly policy: Policy<P, A, H>;
  readonly schedule: ScheduleOptions;
  readonly sft: Pick<WordsSftSettings['sft'], 'patience' | 'min_delta'>;
  /** The batch of an iteration's optimizer step. */
  readonly batch: (iteration: number) => Promise<readonly LabeledAnswer<P, A>[]>;
  /** The batch of the held-out loss. It is always the same. */
  readonly heldOutBatch: () => Promise<readonly LabeledAnswer<P, A>[]>;
  /** Null if nothing is scored. Only the held-out loss is measured then. */
  readonly heldOut: HeldOut<P, A, H> | null;
  /** Files of a checkpoint in addition to the policy's. */
  readonly extraFiles?: CheckpointFiles;
  /** Called at the end. */
  readonly dispose: () => Promise<void>;
}

const LOSS: LossSpec = { policy: 'likelihood' };

export class SupervisedTraining<P extends Prompt, A extends Answer, H> implements Training {
  readonly #stopping: EarlyStopping;
  /** Number of optimizer steps at the end of the last complete iteration. */
  #wholeSteps: number;

  /** Raises ConfigError when the policy lacks a required capability. */
  constructor(private readonly deps: SupervisedDeps<P, A, H>) {
    requireCapabilities(deps.policy.capabilities, { loss: LOSS, average: deps.heldOut?.weights === 'average' });
    this.#stopping = new EarlyStopping(deps.sft);
    this.#wholeSteps = deps.policy.steps;
  }

  get hasPartialStep(): boolean {
    return this.deps.policy.steps !== this.#wholeSteps;
  }

  async restore(checkpoint: string): Promise<void> {
    const state = readTrainerState(checkpoint);
    this.#stopping.restore(state);
    await this.deps.policy.restore(checkpoint, state.optimizer_steps);
    this.#wholeSteps = this.deps.policy.steps;
  }

  async step(iteration: number): Promise<Metrics> {
    const start = performance.now();
    const { policy, schedule } = this.deps;
    const trainGroups = trainGroupsOf(await this.deps.batch(iteration));
    const actions = trainGroups.reduce((sum, { answers }) => sum + answers[0].logProbs.length, 0);
    const { loss } = await policy.learn(trainGroups, LOSS);
    const learningRate = learningRateAt(policy.steps, schedule);
    const { gradNorm } = await policy.step(learningRate);
    this.#wholeSteps = policy.steps;
    const seconds = (performance.now() - start) / 1000;
    return {
      'policy/loss': loss,
      ...(gradNorm === null ? {} : { 'policy/grad_norm': gradNorm }),
      'policy/learning_rate': learningRate,
      'time/total': seconds,
      [`${policy.actions}/s`]: actions / seconds,
    };
  }

  async evaluate(iteration: number, last: boolean): Promise<Metrics> {
    const start = performance.now();
    const { policy, heldOut } = this.deps;
    const trainGroups = trainGroupsOf(await this.deps.heldOutBatch());
    // Without held-out data there is nothing to measure.
    if (trainGroups.length === 0) return {};
    const statistics = await policy.statistics(trainGroups, 'current');
    let sum = 0;
    let weight = 0;
    trainGroups.forEach(({ targets: [{ weights }] }, i) => {
      statistics[i][0].logProbs.forEach((logProb, t) => {
        sum -= logProb * weights[t];
        weight += weights[t];
      });
    });
    const loss = sum / weight;
    if (iteration > 0) this.#stopping.note(iteration, loss);
    const judged = heldOut !== null && (iteration === 0 || last) ? await heldOut.evaluate(iteration) : {};
    return { 'validation/loss': loss, ...judged, 'time/validation': (performance.now() - start) / 1000 };
  }

  shouldStop(): string | null {
    const validations = this.#stopping.exhausted;
    return validations === null ? null : `the held-out loss has not improved for ${validations} validations`;
  }

  async files(iteration: number): Promise<CheckpointFiles> {
    const { policy, extraFiles } = this.deps;
    return {
      ...(await policy.files()),
      ...extraFiles,
      ...trainerFile({ iteration, optimizer_steps: policy.steps, ...this.#stopping.state }),
    };
  }

  release(folder: string): ReleaseCheckpoint | null {
    return this.deps.policy.release?.(folder) ?? null;
  }

  checksum(): Promise<string> {
    return this.deps.policy.checksum();
  }

  dispose(): Promise<void> {
    return this.deps.dispose();
  }
}

/** Normalizes weights to a sum of 1 over the batch, so that the loss is a weighted mean over its actions. */
function trainGroupsOf<P, A>(batch: readonly LabeledAnswer<P, A>[]): TrainGroup<P, A>[] {
  const total = batch.reduce((sum, { weights }) => sum + weights.reduce((a, b) => a + b, 0), 0);
  return batch.map(({ prompt, answer, weights }) => ({
    prompt,
    answers: [answer],
    targets: [{ weights: weights.map((w) => w / total), advantages: 0, reference: null, old: null }],
  }));
}
