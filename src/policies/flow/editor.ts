/** A frozen flow model that edits pictures, told what to do by the hidden states of a model that reads and sees. */
import { CheckpointError } from '../../core/errors.js';
import type { RgbImage } from '../../core/image.js';
import type { RandomStream } from '../../core/random.js';
import type { SessionOptions } from '../../engines/onnx/session.js';
import type { PictureCodec } from '../../environments/picture_codec.js';
import { velocityWidth } from '../../nets/flow/config.js';
import type { LoadedFlowTransformer } from '../../nets/flow/files.js';
import type { HiddenStates } from '../tokens/hidden_states.js';
import type { FlowCondition } from './batch.js';
import { openFlowModel } from './load.js';
import { flowModelTypes, type FlowModelTypeName } from './model_types.js';
import { pack, patchOf, unpack } from './packing.js';
import { takesPooled } from './rows.js';
import { FlowSampler } from './sampler.js';

export interface EditorOptions {
  /** How its noise levels are spaced. */
  readonly type: FlowModelTypeName;
  /** Steps of the solver. */
  readonly steps: number;
  /** Pictures that the model sees at once. */
  readonly batch: number;
  readonly session: SessionOptions;
}

/** An edit that is asked for. */
export interface Edit {
  readonly source: RgbImage;
  /** In the place of text: as many tokens as it has, of which none is padding. */
  readonly told: HiddenStates;
  /** Of the noise that it begins with. */
  readonly random: RandomStream;
}

export class FlowEditor {
  readonly #sampler: FlowSampler;
  /** Side of a token's square of latents. */
  readonly #patch: number;
  /** Whether the source stands beside each latent; else it is shown as further tokens. */
  readonly #isBeside: boolean;

  /** Raises CheckpointError, naming `where`, for a model that was not made to edit latents of this codec. */
  constructor(
    private readonly model: LoadedFlowTransformer,
    private readonly codec: PictureCodec,
    private readonly options: EditorOptions,
    where: string,
  ) {
    const { config } = model;
    const width = velocityWidth(config);
    this.#patch = patchOf(config, codec);
    this.#isBeside = config.in_channels === 2 * width;
    const takesTokens = config.in_channels === width;
    if (!Number.isInteger(this.#patch) || !(this.#isBeside || takesTokens)) {
      throw new CheckpointError(
        `the model reads tokens of ${config.in_channels} and writes ${width}, over latents of ${codec.channels} channels`,
        { where, next: 'Name a model that was trained to edit, with its own autoencoder.' },
      );
    }
    if (takesPooled(config) || config.ip_adapter !== null) {
      throw new CheckpointError('the model wants a summary of its text or a style image, which hidden states are not', {
        where,
        next: 'Name a model that reads text tokens alone, such as one of the class QwenImageTransformer2DModel.',
      });
    }
    this.#sampler = new FlowSampler({ config, batch: options.batch, session: options.session });
  }

  /** Raises CheckpointError as `openFlowModel` and the constructor do. */
  static open(folder: string, codec: PictureCodec, options: EditorOptions): FlowEditor {
    return new FlowEditor(openFlowModel(folder), codec, options, folder);
  }

  /** Raises CheckpointError for states of another width than the model's text; RunError as `FlowSampler.sample`. */
  async edit(edits: readonly Edit[]): Promise<RgbImage[]> {
    const { type, steps } = this.options;
    const sources = await this.codec.encode(edits.map(({ source }) => source));
    const prompts = sources.map((planes, i) => ({
      flow: this.#condition(edits[i].told, pack(planes, this.#patch), planes),
    }));
    const how = {
      sigmas: (tokens: number) => flowModelTypes[type].sigmas(steps, tokens),
      guidance: null,
      sameLatent: false,
      noiseLevel: 0,
      fraction: 0,
      window: null,
    };
    const random = (at: number): RandomStream => edits[at].random;
    const answers = await this.#sampler.sample({ prompts, answersPerPrompt: 1, how, random }, this.model.weights);
    return this.codec.decode(answers.map(([{ latents }], i) => unpack(latents, sources[i], this.#patch)));
  }

  async dispose(): Promise<void> {
    await this.#sampler.dispose();
  }

  #condition(
    { width, states }: HiddenStates,
    shown: Float32Array,
    { width: wide, height: high }: { readonly width: number; readonly height: number },
  ): FlowCondition {
    const { joint_attention_dim: asked } = this.model.config;
    if (width !== asked) {
      throw new CheckpointError(`hidden states are ${width} wide, and the model that draws reads ${asked}`, {
        next: 'Name the model that the drawing one was trained on.',
      });
    }
    return {
      rows: high / this.#patch,
      columns: wide / this.#patch,
      text: states,
      pooled: null,
      imageFeatures: null,
      ...(this.#isBeside
        ? { context: shown }
        : // Everything may change.
          { context: new Float32Array(0), kept: { shown, painted: new Float32Array(shown.length).fill(1) } }),
    };
  }
}
