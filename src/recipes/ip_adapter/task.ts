/** The task of `ip_adapter`: inpainting samples, their conditions for the flow model, and its latents as images. */
import { belowFolder } from '../../config/hash.js';
import { encodePng, type RgbImage } from '../../core/images/image.js';
import type { Planes } from '../../core/images/planes.js';
import { type Mask, type Triplet, readTriplet, requireWhole, styleCrop } from '../../data/inpainting.js';
import { Datasets } from '../../data/datasets.js';
import { openSelfBench, type InpaintSample } from '../../data/self_bench.js';
import type { SampleSource } from '../../data/types.js';
import type { ImageCodec } from '../../train/environments/image_codec.js';
import { freshFlux, type FlowTransformerConfig } from '../../compute/nets/flow/config.js';
import {
  type FlowAnswer,
  type FlowCondition,
  concatChannels,
  pack,
  unpack,
  unshuffle,
} from '../../train/policies/flow/batch.js';
import { sampledSets, type SampledSet, type SampleRow } from '../../train/scoring/sample_rows.js';
import type { Answers, Rendered, Task } from '../../train/scoring/task.js';
import { asRecorded, type ImagePrompt } from '../shared/flow/answers.js';
import { FlowTask } from '../shared/flow/task.js';
import { signData } from '../../data/tiny/sign_scenes.js';
import { shownAs, type Conditions } from './conditions.js';
import { letterWidth, styleWidth, type IpAdapterSettings } from './settings.js';

/** A prompt of the task, ready for the policy. */
export interface InpaintPrompt extends ImagePrompt {
  /** The context, the wanted image, and the painted part in white. */
  readonly images: Pick<Triplet, 'source' | 'ref'> & { readonly mask: RgbImage };
  /** Size of the latents. */
  readonly size: Omit<Planes, 'data'>;
}

const KEPT_BYTES = 2 ** 27;
/** Replaces pixels that are to be painted: the middle of their range. */
const LEFT_OUT = 128;

/** Approximate size of a prompt: its images, words and context, and the wanted latents. */
function bytesOf({ images: { source, ref, mask }, flow, size }: InpaintPrompt): number {
  const floats = flow.text.length + flow.context.length + size.channels * size.width * size.height;
  return source.data.length + ref.data.length + mask.data.length + 4 * floats;
}

/** The first samples of each dataset, with the wanted image and the unchanged context. Raises DataError for one that cannot be read. */
export function sampleInpaints({ data }: Pick<IpAdapterSettings, 'data'>, count: number): Promise<SampledSet[]> {
  return signData.sampled({ data }, count, (place) =>
    sampledSets(data, async ({ path }) => {
      const source = openSelfBench(place(path), () => undefined, belowFolder(data.dir, path));
      const first = Array.from({ length: Math.min(count, source.length) }, (_, index) => source.read(index));
      return Promise.all(
        first.map(async (sample): Promise<SampleRow> => {
          const { source: context, ref, mask } = await readTriplet(sample);
          return {
            place: sample.paths.source,
            item: { instruction: sample.prompt, source: context, truth: ref, mask: blackAndWhite(mask) },
            answers: [
              { what: 'the wanted image', edited: ref },
              { what: 'the context, unchanged', edited: context },
            ],
          };
        }),
      );
    }),
  );
}

