/** Edits of flow models as conditions: the source image and the instruction. A frozen model that edits by hidden states. */
import type { Planes } from '../../../core/images/planes.js';
import type { RandomStream } from '../../../core/random.js';
import type { StorageDtype } from '../../../core/safetensors.js';
import { frozenOptions } from '../../../compute/onnx/frozen_graph.js';
import type { SessionOptions } from '../../../compute/onnx/session.js';
import type { ImageCodec } from '../../environments/image_codec.js';
import type { EncodedPrompt, PromptEncoder } from '../../environments/word_encoder.js';
import type { HiddenStates } from '../tokens/hidden_states.js';
import type { LoadedFlowTransformer } from '../../../models/networks/flow.js';
import { openFlowModel, requireUnconditional } from './load.js';
import { flowModelTypes, type FlowModelTypeName } from './model_types.js';
import { unpack, pack, patchOf, type FlowCondition } from './batch.js';
import { takesGuidance, takesPooled } from './rows.js';
import { FlowSampler } from './sampler.js';
import { CheckpointError, InternalError } from '../../../core/errors.js';
import {
  pooledWidth,
  takesSecond,
  mostSources,
  velocityWidth,
  type FlowTransformerConfig,
} from '../../../compute/nets/flow/config.js';

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
  /** The number format of its matrices in memory. Default: float32. */
  readonly held?: StorageDtype;
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

  /** Raises CheckpointError as `sourceInputOf`, `requireReadsStates` and `requireUnconditional`. */
  constructor(
    private readonly model: LoadedFlowTransformer,
    codec: Pick<ImageCodec, 'channels'>,
    private readonly options: EditorOptions,
    where: string,
  ) {
    this.#sourceInput = sourceInputOf(model.config, codec, where);
    requireReadsStates(model.config, where);
    requireUnconditional(model.config, options.guidance, 'environment');
    const session = frozenOptions(options.session, model.weights);
    this.#sampler = new FlowSampler({ ...model, batch: options.batch, session });
  }

  /** Raises CheckpointError as `openFlowModel` and the constructor do. */
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
   * Latents of the edited images. Raises CheckpointError when states do not have the width of the model's text, and the RunErrors of
   * `FlowSampler.sample`.
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

/**
 * The images that a model gets before an edit: FLUX.1-Kontext and Qwen-Image-Edit read them as further tokens, models of this program as further
 * channels. Raises CheckpointError, naming `where`, for a model that does not edit latents of this codec.
 */
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
  if (config.ip_adapter !== null || (source === 'tokens' && !takesSecond(config))) {
    throw new CheckpointError(
      config.ip_adapter !== null
        ? 'the model needs a style image, which an edit does not have'
        : 'the model has no positions for a source image',
      { where, next: 'Name an editing model, such as FLUX.1-Kontext or Qwen-Image-Edit.' },
    );
  }
  return { patch, source, several: imagesRead(config) > 1 };
}

/** Maximum number of source images of a model. A model that gets a source as further channels reads one. */
export function imagesRead(config: FlowTransformerConfig): number {
  return config.in_channels === velocityWidth(config) ? mostSources(config) : 1;
}

/** Raises CheckpointError, naming `where`, for a model that needs more than hidden states: FLUX also reads a pooled text vector. */
export function requireReadsStates(config: FlowTransformerConfig, where: string): void {
  if (!takesPooled(config)) return;
  throw new CheckpointError('the model needs a pooled text vector, which hidden states do not provide', {
    where,
    next: 'Name a model that reads only text tokens, such as a QwenImageTransformer2DModel.',
  });
}

/** Raises CheckpointError, naming `where`, for a model that was trained with another text encoder. */
export function requireReadsEncoded(
  config: FlowTransformerConfig,
  encoder: Pick<PromptEncoder, 'width' | 'pooledWidth'>,
  where: string,
): void {
  const [width, pooled] = [config.joint_attention_dim, pooledWidth(config)];
  if (encoder.width === width && encoder.pooledWidth === pooled) return;
  throw new CheckpointError(
    `the text encoder returns tokens of ${encoder.width} numbers and a pooled vector of ${encoder.pooledWidth}; the model expects ${width} and ${pooled}`,
    { where, next: 'Name the text encoder that the model was trained with.' },
  );
}

/** Texts are padded to a multiple of this, longer ones to an eighth of a power of two, to keep the number of compiled graphs small. */
const GRANULE = 16;

/** Number of columns that a text of this many tokens is padded to. It depends on that text alone. */
export function textColumns(tokens: number): number {
  const granule = Math.max(GRANULE, 2 ** Math.floor(Math.log2(tokens)) / 8);
  return Math.ceil(tokens / granule) * granule;
}

/** An instruction: the hidden states of a vision-language model, or the result of a model's own text encoder. */
export type EditText = HiddenStates | Pick<EncodedPrompt, 'text' | 'pooled'>;

/**
 * An edited image has the size of its source, which keeps its own: any size of whole tokens, so a dataset may mix aspect ratios. FLUX.1-Kontext's
 * pipeline instead scales sources to one of 17 sizes of about a megapixel. Resize a dataset to these for the sizes of its training.
 *
 * @param sources latents of the images before the edit, of which the first has the size of the edited one
 * @param blank the instruction that guidance starts from. Null if guidance starts from zeros, or is an input of the model
 * Raises CheckpointError when the text does not have the width of the model's text.
 */
export function editCondition(
  instruction: EditText,
  [source, ...further]: readonly [Planes, ...Planes[]],
  { patch, source: form, several }: SourceInput,
  config: FlowTransformerConfig,
  blank: EditText | null = null,
): FlowCondition {
  const shown = pack(source, patch);
  if (further.length > 0 && !several) throw new InternalError(`${1 + further.length} images for a model of one`);
  return {
    rows: source.height / patch,
    columns: source.width / patch,
    ...textOf(instruction, config),
    ...(blank === null ? {} : { without: textOf(blank, config) }),
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

/** The tokens and the pooled vector of an instruction. Encoders have padded theirs, which models read as it is. */
function textOf(
  instruction: EditText,
  config: FlowTransformerConfig,
): Pick<FlowCondition, 'text' | 'textTokens' | 'pooled'> {
  if ('text' in instruction) {
    const { text, pooled } = instruction;
    const expected = pooledWidth(config);
    if (text.length % config.joint_attention_dim !== 0 || (pooled?.length ?? 0) !== expected) {
      throw new InternalError(`a text of ${text.length} numbers and a pooled vector of ${pooled?.length ?? 0}`);
    }
    return { text, pooled: expected === 0 ? null : pooled };
  }
  const { width, states } = instruction;
  if (width !== config.joint_attention_dim) {
    throw new CheckpointError(
      `hidden states have width ${width}, and the editing model expects ${config.joint_attention_dim}`,
      { next: 'Name the language model that the editing model was trained with.' },
    );
  }
  const textTokens = states.length / width;
  const text = new Float32Array(textColumns(textTokens) * width);
  text.set(states);
  return { text, textTokens, pooled: null };
}
