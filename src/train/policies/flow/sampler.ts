/** Samples a flow policy's answers: images from noise, step by step, with the log-probabilities of the noisy steps. */
import { RunError } from '../../../core/errors.js';
import type { RandomStream } from '../../../core/random.js';
import type { SessionOptions } from '../../../compute/onnx/session.js';
import type { Weights } from '../../../models/files.js';
import { velocityWidth } from '../../../compute/nets/flow/config.js';
import { flowInputs, velocity } from '../../../compute/nets/flow/transformer.js';
import type { SampleRequest } from '../policy.js';
import { SessionCache } from '../../../compute/onnx/session_cache.js';
import type { FlowAction, FlowAnswer, FlowRequest, FlowCondition, KeptImage } from './batch.js';
import { guidedNumbers, microBatches, modelFeeds, partOf, takesGuidance, unconditional, type FlowRow } from './rows.js';
import type { FlowModel } from './load.js';
import { gaussianOf, noisyRange, odeStep, sdeStep, type Gaussian, type NoisySteps, velocityGaussian } from './steps.js';
import { noisySteps } from '../../../config/schema/training.js';

/** How a flow policy samples. */
export interface FlowSampling extends NoisySteps {
  /** Noise levels from 1 down to 0, for an image with this many tokens. */
  readonly sigmas: (tokens: number) => readonly number[];
  /** Scale of the guidance. Null for none. */
  readonly guidance: number | null;
  /** Whether all answers to a prompt begin with the same noise. */
  readonly sameLatent: boolean;
  /** For a loss on the forward process: actions are noised images. Absent: actions are the solver's steps. */
  readonly noised?: NoisedImages;
}

export interface FlowSamplerOptions extends Pick<FlowModel, 'config' | 'adapter'> {
  /** Number of images that the model processes at once. */
  readonly batch: number;
  readonly session: SessionOptions;
}

/** An answer being sampled. */
interface Begun {
  readonly condition: FlowCondition;
  readonly stream: RandomStream;
  readonly noisy: readonly [number, number];
  /** Its initial noise. */
  readonly noise: Float32Array;
  x: Float32Array;
  readonly actions: FlowAction[];
  readonly logProbs: number[];
}

export class FlowSampler {
  readonly #sessions: SessionCache;

  constructor(private readonly options: FlowSamplerOptions) {
    this.#sessions = new SessionCache('velocity', options.session);
  }

  /** The model's output as it is, guided unless the model takes the scale as an input. */
  async velocities(rows: readonly FlowRow[], guidance: number | null, weights: Weights): Promise<Float32Array[]> {
    const { config } = this.options;
    const prediction = await this.#ask(rows, guidance, weights);
    if (guidance === null || takesGuidance(config)) return prediction;
    const without = await this.unguided(rows, weights);
    return prediction.map((v, i) => guidedNumbers(v, without[i], guidance, config));
  }

  /** The model's output without words and style. */
  unguided(rows: readonly FlowRow[], weights: Weights): Promise<Float32Array[]> {
    return this.#ask(
      rows.map((row) => ({ ...row, condition: unconditional(row.condition) })),
      null,
      weights,
    );
  }

  /**
   * Answers by prompt. All answers to a prompt share the positions of their noisy steps, drawn from the first answer's random stream. Raises RunError
   * when an image has numbers that are not finite, because they would look like a black image.
   */
  async sample(
    { prompts, answersPerPrompt, how, random }: Omit<SampleRequest<FlowRequest, FlowSampling>, 'weights' | 'among'>,
    weights: Weights,
  ): Promise<FlowAnswer[][]> {
    const begun = prompts.flatMap(({ flow }, p) => {
      const tokens = flow.rows * flow.columns;
      const size = tokens * velocityWidth(this.options.config);
      const noise = (stream: RandomStream): Float32Array => stream.normals(new Float32Array(size));
      const first = random(p, 0);
      const noisy = noisyRange(how.sigmas(tokens).length - 1, how, first.uniform());
      const shared = how.sameLatent ? noise(first) : null;
      return Array.from({ length: answersPerPrompt }, (_, g): Begun => {
        const stream = random(p, g);
        stream.uniform();
        const x = shared ?? noise(stream);
        return { condition: flow, stream, noisy, noise: x, x, actions: [], logProbs: [] };
      });
    });
    for (const { at } of microBatches(begun, this.options.config, this.options.batch)) {
      await this.#denoise(
        at.map((i) => begun[i]),
        how,
        weights,
      );
    }
    if (begun.some(({ x }) => !x.every(Number.isFinite))) {
      throw new RunError('the model diverged: its images have values that are not finite', {
        next: 'Resume from an earlier checkpoint with a lower optimizer.learning_rate or a smaller rollout.guidance_scale.',
      });
    }
    const answers = begun.map(({ x, condition, stream, actions, logProbs }): FlowAnswer => {
      if (how.noised === undefined) {
        return { latents: x, actions, logProbs: Float32Array.from(logProbs), finished: true };
      }
      const sigmas = how.sigmas(condition.rows * condition.columns);
      const drawn = noisedActions(x, levelsOf(sigmas, how.fraction, how.noised, stream), stream);
      return { latents: x, actions: drawn, logProbs: new Float32Array(drawn.length).fill(NaN), finished: true };
    });
    return prompts.map((_, p) => answers.slice(p * answersPerPrompt, (p + 1) * answersPerPrompt));
  }

  async dispose(): Promise<void> {
    await this.#sessions.dispose();
  }

  /** Denoises answers of one shape into images. */
  async #denoise(batch: readonly Begun[], how: FlowSampling, weights: Weights): Promise<void> {
    const [{ condition }] = batch;
    const sigmas = how.sigmas(condition.rows * condition.columns);
    for (let at = 0; at + 1 < sigmas.length; at++) {
      const rows = batch.map(({ condition: own, x }) => ({ condition: own, sigma: sigmas[at], x }));
      const velocities = await this.velocities(rows, how.guidance, weights);
      batch.forEach((one, i) => advance(one, velocities[i], sigmas, at, how.noiseLevel));
    }
  }

  async #ask(rows: readonly FlowRow[], guidance: number | null, weights: Weights): Promise<Float32Array[]> {
    const { config, adapter, batch } = this.options;
    const out = new Array<Float32Array>(rows.length);
    for (const { shape, at } of microBatches(rows, config, batch)) {
      const feeds = modelFeeds(
        at.map((i) => rows[i]),
        config,
        shape,
        guidance,
      );
      const found = await this.#sessions.use(
        shape,
        (graph) => ({ velocity: velocity(graph, config, shape, flowInputs(graph, config, shape), adapter) }),
        async (session) => (await session.run(feeds, weights)).velocity as Float32Array,
      );
      at.forEach((i, b) => (out[i] = partOf(found, b, shape.batch)));
    }
    return out;
  }
}

