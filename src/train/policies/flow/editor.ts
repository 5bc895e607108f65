/** A frozen flow model that edits images, instructed by the hidden states of a vision-language model. */
import type { Planes } from '../../../core/images/planes.js';
import type { RandomStream } from '../../../core/random.js';
import type { HeldDtype } from '../../../core/safetensors.js';
import { frozenOptions } from '../../../compute/onnx/frozen_graph.js';
import type { SessionOptions } from '../../../compute/onnx/session.js';
import type { ImageCodec } from '../../environments/image_codec.js';
import type { HiddenStates } from '../tokens/hidden_states.js';
import type { LoadedFlowTransformer } from '../../../models/networks/flow.js';
import { openFlowModel, requireUnconditional } from './load.js';
import { flowModelTypes, type FlowModelTypeName } from './model_types.js';
import { unpack, pack, patchOf, type FlowCondition } from './batch.js';
import { takesGuidance, takesPooled } from './rows.js';
import { FlowSampler } from './sampler.js';
import { CheckpointError, InternalError } from '../../../core/errors.js';
import { takesSeveral, velocityWidth, type FlowTransformerConfig } from '../../../compute/nets/flow/config.js';

export interface EditorOptions {
  /** Decides the spacing of its noise levels. */
  readonly type: FlowModelTypeName;
  /** Steps of the solver. */
  readonly steps: number;
  /** Scale of classifier-free guidance. Null for none. */
  readonly guidance: number | null;
  /** Number of images that the model processes at once. */
  readonly batch: number;
  readonly session: SessionOptions;
  /** What its matrices are held in. Default: float32. */
  readonly held?: HeldDtype;
}

/** A request for an edit. */
export interface Edit {
  /** Latents of the image to edit. */
  readonly source: Planes;
  /** Latents of further images that it is shown, if `takesSeveral`. Absent: none. */
  readonly further?: readonly Planes[];
  /** States in place of text: as many tokens as there are, none of them padding. */
  readonly states: HiddenStates;
  /** The states of a blank instruction, if `asksBlank`. */
  readonly blank?: HiddenStates | null;
  /** Source of the initial noise. */
  readonly random: RandomStream;
}

export class FlowEditor {
  readonly #sampler: FlowSampler;
  readonly #sourceInput: SourceInput;

  /** Raises CheckpointError as `sourceInputOf` and `requireUnconditional`. */
  constructor(
    private readonly model: LoadedFlowTransformer,
    codec: Pick<ImageCodec, 'channels'>,
    private readonly options: EditorOptions,
    where: string,
  ) {
    this.#sourceInput = sourceInputOf(model.config, codec, where);
    requireUnconditional(model.config, options.guidance, 'environment');
    const session = frozenOptions(options.session, model.weights);
    this.#sampler = new FlowSampler({ ...model, batch: options.batch, session });
  }

  /** Raises CheckpointError as `openFlowModel` and `sourceInputOf` do. */
  static open(folder: string, codec: Pick<ImageCodec, 'channels'>, options: EditorOptions): FlowEditor {
    return new FlowEditor(
      openFlowModel(folder, () => options.held ?? 'float32'),
      codec,
      options,
      folder,
    );
  }

  /** Both sides of an image's latents are multiples of this. */
  get patch(): number {
    return this.#sourceInput.patch;
  }

  /** Whether it can be shown further images. */
  get takesSeveral(): boolean {
    return this.#sourceInput.several;
  }

  /**
   * Whether guidance is measured from the states of a blank instruction, as diffusers' pipelines do. A model that this program trained with a share
   * of edits without words learned to treat zeros as no instruction instead.
   */
  get asksBlank(): boolean {
    const { config } = this.model;
    return this.options.guidance !== null && !takesGuidance(config) && config.condition_dropout === null;
  }

