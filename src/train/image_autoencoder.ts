/** Training of the autoencoder of latent diffusion: pictures through latents that are drawn around what its encoder says (Kingma and Welling, 2014). */
import { DataError } from '../core/errors.js';
import { decodeImage } from '../core/image.js';
import { RandomStream } from '../core/random.js';
import { createSampler, type Sampler } from '../data/sampler.js';
import type { InpaintSample } from '../data/self_bench.js';
import type { SampleSource } from '../data/types.js';
import { learningRateAt, type ScheduleOptions } from '../engines/onnx/optimizer.js';
import { Session, type SessionOptions } from '../engines/onnx/session.js';
import { TrainedWeights } from '../engines/onnx/trained_weights.js';
import { toPlanes } from '../core/planes.js';
import { gradients } from '../graph/differentiate.js';
import { Graph, type Value } from '../graph/ir.js';
import { CONFIG_FILE, type CheckpointFiles } from '../models/files.js';
import { initAutoencoder } from '../nets/autoencoder/autoencoder.js';
import { autoencoderConfigJson, reduction, type AutoencoderConfig } from '../nets/autoencoder/config.js';
import { autoencoderLoss } from '../nets/autoencoder/loss.js';
import { GRADIENT } from '../policies/backward.js';
import type { Metrics } from '../run/metrics.js';
import type { SftSettings } from '../schema/algorithm.js';
import type { AutoencoderInit } from '../schema/model.js';
import type { OptimizerSettings, ValidationSettings } from '../schema/training.js';
import { EarlyStopping } from './early_stopping.js';
import { psnr } from './image_tokenizer.js';
import type { Training } from './loop.js';
import { readTrainerState, trainerFile } from './trainer_state.js';

export interface ImageAutoencoderDeps {
  readonly seed: number;
  readonly init: AutoencoderInit;
  readonly optimizer: OptimizerSettings;
  readonly schedule: ScheduleOptions;
  readonly klWeight: number;
  readonly sft: Pick<SftSettings['sft'], 'batch_size' | 'patience' | 'min_delta'>;
  readonly data: {
    readonly train: readonly SampleSource<InpaintSample>[];
    /** How often the samples of each of `train` are seen; none: all as often as the largest. */
    readonly coefficients: readonly number[];
    readonly validation: readonly SampleSource<InpaintSample>[];
  };
  readonly validation: Pick<ValidationSettings, 'prompts'>;
  readonly session: SessionOptions;
}

/** Of so many pictures one is a context: what is to be painted over has latents, too. */
const CONTEXT_EVERY = 8;
/** How slowly the measured spread of latents forgets, a step. */
const SPREAD_DECAY = 0.99;

/** Height and width in pixels. */
type Sides = readonly [height: number, width: number];

export class ImageAutoencoderTraining implements Training {
  readonly #stopping: EarlyStopping;
  readonly #sampler: Sampler;
  /** Mean square of the encoder's means, over the latest batches; null before the first. */
  #spread: number | null = null;

  private constructor(
    private readonly deps: ImageAutoencoderDeps,
    private readonly sides: Sides,
    private readonly trained: TrainedWeights,
    private readonly session: Session,
    private readonly noise: number,
  ) {
    this.#stopping = new EarlyStopping(deps.sft);
    this.#sampler = createSampler(deps.data.train, { seed: deps.seed, coefficients: deps.data.coefficients });
  }

  async restore(checkpoint: string): Promise<void> {
    const state = readTrainerState(checkpoint);
    this.#stopping.restore(state);
    this.#spread = state.latent_mean_square ?? null;
    this.trained.restore(checkpoint, state.optimizer_steps);
  }

  /** Compiles the step for pictures of the first one's size. Raises DataError where that is no whole number of latents. */
  static async open(deps: ImageAutoencoderDeps): Promise<ImageAutoencoderTraining> {
    const { init, optimizer, seed, sft, session, klWeight } = deps;
    const config = configOf(init, 1);
    const first = deps.data.train[0].read(0);
    const { height, width } = await decodeImage(first.refPng, first.paths.ref);
    const factor = reduction(config);
    if (height % factor !== 0 || width % factor !== 0) {
      throw new DataError(`a picture of ${width}x${height} pixels is no whole number of latents of ${factor} pixels`, {
        where: first.paths.ref,
        next: `Bring the pictures to sides that are multiples of ${factor}, or take fewer levels (environment.init.block_out_channels).`,
      });
    }
    const graph = new Graph('autoencoder');
    const pictures = graph.input('pictures', [sft.batch_size, config.in_channels, height, width]);
    const noise = graph.input('noise', [sft.batch_size, config.latent_channels, height / factor, width / factor]);
    const { loss, reconstruction, meanSquare } = autoencoderLoss(config, pictures, noise, klWeight);
    const trained = [...graph.parameters];
    const found = gradients(
      loss,
      trained.map(([, value]) => value),
    );
    const outputs: Record<string, Value> = { loss, reconstruction, meanSquare };
    trained.forEach(([name], i) => (outputs[`${GRADIENT}${name}`] = found[i]));
    return new ImageAutoencoderTraining(
      deps,
      [height, width],
      new TrainedWeights(initAutoencoder(config, seed), optimizer),
      await Session.compile(graph, outputs, session),
      noise.size,
    );
  }

