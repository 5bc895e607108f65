/** The task of `ip_adapter`: inpainting samples, their conditions for the flow model, and its latents as pictures. */
import { belowFolder } from '../../config/hash.js';
import { CheckpointError, RunError } from '../../core/errors.js';
import type { RgbImage } from '../../core/image.js';
import { halfToFloat, narrow } from '../../core/safetensors.js';
import { readTriplet, styleCrop, type Triplet } from '../../data/inpainting.js';
import { requireWhole } from '../../data/inpainting_look.js';
import { createSampler, type Sampler } from '../../data/sampler.js';
import { openSelfBench, type InpaintSample } from '../../data/self_bench.js';
import type { SampleSource } from '../../data/types.js';
import { velocityWidth, type FlowTransformerConfig } from '../../nets/flow/config.js';
import type { FlowAnswer, FlowAsked } from '../../policies/flow/batch.js';
import { beside, pack, unpack, unshuffle, type Planes } from '../../policies/flow/packing.js';
import type { RecordedEpisode } from '../../run/episodes.js';
import type { Answers, Prompt, PromptSource, Rendered, Task } from '../../scoring/task.js';
import { nameSources, type NamedSource } from '../named_sources.js';
import { placesOf } from './data.js';
import { encodeLetters, encodeStyle, letterWidth, styleWidth, toImage, toPlanes } from './encoders.js';
import type { IpAdapterSettings } from './settings.js';

/** A prompt of the task, ready for the policy. */
export interface InpaintPrompt extends Prompt, FlowAsked {
  /** The context, and the wanted picture. */
  readonly pictures: Pick<Triplet, 'source' | 'ref'>;
  /** Of the latents. */
  readonly size: Omit<Planes, 'data'>;
}

const CHANNELS = 3;

export class InpaintTask implements Task<InpaintPrompt, FlowAnswer> {
  readonly validation: readonly PromptSource<InpaintPrompt>[];

  private constructor(
    readonly settings: IpAdapterSettings,
    private readonly config: FlowTransformerConfig,
    private readonly train: readonly SampleSource<InpaintSample>[],
    private readonly sampler: Sampler,
    /** Held-out samples, in the order of `validation`. */
    readonly heldOut: readonly NamedSource<SampleSource<InpaintSample>>[],
  ) {
    this.validation = heldOut.map(({ name, source }) => ({
      name,
      length: source.length,
      prompt: (index) => this.promptOf(source.read(index)),
    }));
  }

  /** Opens the datasets. Raises DataError naming what is missing. */
  static open(settings: IpAdapterSettings, config: FlowTransformerConfig): InpaintTask {
    const { data, seed } = settings;
    const placed = placesOf(settings);
    const places = placesRead(config);
    const open = ({ path }: { readonly path: string }): SampleSource<InpaintSample> =>
      openSelfBench(
        placed(path),
        (prompt, where) => void encodeLetters(prompt, places, where),
        belowFolder(data.dir, path),
      );
    const train = data.train.map(open);
    const coefficients = data.train.flatMap(({ coefficient }) => (coefficient === null ? [] : [coefficient]));
    const sampler = createSampler(train, { seed, coefficients });
    const heldOut = nameSources(
      data.validation.map(({ path }) => path),
      data.validation.map(open),
    );
    return new InpaintTask(settings, config, train, sampler, heldOut);
  }

  get promptsPerIteration(): number {
    const { episodes_per_iteration, generations_per_sample } = this.settings.rollout;
    return episodes_per_iteration / generations_per_sample;
  }

  /** The datasets in the order of the settings: those of `train`, then those of `validation`. */
  get sources(): readonly SampleSource<InpaintSample>[] {
    return [...this.train, ...this.heldOut.map(({ source }) => source)];
  }

  prompt(globalIndex: number): Promise<InpaintPrompt> {
    const place = this.sampler.at(globalIndex);
    return this.promptOf(this.train[place.source].read(place.index));
  }

  /** Raises DataError for a sample that cannot be read, whose sides are no whole patches, or whose prompt the model cannot read. */
  async promptOf(sample: InpaintSample): Promise<InpaintPrompt> {
    const triplet = await readTriplet(sample);
    const { width, height } = triplet.source;
    const patch = this.#patch;
    requireWhole(triplet.source, patch, sample.paths.source);
    return {
      id: sample.id,
      instruction: sample.prompt,
      sourcePng: () => Promise.resolve(sample.sourcePng),
      pictures: { source: triplet.source, ref: triplet.ref },
      size: { channels: CHANNELS, width, height },
      flow: {
        rows: height / patch,
        columns: width / patch,
        text: encodeLetters(sample.prompt, placesRead(this.config), sample.id),
        pooled: null,
        imageFeatures: this.#styleOf(sample, triplet),
        context: contextOf(triplet, patch),
      },
    };
  }