export class InpaintTask
  extends FlowTask<InpaintPrompt, SampleSource<InpaintSample>>
  implements Task<InpaintPrompt, FlowAnswer>
{
  private constructor(
    readonly settings: IpAdapterSettings,
    config: FlowTransformerConfig,
    private readonly codec: ImageCodec,
    private readonly conditions: Conditions,
    data: Datasets<SampleSource<InpaintSample>>,
  ) {
    super(data, config, { maxSize: KEPT_BYTES, sizeCalculation: bytesOf });
  }

  /** Opens the datasets. Raises DataError for missing files, and CheckpointError for a model that was made for other latents or encoders. */
  static open(
    settings: IpAdapterSettings,
    config: FlowTransformerConfig,
    codec: ImageCodec,
    conditions: Conditions,
  ): InpaintTask {
    const { dir } = settings.data;
    const placed = signData.placesOf(settings);
    shownAs(config, codec);
    conditions.requireFit(config);
    const data = Datasets.of(settings, ({ path }) =>
      openSelfBench(placed(path), (prompt, where) => conditions.check(prompt, where, config), belowFolder(dir, path)),
    );
    return new InpaintTask(settings, config, codec, conditions, data);
  }

  /** Also raises DataError for sides that are not whole patches. */
  protected override async promptOf(source: SampleSource<InpaintSample>, index: number): Promise<InpaintPrompt> {
    const sample = source.read(index);
    const { resolution } = this.settings.data;
    const triplet = await readTriplet(sample, resolution);
    const { width, height } = triplet.source;
    const patch = this.#patch;
    const { channels, reduction } = this.codec;
    requireWhole(triplet.source, patch * reduction, sample.paths.source);
    const size = { channels, width: width / reduction, height: height / reduction };
    let wanted: Promise<Float32Array> | null = null;
    const words = await this.conditions.text(sample.prompt, sample.id, this.config);
    return {
      id: sample.id,
      instruction: sample.prompt,
      sourcePng: () => (resolution === null ? Promise.resolve(sample.sourcePng) : encodePng(triplet.source)),
      images: { source: triplet.source, ref: triplet.ref, mask: blackAndWhite(triplet.mask) },
      size,
      wanted: () => (wanted ??= this.codec.encode([triplet.ref]).then(([planes]) => pack(planes, patch))),
      flow: {
        rows: size.height / patch,
        columns: size.width / patch,
        ...words,
        imageFeatures: await this.#styleOf(sample, triplet),
        ...(await this.#shownOf(triplet, size)),
      },
    };
  }

  async render(chunk: readonly Answers<InpaintPrompt, FlowAnswer>[]): Promise<Rendered[][]> {
    return Promise.all(
      chunk.map(async ({ prompt, answers, keys }) => {
        const { instruction, size } = prompt;
        const { source, ref: truth, mask } = prompt.images;
        // Judges the recorded form of the latents, so that it can be judged again.
        const kept = answers.map(({ latents }) => asRecorded(latents));
        const images = await this.codec.decode(kept.map(({ latents }) => unpack(latents, size, this.#patch)));
        return answers.map(({ finished }, i): Rendered => ({
          item: { key: keys[i], instruction, source, truth, mask, edited: images[i], finished },
          record: kept[i].record,
          caption: instruction,
        }));
      }),
    );
  }

  async labels({ images }: InpaintPrompt): Promise<{ truth: RgbImage; mask: RgbImage }> {
    return { truth: images.ref, mask: images.mask };
  }

  async dispose(): Promise<void> {
    await Promise.all([this.codec.dispose(), this.conditions.dispose()]);
  }

  /** The side of a token's square of latents. */
  get #patch(): number {
    return shownAs(this.config, this.codec).patch;
  }

  /**
   * The part of an image that stays, without the part to be painted: as channels of each latent with the mask of its pixels, or as further tokens.
   */
  async #shownOf(
    { source, mask }: Triplet,
    size: Omit<Planes, 'data'>,
  ): Promise<Pick<FlowCondition, 'context' | 'kept'>> {
    const { patch, form } = shownAs(this.config, this.codec);
    const { reduction } = this.codec;
    const { width, height, data } = mask;
    const left = source.data.map((value, at) => (data[Math.floor(at / 3)] === 1 ? LEFT_OUT : value));
    const [latents] = await this.codec.encode([{ width, height, data: left }]);
    const shown = pack(latents, patch);
    const masked: Planes = { channels: 1, width, height, data: Float32Array.from(data) };
    const places = unshuffle(masked, reduction);
    if (form === 'tokens') {
      const painted = pack({ ...size, data: paintedLatents(places, size.channels) }, patch);
      return { context: new Float32Array(0), kept: { shown, painted } };
    }
    const tokens = (size.width * size.height) / patch ** 2;
    return { context: concatChannels(tokens, shown, pack(places, patch)) };
  }

  async #styleOf(sample: InpaintSample, { stored: { ref, mask } }: Triplet): Promise<Float32Array | null> {
    if (this.config.ip_adapter === null) return null;
    return this.conditions.style(styleCrop(ref, mask, this.settings.data.style_crop, sample.paths.ref));
  }
}

function blackAndWhite({ width, height, data }: Mask): RgbImage {
  return {
    width,
    height,
    data: Uint8Array.from({ length: 3 * data.length }, (_, at) => 255 * data[Math.floor(at / 3)]),
  };
}

/** [channels, h, w]: 1 if any of a latent's pixels is to be painted. `places` has a plane for each of these pixels. */
export function paintedLatents({ channels: pixels, width, height, data }: Planes, channels: number): Float32Array {
  const size = width * height;
  const painted = new Float32Array(size);
  for (let p = 0; p < pixels; p++) {
    for (let at = 0; at < size; at++) painted[at] = Math.max(painted[at], data[p * size + at]);
  }
  return Float32Array.from({ length: channels * size }, (_, at) => painted[at % size]);
}

/** The architecture of a model with random weights for these settings. */
export function initConfig(
  init: NonNullable<IpAdapterSettings['policy']['init']>,
  { channels, reduction }: Pick<ImageCodec, 'channels' | 'reduction'>,
): FlowTransformerConfig {
  const { patch, text_length, ip_adapter } = init;
  const latents = channels * patch ** 2;
  return freshFlux(init, {
    in_channels: 2 * latents + (reduction * patch) ** 2,
    out_channels: latents,
    joint_attention_dim: letterWidth(text_length),
    pooled_projection_dim: 0,
    condition_dropout: null,
    ip_adapter: ip_adapter === null ? null : { ...ip_adapter, image_embed_dim: styleWidth },
  });
}
