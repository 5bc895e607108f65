/**
 * Trains a network in this process with its own loss, one batch per step, without a policy, rewards or a starting
 * model.
 */
import type { Datasets } from '../../data/datasets.js';
import type { SampleSource } from '../../data/types.js';
import { learningRateAt, type ScheduleOptions } from '../../compute/onnx/optimizer.js';
import { Session, type SessionOptions } from '../../compute/onnx/session.js';
import type { TensorData } from '../../compute/onnx/tensors.js';
import { TrainedWeights } from '../../models/trained_weights.js';
import type { Value } from '../../compute/graph/ir.js';
import type { CheckpointFiles, Weights } from '../../models/files.js';
import { GRADIENT, trainingOutputs } from '../policies/backward.js';
import type { Metrics } from '../../run/metrics.js';
import type { WordsSftSettings } from '../../config/schema/algorithm.js';
import type { OptimizerSettings, ValidationSettings } from '../../config/schema/training.js';
import { EarlyStopping, readTrainerState, trainerFile, type TrainerState } from '../trainer_state.js';
import type { Training } from '../loop.js';

/** Outputs of the graph by name. */
export type Outputs = Readonly<Record<string, TensorData>>;

/** The position of a training batch. */
export interface BatchPlace {
  readonly iteration: number;
  /** The global index of its first sample in the endless training order. */
  readonly first: number;
}

/** A network and its loss, trained on samples `T`. `M` is the result of a held-out batch. */
export interface Network<T, M> {
  readonly loss: Value;
  /** Further outputs of the graph. */
  readonly outputs: Readonly<Record<string, Value>>;
  /** Training changes them in place. */
  readonly weights: Weights;
  /** The graph's inputs for a batch. Repeats samples if there are too few. `place` is null in held-out evaluation. */
  feeds(samples: readonly T[], place: BatchPlace | null): Promise<Readonly<Record<string, TensorData>>>;
  /** Called after each optimizer step. May change the weights further. Returns more metrics. */
  afterStep?(iteration: number, out: Outputs): Metrics;
  measure(out: Outputs): M;
  /** The metrics of all held-out batches. */
  evaluationMetrics(batches: readonly M[]): Metrics & { 'validation/loss': number };
  /** The name of the held-out loss in the message about early stopping. */
  readonly stoppingLossName: 'error' | 'loss';
  /** Whether `validation.prompts` limits the samples of all held-out sets together instead of each set. */
  readonly limitsAllSetsTogether?: true;
  /** The files of a checkpoint in addition to the weights. */
  files(): CheckpointFiles;
  /** State that is kept between steps and restored from a checkpoint. */
  readonly state?: () => Partial<TrainerState>;
  readonly restore?: (state: TrainerState) => void;
}

export interface PretrainingDeps<T> {
  readonly optimizer: OptimizerSettings;
  readonly schedule: ScheduleOptions;
  readonly sft: WordsSftSettings['sft'];
  readonly validation: Pick<ValidationSettings, 'prompts'>;
  readonly data: Pick<Datasets<SampleSource<T>>, 'at' | 'validation'>;
  readonly session: SessionOptions;
}

export class Pretraining<T, M> implements Training {
  readonly #stopping: EarlyStopping;
  readonly #trained: TrainedWeights;

  private constructor(
    private readonly deps: PretrainingDeps<T>,
    private readonly network: Network<T, M>,
    private readonly session: Session,
  ) {
    this.#stopping = new EarlyStopping(deps.sft);
    this.#trained = new TrainedWeights(network.weights, deps.optimizer);
  }

  /** Compiles the step. */
  static async open<T, M>(deps: PretrainingDeps<T>, network: Network<T, M>): Promise<Pretraining<T, M>> {
    const outputs = trainingOutputs(network.loss, network.outputs, () => true);
    return new Pretraining(deps, network, await Session.compile(network.loss.graph, outputs, deps.session));
  }

