/** The conditioning of a flow model that edits pictures: hidden states in place of text, and the picture before the edit. Pure functions. */
import { CheckpointError, InternalError } from '../../core/errors.js';
import type { Planes } from '../../core/planes.js';
import type { PictureCodec } from '../../environments/picture_codec.js';
import { takesSeveral, velocityWidth, type FlowTransformerConfig } from '../../nets/flow/config.js';
import type { HiddenStates } from '../tokens/hidden_states.js';
import type { FlowCondition } from './batch.js';
import { pack, patchOf } from './packing.js';
import { takesPooled } from './rows.js';

/** How a model is shown the picture before the edit. */
export interface SourceInput {
  /** Side of a token's square of latents. */
  readonly patch: number;
  /** Whether the source is given as further channels of each latent or as further tokens. */
  readonly source: 'channels' | 'tokens';
  /** Whether further pictures, of any size, can be given after it. */
  readonly several: boolean;
}

/** Raises CheckpointError, naming `where`, for a model that was not made to edit latents of this codec. */
export function sourceInputOf(
  config: FlowTransformerConfig,
  { channels }: Pick<PictureCodec, 'channels'>,
  where: string,
): SourceInput {
  const width = velocityWidth(config);
  const patch = patchOf(config, { channels });
  const source =
    config.in_channels === 2 * width ? 'channels' : config.in_channels === width ? ('tokens' as const) : null;
  if (!Number.isInteger(patch) || source === null) {
    throw new CheckpointError(
      `the model reads tokens of ${config.in_channels} and writes ${width}, over latents of ${channels} channels`,
      { where, next: 'Name a model that was trained to edit, with its own autoencoder.' },
    );
  }
  if (takesPooled(config) || config.ip_adapter !== null) {
    throw new CheckpointError('the model wants a summary of its text or a style image, which hidden states are not', {
      where,
      next: 'Name a model that reads text tokens alone, such as one of the class QwenImageTransformer2DModel.',
    });
  }
  return { patch, source, several: source === 'tokens' && takesSeveral(config) };
}

/** Texts are padded to a multiple of this, longer ones to an eighth of a power of two, to keep the number of compiled graphs small. */
const GRANULE = 16;

/** Number of columns that a text of this many tokens is padded to; it depends on that text alone. */
export function textColumns(tokens: number): number {
  const granule = Math.max(GRANULE, 2 ** Math.floor(Math.log2(tokens)) / 8);
  return Math.ceil(tokens / granule) * granule;
}

/**
 * @param sources latents of the pictures before the edit, of which the first has the size of the edited one
 * @param told the hidden states that replace the text
 * @param blank what guidance is measured from: the states of a blank instruction; null if the model is not guided by these
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
  if (further.length > 0 && !several) throw new InternalError(`${1 + further.length} pictures for a model of one`);
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
          further: further.map((picture) => ({
            rows: picture.height / patch,
            columns: picture.width / patch,
            shown: pack(picture, patch),
          })),
        }),
  };
}

function textOf(
  { width, states }: HiddenStates,
  { joint_attention_dim: asked }: Pick<FlowTransformerConfig, 'joint_attention_dim'>,
): { readonly text: Float32Array; readonly textTokens: number } {
  if (width !== asked) {
    throw new CheckpointError(`hidden states are ${width} wide, and the model that draws reads ${asked}`, {
      next: 'Name the model that the drawing one was trained on.',
    });
  }
  const textTokens = states.length / width;
  const text = new Float32Array(textColumns(textTokens) * width);
  text.set(states);
  return { text, textTokens };
}