  /**
   * Latents of the edited images. Raises CheckpointError when states do not have the width of the model's text; RunError as `FlowSampler.sample`
   * does.
   */
  async draw(edits: readonly Edit[]): Promise<Planes[]> {
    const { type, steps, guidance } = this.options;
    const prompts = edits.map(({ states, blank, source, further = [] }) => ({
      flow: editCondition(states, [source, ...further], this.#sourceInput, this.model.config, blank),
    }));
    const how = {
      sigmas: (tokens: number) => flowModelTypes[type].sigmas(steps, tokens),
      guidance,
      sameLatent: false,
      noiseLevel: 0,
      fraction: 0,
      window: null,
    };
    const random = (at: number): RandomStream => edits[at].random;
    const answers = await this.#sampler.sample({ prompts, answersPerPrompt: 1, how, random }, this.model.weights);
    return answers.map(([{ latents }], i) => unpack(latents, edits[i].source, this.patch));
  }

  async dispose(): Promise<void> {
    await this.#sampler.dispose();
  }
}

/** How a model is shown the image before the edit. */
export interface SourceInput {
  /** Side of a token's square of latents. */
  readonly patch: number;
  /** Whether the source is given as further channels of each latent or as further tokens. */
  readonly source: 'channels' | 'tokens';
  /** Whether further images, of any size, can be given after it. */
  readonly several: boolean;
}

/** Raises CheckpointError, naming `where`, for a model that was not made to edit latents of this codec. */
export function sourceInputOf(
  config: FlowTransformerConfig,
  { channels }: Pick<ImageCodec, 'channels'>,
  where: string,
): SourceInput {
  const width = velocityWidth(config);
  const patch = patchOf(config, { channels });
  const source =
    config.in_channels === 2 * width ? 'channels' : config.in_channels === width ? ('tokens' as const) : null;
  if (!Number.isInteger(patch) || source === null) {
    throw new CheckpointError(
      `the model takes tokens of ${config.in_channels} numbers and returns ${width}; latents have ${channels} channels`,
      { where, next: 'Name an editing model with its own autoencoder.' },
    );
  }
  if (takesPooled(config) || config.ip_adapter !== null) {
    throw new CheckpointError(
      'the model needs a pooled text vector or a style image, which hidden states do not provide',
      {
        where,
        next: 'Name a model that reads only text tokens, such as a QwenImageTransformer2DModel.',
      },
    );
  }
  return { patch, source, several: source === 'tokens' && takesSeveral(config) };
}

/** Texts are padded to a multiple of this, longer ones to an eighth of a power of two, to keep the number of compiled graphs small. */
const GRANULE = 16;

/** Number of columns that a text of this many tokens is padded to. It depends on that text alone. */
export function textColumns(tokens: number): number {
  const granule = Math.max(GRANULE, 2 ** Math.floor(Math.log2(tokens)) / 8);
  return Math.ceil(tokens / granule) * granule;
}

/**
 * @param sources latents of the images before the edit, of which the first has the size of the edited one
 * @param told the hidden states that replace the text
 * @param blank what guidance is measured from: the states of a blank instruction. Null if the model is not guided by these
 * Raises CheckpointError when the states do not have the width of the model's text.
 */
export function editCondition(
  told: HiddenStates,
  [source, ...further]: readonly [Planes, ...Planes[]],
  { patch, source: form, several }: SourceInput,
  config: Pick<FlowTransformerConfig, 'joint_attention_dim'>,
  blank: HiddenStates | null = null,
): FlowCondition {
  const shown = pack(source, patch);
  if (further.length > 0 && !several) throw new InternalError(`${1 + further.length} images for a model of one`);
  return {
    rows: source.height / patch,
    columns: source.width / patch,
    ...textOf(told, config),
    ...(blank === null ? {} : { without: textOf(blank, config) }),
    pooled: null,
    imageFeatures: null,
    ...(form === 'channels'
      ? { context: shown }
      : // Everything may change.
        { context: new Float32Array(0), kept: { shown, painted: new Float32Array(shown.length).fill(1) } }),
    ...(further.length === 0
      ? {}
      : {
          further: further.map((image) => ({
            rows: image.height / patch,
            columns: image.width / patch,
            shown: pack(image, patch),
          })),
        }),
  };
}

function textOf(
  { width, states }: HiddenStates,
  { joint_attention_dim: asked }: Pick<FlowTransformerConfig, 'joint_attention_dim'>,
): { readonly text: Float32Array; readonly textTokens: number } {
  if (width !== asked) {
    throw new CheckpointError(`hidden states have width ${width}, and the editing model expects ${asked}`, {
      next: 'Name the language model that the editing model was trained with.',
    });
  }
  const textTokens = states.length / width;
  const text = new Float32Array(textColumns(textTokens) * width);
  text.set(states);
  return { text, textTokens };
}