/** One step of one answer, in place. */
function advance(one: Begun, v: Float32Array, sigmas: readonly number[], at: number, noiseLevel: number): void {
  const isNoisy = at >= one.noisy[0] && at < one.noisy[1];
  const step = isNoisy ? sdeStep(sigmas, at, noiseLevel) : odeStep(sigmas, at);
  const { ofX, ofVelocity, deviation } = step;
  const { x } = one;
  const drawn = new Float32Array(x.length);
  if (deviation !== 0) one.stream.normals(drawn);
  for (let i = 0; i < x.length; i++) drawn[i] = ofX * x[i] + ofVelocity * v[i] + deviation * drawn[i];
  const { kept } = one.condition;
  one.x = kept === undefined ? drawn : blended(drawn, kept, one.noise, sigmas[at + 1]);
  if (!isNoisy) return;
  const gaussian = gaussianOf(step);
  one.actions.push({ sigma: step.sigma, x, drawn, gaussian });
  one.logProbs.push(logDensity(drawn, x, v, gaussian, kept));
}

/** The generated latents inside the mask. Outside, the kept image with the noise of this level. */
function blended(drawn: Float32Array, { shown, painted }: KeptImage, noise: Float32Array, level: number): Float32Array {
  return drawn.map((one, i) => (painted[i] === 1 ? one : (1 - level) * shown[i] + level * noise[i]));
}

/** Averaged over the elements, or over the painted ones only if a part is kept. */
export function logDensity(
  drawn: Float32Array,
  x: Float32Array,
  v: Float32Array,
  gaussian: Gaussian,
  kept?: KeptImage,
): number {
  const { ofX, ofVelocity, precision, offset } = gaussian;
  let [sum, count] = [0, 0];
  for (let i = 0; i < drawn.length; i++) {
    if (kept !== undefined && kept.painted[i] === 0) continue;
    sum += (drawn[i] - ofX * x[i] - ofVelocity * v[i]) ** 2;
    count += 1;
  }
  return offset - (precision * sum) / count;
}

export interface NoisedImages {
  /** Noise levels of one image. Null means all levels at which its solver's first steps begin. */
  readonly levels: number | null;
}

/** Levels at which the first floor(steps * fraction) steps of a schedule begin: all in their order, or the given number of them, drawn without replacement. */
export function levelsOf(
  sigmas: readonly number[],
  fraction: number,
  { levels }: NoisedImages,
  random: RandomStream,
): number[] {
  const all = sigmas.slice(0, noisySteps(sigmas.length - 1, fraction));
  if (levels === null) return all;
  return Array.from({ length: levels }, () => all.splice(random.integer(all.length), 1)[0]);
}

/** At each level t, with noise of its own: x_t = (1 - t) x0 + t eps and the velocity eps - x0. `image` is x0 [N, C]. */
export function noisedActions(image: Float32Array, levels: readonly number[], random: RandomStream): FlowAction[] {
  return levels.map((sigma) => {
    const noise = random.normals(new Float32Array(image.length));
    return {
      sigma,
      x: image.map((one, i) => (1 - sigma) * one + sigma * noise[i]),
      drawn: noise.map((eps, i) => eps - image[i]),
      gaussian: velocityGaussian,
    };
  });
}
