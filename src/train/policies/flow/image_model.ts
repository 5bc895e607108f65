/** Makes images of prompts with a frozen flow model in this process. */
import { CheckpointError, must } from '../../../core/errors.js';
import { RandomStream } from '../../../core/random.js';
import { frozenOptions } from '../../../compute/onnx/frozen_graph.js';
import type { SessionOptions } from '../../../compute/onnx/session.js';
import type { ImageModel, MadeImage, ImageRequest } from '../../environments/image_model.js';
import type { ImageCodec } from '../../environments/image_codec.js';
import type { EncodedPrompt, PromptEncoder } from '../../environments/word_encoder.js';
import { maxSideTokens, pooledWidth, velocityWidth } from '../../../compute/nets/flow/config.js';
import type { LoadedFlowTransformer } from '../../../models/networks/flow.js';
import { type FlowRequest, patchOf, unpack } from './batch.js';
import { takesGuidance } from './rows.js';
import { FlowSampler, type FlowSampling } from './sampler.js';

/** How images are made. */
export interface ImageMaking extends Pick<FlowSampling, 'sigmas' | 'guidance'> {
  /** In pixels. */
  readonly width: number;
  readonly height: number;
  /** Number of images that the model processes at once. */
  readonly batch: number;
}

export interface FlowImageModelOptions {
  readonly model: LoadedFlowTransformer;
  readonly codec: ImageCodec;
  readonly encoder: PromptEncoder;
  readonly making: ImageMaking;
  readonly session: SessionOptions;
}

export class FlowImageModel implements ImageModel {
  readonly #sampler: FlowSampler;

  /** Raises CheckpointError for a model that paints into images, or was made for another encoder, autoencoder or size. */
  constructor(private readonly options: FlowImageModelOptions) {
    const { model, making } = options;
    requireFit(options);
    const session = frozenOptions(options.session, model.weights);
    this.#sampler = new FlowSampler({ ...model, batch: making.batch, session });
  }

  async generate(requests: readonly ImageRequest[]): Promise<MadeImage[]> {
    const { model, making, codec } = this.options;
    // Equal requests give one image: a policy that is sure repeats itself.
    const keys = requests.map(({ prompt, seed }) => `${seed} ${prompt}`);
    const first = new Map(keys.map((key, i) => [key, i] as const).reverse());
    const unique = [...new Set(keys)].map((key) => requests[must(first.get(key), key)]);
    const read = await Promise.all(unique.map(({ prompt }) => this.options.encoder.encode(prompt)));
    const blank = await this.#blank();
    const prompts = read.map((encoded) => this.#asked(encoded, blank));
    const how: FlowSampling = { ...making, noiseLevel: 0, fraction: 1, window: null, sameLatent: false };
    const random = (p: number): RandomStream => new RandomStream('picture', unique[p].seed);
    const answers = await this.#sampler.sample({ prompts, answersPerPrompt: 1, how, random }, model.weights);
    const size = latentSize(making, codec);
    const patch = patchOf(model.config, codec);
    const made = await codec.decode(answers.map(([{ latents }]) => unpack(latents, size, patch)));
    const byKey = new Map(
      [...new Set(keys)].map((key, i): [string, MadeImage] => {
        const { unread } = read[i];
        return [key, { kind: 'made', image: made[i], ...(unread === 0 ? {} : { unread }) }];
      }),
    );
    return keys.map((key) => must(byKey.get(key), key));
  }

  async close(): Promise<void> {
    const { codec, encoder } = this.options;
    await Promise.all([this.#sampler.dispose(), codec.dispose(), encoder.dispose()]);
  }

  /** The prompt from which guidance is measured. Null for zeros, which a model that this program trained without words on some images has learned. */
  async #blank(): Promise<EncodedPrompt | null> {
    const { model, encoder, making } = this.options;
    const { config } = model;
    if (making.guidance === null || takesGuidance(config) || config.condition_dropout !== null) return null;
    return (await encoder.blank?.()) ?? null;
  }

  #asked(encoded: EncodedPrompt, blank: EncodedPrompt | null): FlowRequest {
    const { model, codec, making } = this.options;
    const flow = flowCondition(encoded, latentSize(making, codec), patchOf(model.config, codec));
    return { flow: blank === null ? flow : { ...flow, without: { text: blank.text, pooled: blank.pooled } } };
  }
}

/** The conditioning of a model without an inpainting context. */
export function flowCondition(
  { text, pooled }: Pick<EncodedPrompt, 'text' | 'pooled'>,
  { width, height }: { readonly width: number; readonly height: number },
  patch: number,
): FlowRequest['flow'] {
  return {
    rows: height / patch,
    columns: width / patch,
    text,
    pooled,
    imageFeatures: null,
    context: new Float32Array(0),
  };
}

/** Size of an image's latents. */
export function latentSize(
  { width, height }: Pick<ImageMaking, 'width' | 'height'>,
  { channels, reduction }: Pick<ImageCodec, 'channels' | 'reduction'>,
): { readonly channels: number; readonly width: number; readonly height: number } {
  return { channels, width: width / reduction, height: height / reduction };
}

/** Raises CheckpointError when model, encoder, autoencoder and size do not match. */
export function requireFit({
  model: { config },
  codec,
  encoder,
  making: { width, height },
}: Pick<FlowImageModelOptions, 'codec' | 'encoder'> & {
  readonly model: Pick<LoadedFlowTransformer, 'config'>;
  readonly making: Pick<ImageMaking, 'width' | 'height'>;
}): void {
  const patch = patchOf(config, codec);
  const side = patch * codec.reduction;
  const pooled = pooledWidth(config);
  const problem =
    config.in_channels !== velocityWidth(config)
      ? `the model takes ${config.in_channels} numbers for a token and gives ${velocityWidth(config)}: it paints into images, and here it is shown none`
      : config.ip_adapter !== null
        ? 'the model needs a style image, which this environment does not have'
        : config.joint_attention_dim !== encoder.width || pooled !== encoder.pooledWidth
          ? `the model reads texts of width ${config.joint_attention_dim} and summaries of ${pooled}; its text encoder gives ${encoder.width} and ${encoder.pooledWidth}`
          : !Number.isInteger(patch)
            ? `the model gives ${velocityWidth(config)} numbers for a token, and latents have ${codec.channels} channels`
            : width % side !== 0 || height % side !== 0
              ? `an image of ${width}x${height} pixels is no whole number of tokens of ${side} pixels`
              : Math.max(width, height) > side * maxSideTokens(config)
                ? `an image of ${width}x${height} pixels, and the model has positions for ${maxSideTokens(config)} tokens of ${side} pixels on a side`
                : null;
  if (problem === null) return;
  throw new CheckpointError(problem, {
    where: 'model',
    next: 'Name the text encoder and the autoencoder that the model was trained with, and a size of whole tokens.',
  });
}