  async step(iteration: number): Promise<Metrics> {
    const start = performance.now();
    const { sft, data, seed, schedule } = this.deps;
    const size = sft.batch_size;
    const batch = await Promise.all(
      Array.from({ length: size }, (_, i) => {
        const at = (iteration - 1) * size + i;
        const { source, index } = this.#sampler.at(at);
        return this.#planes(
          data.train[source].read(index),
          at % CONTEXT_EVERY === CONTEXT_EVERY - 1 ? 'source' : 'ref',
        );
      }),
    );
    const random = new RandomStream(seed, 'latents', iteration);
    const noise = Float32Array.from({ length: this.noise }, () => random.normal());
    const { loss, meanSquare, gradient } = await this.#run(batch, noise);
    const learningRate = learningRateAt(this.trained.steps, schedule);
    const { gradNorm } = this.trained.step(gradient, learningRate);
    this.#spread = this.#spread === null ? meanSquare : SPREAD_DECAY * this.#spread + (1 - SPREAD_DECAY) * meanSquare;
    return {
      'policy/loss': loss,
      'policy/grad_norm': gradNorm,
      'policy/learning_rate': learningRate,
      'time/total': (performance.now() - start) / 1000,
    };
  }

  /** The error of pictures that are decoded from the encoder's means. */
  async evaluate(iteration: number): Promise<Metrics> {
    const { sft, data, validation } = this.deps;
    const size = sft.batch_size;
    const places = data.validation.flatMap((source) => {
      const count = Math.min(source.length, Math.max(size, validation.prompts));
      return Array.from({ length: count }, (_, index) => ({ source, index }));
    });
    // Without held-out data there is nothing to measure.
    if (places.length === 0) return {};
    const noise = new Float32Array(this.noise);
    let [sum, batches] = [0, 0];
    // Whole batches alone, so that no picture counts twice; a set smaller than a batch is one batch.
    for (let start = 0; start === 0 || start + size <= places.length; start += size) {
      const part = places.slice(start, start + size);
      const pictures = await Promise.all(part.map(({ source, index }) => this.#planes(source.read(index), 'ref')));
      sum += (await this.#run(pictures, noise)).reconstruction;
      batches += 1;
    }
    const error = sum / batches;
    if (iteration > 0) this.#stopping.note(iteration, error);
    // Of pixels from 0 to 1, as it is commonly told.
    return { 'validation/loss': error, 'validation/psnr': psnr(error / 4) };
  }

  shouldStop(): string | null {
    const flat = this.#stopping.exhausted;
    return flat === null ? null : `the held-out error has been flat for ${flat} validations`;
  }

  /** Its config.json says by what latents are to be multiplied to have the spread that noise has. */
  async files(iteration: number): Promise<CheckpointFiles> {
    const spread = this.#spread ?? 1;
    return {
      [CONFIG_FILE]: autoencoderConfigJson(configOf(this.deps.init, 1 / Math.sqrt(spread))),
      ...this.trained.files(),
      ...trainerFile({
        iteration,
        optimizer_steps: this.trained.steps,
        ...(this.#spread === null ? {} : { latent_mean_square: this.#spread }),
        ...this.#stopping.state,
      }),
    };
  }

  async checksum(): Promise<string> {
    return this.trained.checksum();
  }

  dispose(): Promise<void> {
    return this.session.dispose();
  }

  /** [3, height, width] in [-1, 1]. Raises DataError for a picture of another size than the first. */
  async #planes(sample: InpaintSample, member: 'ref' | 'source'): Promise<Float32Array> {
    const picture = await decodeImage(member === 'ref' ? sample.refPng : sample.sourcePng, sample.paths[member]);
    const [height, width] = this.sides;
    if (picture.height === height && picture.width === width) return toPlanes(picture).data;
    throw new DataError(
      `a picture of ${picture.width}x${picture.height} pixels among pictures of ${width}x${height}: an autoencoder is trained on one size`,
      { where: sample.paths[member], next: 'Bring the pictures to one size.' },
    );
  }

  async #run(
    batch: readonly Float32Array[],
    noise: Float32Array,
  ): Promise<{ loss: number; reconstruction: number; meanSquare: number; gradient: Map<string, Float32Array> }> {
    const [{ length }] = batch;
    const pictures = new Float32Array(this.deps.sft.batch_size * length);
    for (let i = 0; i < this.deps.sft.batch_size; i++) pictures.set(batch[i % batch.length], i * length);
    const out = await this.session.run({ pictures, noise }, this.trained.weights);
    const scalar = (name: string): number => (out[name] as Float32Array)[0];
    const found = Object.entries(out).filter(([name]) => name.startsWith(GRADIENT));
    return {
      loss: scalar('loss'),
      reconstruction: scalar('reconstruction'),
      meanSquare: scalar('meanSquare'),
      gradient: new Map(found.map(([name, value]) => [name.slice(GRADIENT.length), value as Float32Array])),
    };
  }
}

function configOf(init: AutoencoderInit, scale: number): AutoencoderConfig {
  return {
    in_channels: 3,
    out_channels: 3,
    ...init,
    scaling_factor: scale,
    shift_factor: 0,
    use_quant_conv: false,
    use_post_quant_conv: false,
  };
}
