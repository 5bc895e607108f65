/** Encodes a prompt and a style image for the flow model. */
import { CheckpointError, DataError, must } from '../../core/errors.js';
import type { RgbImage } from '../../core/images/image.js';
import type { StyleEncoder } from '../../train/environments/style_encoder.js';
import type { PromptEncoder } from '../../train/environments/word_encoder.js';
import type { ImageCodec } from '../../train/environments/image_codec.js';
import { pooledWidth, takesSecond, velocityWidth, type FlowTransformerConfig } from '../../compute/nets/flow/config.js';
import { type FlowCondition, patchOf } from '../../train/policies/flow/batch.js';
import { letterWidth, styleWidth, LETTERS, STYLE_SIDE } from './settings.js';
import { toUnit } from '../../core/images/planes.js';
import { targetOf } from '../../rewards/terms/ocr/similarity.js';

export interface Conditions {
  /** Width of a style image's features. Null if it is not encoded. */
  readonly styleWidth: number | null;
  /** Raises CheckpointError for a model that was made for other encoders. */
  requireFit(config: FlowTransformerConfig): void;
  /** Raises DataError, naming `where`, for a prompt that the model cannot read. */
  check(prompt: string, where: string, config: FlowTransformerConfig): void;
  text(prompt: string, where: string, config: FlowTransformerConfig): Promise<Pick<FlowCondition, 'text' | 'pooled'>>;
  style(image: RgbImage): Promise<Float32Array>;
  dispose(): Promise<void>;
}

/** Number of letters that a model reads. */
const placesOf = ({ joint_attention_dim }: FlowTransformerConfig): number => joint_attention_dim - letterWidth(0);

/** Without weights: the letters of the quoted word, and the pixels of the style image. */
export const tinyConditions: Conditions = {
  styleWidth,
  requireFit(config) {
    const pooled = pooledWidth(config);
    const style = config.ip_adapter?.image_embed_dim ?? styleWidth;
    if (placesOf(config) > 0 && pooled === 0 && style === styleWidth) return;
    throw new CheckpointError('the model was trained with encoders other than model_type tiny', {
      where: 'policy.model',
      next: 'Name a model that ip_adapter_warmup.jsonnet trained, or one like it.',
    });
  },
  check: (prompt, where, config) => void encodeLetters(prompt, placesOf(config), where),
  text: (prompt, where, config) =>
    Promise.resolve({ text: encodeLetters(prompt, placesOf(config), where), pooled: null }),
  style: (image) => Promise.resolve(encodeStyle(image)),
  dispose: () => Promise.resolve(),
};

/** Encoders of real size. */
export class ExportedConditions implements Conditions {
  constructor(
    private readonly words: PromptEncoder,
    private readonly images: StyleEncoder | null,
  ) {}

  get styleWidth(): number | null {
    return this.images?.width ?? null;
  }

  requireFit(config: FlowTransformerConfig): void {
    const pooled = pooledWidth(config);
    requireWidth('policy.parts.text_encoder', 'tokens', this.words.width, config.joint_attention_dim);
    requireWidth('policy.parts.text_encoder', 'summaries', this.words.pooledWidth, pooled);
    const style = config.ip_adapter?.image_embed_dim;
    if (style === undefined) return;
    if (this.images === null) {
      throw new CheckpointError('the model has an IP-Adapter, but no encoder of style images is set', {
        where: 'policy.parts.image_encoder',
        next: 'Name the folder of a CLIP or a SigLIP.',
      });
    }
    requireWidth('policy.parts.image_encoder', 'features', this.images.width, style);
  }

  check(prompt: string, where: string): void {
    if (prompt.trim() === '') throw new DataError('the prompt is empty', { where });
  }

  text(prompt: string): Promise<Pick<FlowCondition, 'text' | 'pooled'>> {
    return this.words.encode(prompt);
  }

  style(image: RgbImage): Promise<Float32Array> {
    return must(this.images, 'an image encoder').encode(image);
  }