  /** The wanted picture as the model would leave it. */
  labelLatents({ pictures: { ref } }: InpaintPrompt): Float32Array {
    return pack(toPlanes(ref), this.#patch);
  }

  async render(chunk: readonly Answers<InpaintPrompt, FlowAnswer>[]): Promise<Rendered[][]> {
    return chunk.map(({ prompt, answers, keys }) =>
      answers.map(({ latents, finished }, i): Rendered => {
        const { instruction, size } = prompt;
        const { source, ref: truth } = prompt.pictures;
        // What is judged is what is recorded, so that it can be judged again.
        const half = narrow(latents, 'F16');
        const edited = toImage(unpack(fromHalves(half), size, this.#patch));
        return {
          item: { key: keys[i], instruction, source, truth, edited, finished },
          record: { latents: Buffer.from(half).toString('base64') },
          caption: instruction,
        };
      }),
    );
  }

  reread({ key, latents, finished }: RecordedEpisode): FlowAnswer {
    if (latents === undefined) throw new RunError('the record of an episode has no latents', { where: key });
    return {
      latents: fromHalves(Buffer.from(latents, 'base64')),
      actions: [],
      logProbs: new Float32Array(0),
      finished,
    };
  }

  async labels({ pictures }: InpaintPrompt): Promise<{ truth: RgbImage }> {
    return { truth: pictures.ref };
  }

  async dispose(): Promise<void> {}

  /** The side of a token's square, from the width of what the model gives. */
  get #patch(): number {
    return Math.sqrt(velocityWidth(this.config) / CHANNELS);
  }

  #styleOf(sample: InpaintSample, { ref, mask }: Triplet): Float32Array | null {
    if (this.config.ip_adapter === null) return null;
    return encodeStyle(styleCrop(ref, mask, this.settings.data.style_crop, sample.paths.ref));
  }
}

/** Numbers of half precision. */
function fromHalves(bytes: Uint8Array): Float32Array {
  return Float32Array.from(new Uint16Array(Uint8Array.from(bytes).buffer), halfToFloat);
}

/** Letters that a model reads. Raises CheckpointError for one that was not made for letters, pixels and the pixels of a style image. */
function placesRead(config: FlowTransformerConfig): number {
  const patch = Math.sqrt(velocityWidth(config) / CHANNELS);
  const places = config.joint_attention_dim - letterWidth(0);
  const isOurs =
    config.architecture === 'flux' &&
    config.pooled_projection_dim === 0 &&
    Number.isInteger(patch) &&
    config.in_channels === (2 * CHANNELS + 1) * patch ** 2 &&
    places > 0 &&
    (config.ip_adapter === null || config.ip_adapter.image_embed_dim === styleWidth);
  if (isOurs) return places;
  throw new CheckpointError('the model was made for other latents and encoders than those of model_type tiny', {
    where: 'policy.model',
    next: 'Name a model that ip_adapter_warmup.jsonnet made, or one like it.',
  });
}

/** [N, C'] beside the latents' tokens: the picture with what is to be painted left out, and the mask. */
function contextOf({ source, mask }: Triplet, patch: number): Float32Array {
  const { width, height } = source;
  const shown = toPlanes(source);
  const size = width * height;
  const kept = { ...shown, data: shown.data.map((value, at) => (mask.data[at % size] === 1 ? 0 : value)) };
  const masked: Planes = { channels: 1, width, height, data: Float32Array.from(mask.data) };
  return beside(size / patch ** 2, pack(kept, patch), pack(unshuffle(masked, 1), patch));
}

/** The architecture of a model from random weights for these settings. */
export function initConfig(init: NonNullable<IpAdapterSettings['policy']['init']>): FlowTransformerConfig {
  const {
    num_layers,
    num_single_layers,
    attention_head_dim,
    num_attention_heads,
    patch,
    text_length,
    prediction,
    ip_adapter,
  } = init;
  const pixels = CHANNELS * patch ** 2;
  const third = 2 * Math.floor(attention_head_dim / 6);
  return {
    architecture: 'flux',
    in_channels: 2 * pixels + patch ** 2,
    out_channels: pixels,
    num_layers,
    num_single_layers,
    attention_head_dim,
    num_attention_heads,
    joint_attention_dim: letterWidth(text_length),
    pooled_projection_dim: 0,
    guidance_embeds: false,
    prediction,
    condition_dropout: null,
    axes_dims_rope: [attention_head_dim - 2 * third, third, third],
    ip_adapter: ip_adapter === null ? null : { ...ip_adapter, image_embed_dim: styleWidth },
  };
}