  async restore(checkpoint: string): Promise<void> {
    const state = readTrainerState(checkpoint);
    this.#stopping.restore(state);
    this.network.restore?.(state);
    this.#trained.restore(checkpoint, state.optimizer_steps);
  }

  async step(iteration: number): Promise<Metrics> {
    const start = performance.now();
    const { sft, data, schedule } = this.deps;
    const first = (iteration - 1) * sft.batch_size;
    const batch = Array.from({ length: sft.batch_size }, (_, i) => {
      const { source, index } = data.at(first + i);
      return source.read(index);
    });
    const out = await this.#run(batch, { iteration, first });
    const gradient = new Map(
      Object.entries(out).flatMap(([name, value]) =>
        name.startsWith(GRADIENT) ? [[name.slice(GRADIENT.length), value as Float32Array] as const] : [],
      ),
    );
    const learningRate = learningRateAt(this.#trained.steps, schedule);
    const { gradNorm } = this.#trained.step(gradient, learningRate);
    const more = this.network.afterStep?.(iteration, out);
    return {
      'policy/loss': scalar(out, 'loss'),
      'policy/grad_norm': gradNorm,
      'policy/learning_rate': learningRate,
      ...more,
      'time/total': (performance.now() - start) / 1000,
    };
  }

  /** Evaluates the first samples of each held-out set: `validation.prompts` of them, but at least one batch. */
  async evaluate(iteration: number): Promise<Metrics> {
    const { sft, data, validation } = this.deps;
    const size = sft.batch_size;
    const most = Math.max(size, validation.prompts);
    const places = data.validation.flatMap((source) =>
      Array.from({ length: Math.min(source.length, most) }, (_, index) => ({ source, index })),
    );
    const bounded = this.network.limitsAllSetsTogether === true ? places.slice(0, most) : places;
    const samples = bounded.map(({ source, index }) => source.read(index));
    // Without held-out data there is nothing to measure.
    if (samples.length === 0) return {};
    const measured: M[] = [];
    // Only whole batches, so that no sample counts twice. A set smaller than a batch is one batch.
    for (let start = 0; start === 0 || start + size <= samples.length; start += size) {
      measured.push(this.network.measure(await this.#run(samples.slice(start, start + size), null)));
    }
    const metrics = this.network.evaluationMetrics(measured);
    if (iteration > 0) this.#stopping.note(iteration, metrics['validation/loss']);
    return metrics;
  }

  shouldStop(): string | null {
    const validations = this.#stopping.exhausted;
    return validations === null
      ? null
      : `the held-out ${this.network.stoppingLossName} has not improved for ${validations} validations`;
  }

  async files(iteration: number): Promise<CheckpointFiles> {
    const { network } = this;
    const steps = { iteration, optimizer_steps: this.#trained.steps };
    return {
      ...network.files(),
      ...this.#trained.files(),
      ...trainerFile({ ...steps, ...network.state?.(), ...this.#stopping.state }),
    };
  }

  async checksum(): Promise<string> {
    return this.#trained.checksum();
  }

  dispose(): Promise<void> {
    return this.session.dispose();
  }

  async #run(samples: readonly T[], place: BatchPlace | null): Promise<Outputs> {
    return this.session.run(await this.network.feeds(samples, place), this.network.weights);
  }
}

/** The single number of an output. */
export function scalar(out: Outputs, name: string): number {
  return (out[name] as Float32Array)[0];
}

/** The mean over batches. */
export function meanOf<M>(batches: readonly M[], of: (batch: M) => number): number {
  return batches.reduce((sum, batch) => sum + of(batch), 0) / batches.length;
}

/** Concatenates rows of equal length, repeated until there are `count`. */
export function repeatedRows(rows: readonly Float32Array[], count: number): Float32Array {
  const [{ length }] = rows;
  const out = new Float32Array(count * length);
  for (let i = 0; i < count; i++) out.set(rows[i % rows.length], i * length);
  return out;
}