  async dispose(): Promise<void> {
    await Promise.all([this.words.dispose(), this.images?.dispose()]);
  }
}

function requireWidth(part: string, what: string, found: number, expected: number): void {
  if (found === expected) return;
  throw new CheckpointError(`the encoder returns ${what} of ${found} numbers, but the model reads ${expected}`, {
    where: part,
    next: 'Name the encoder that the model was trained with.',
  });
}

/**
 * How a model is shown the part of an image that stays: as channels after those of each latent (FLUX.1 Fill and the tiny model), or as further tokens.
 * Raises CheckpointError for a model of other latents than the codec's.
 */
export function shownAs(
  config: FlowTransformerConfig,
  { channels, reduction }: Pick<ImageCodec, 'channels' | 'reduction'>,
): { readonly patch: number; readonly form: 'channels' | 'tokens' } {
  const patch = patchOf(config, { channels });
  const latents = channels * patch ** 2;
  const widths = { channels: 2 * latents + (reduction * patch) ** 2, tokens: latents } as const;
  const form = (['channels', 'tokens'] as const).find((one) => widths[one] === config.in_channels);
  if (form === 'tokens' && !takesSecond(config)) {
    throw new CheckpointError('the model has no positions for the kept image as further tokens', {
      where: 'policy.model',
      next: 'Name a model that gets the kept image as further channels or tokens, such as FLUX.1 Fill.',
    });
  }
  if (Number.isInteger(patch) && form !== undefined) return { patch, form };
  throw new CheckpointError(
    `the model takes ${config.in_channels} numbers for a token and gives ${velocityWidth(config)}, and latents have ${channels} channels for ${reduction}x${reduction} pixels`,
    {
      where: 'policy.model',
      next: `Name the autoencoder that the model was trained with in policy.parts.vae. A model takes ${widths.channels} numbers (latents, kept image and mask) or ${widths.tokens} (only latents) here.`,
    },
  );
}

/**
 * The quoted word of a prompt as [places, letterWidth]: the letter at each place, or none, and the place's index. Raises DataError for a prompt that
 * quotes nothing, for an unknown character and for a word that is too long.
 */
export function encodeLetters(prompt: string, places: number, where: string): Float32Array {
  const word = targetOf(prompt, where).toUpperCase();
  if (word.length > places) {
    throw new DataError(`'${word}' has ${word.length} letters; the model reads ${places}`, {
      where,
      next: 'Raise policy.init.text_length of the model, or remove this sample.',
    });
  }
  const width = letterWidth(places);
  const out = new Float32Array(places * width);
  for (let at = 0; at < places; at++) {
    const letter = at < word.length ? LETTERS.indexOf(word[at]) : LETTERS.length;
    if (letter < 0) {
      throw new DataError(`the prompt quotes ${JSON.stringify(word[at])}; allowed: letters and digits`, { where });
    }
    out[at * width + letter] = 1;
    out[at * width + LETTERS.length + 1 + at] = 1;
  }
  return out;
}

/** An image averaged down to a small square, from -1 to 1: [styleWidth] in the order (y, x, channel). */
export function encodeStyle({ width, height, data }: RgbImage): Float32Array {
  const out = new Float32Array(styleWidth);
  const bounds = (at: number, size: number): readonly [number, number] => {
    const from = Math.min(size - 1, Math.floor((at * size) / STYLE_SIDE));
    return [from, Math.max(from + 1, Math.floor(((at + 1) * size) / STYLE_SIDE))];
  };
  for (let y = 0; y < STYLE_SIDE; y++) {
    const [top, bottom] = bounds(y, height);
    for (let x = 0; x < STYLE_SIDE; x++) {
      const [left, right] = bounds(x, width);
      for (let c = 0; c < 3; c++) {
        let sum = 0;
        for (let j = top; j < bottom; j++) for (let i = left; i < right; i++) sum += data[(j * width + i) * 3 + c];
        out[(y * STYLE_SIDE + x) * 3 + c] = toUnit(sum / ((bottom - top) * (right - left)));
      }
    }
  }
  return out;
}
