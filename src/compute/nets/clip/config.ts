/**
 * The configs of models that compare texts with images, read from a Hugging Face `config.json`. Names and defaults are
 * those of transformers' configuration classes.
 */
import { z } from 'zod';
import { CheckpointError } from '../../../core/errors.js';

/** Activations of the feed-forward layers, as files name them. */
export const TOWER_ACTIVATIONS = ['quick_gelu', 'gelu', 'gelu_pytorch_tanh'] as const;
export type TowerActivation = (typeof TOWER_ACTIVATIONS)[number];

/** One half: a transformer with a norm before each layer. */
export interface TowerConfig {
  readonly hidden_size: number;
  readonly intermediate_size: number;
  readonly num_hidden_layers: number;
  readonly num_attention_heads: number;
  readonly hidden_act: TowerActivation;
  readonly layer_norm_eps: number;
}

/** The half that reads texts. */
export interface TextTowerConfig extends TowerConfig {
  readonly vocab_size: number;
  /** Tokens of a text, including begin, end and padding tokens. */
  readonly max_position_embeddings: number;
}

/** The vision half. */
export interface VisionTowerConfig extends TowerConfig {
  /** Side of an image in pixels. */
  readonly image_size: number;
  /** Side of the square of pixels that becomes one token. Pixels beyond the last whole square are ignored. */
  readonly patch_size: number;
}

/** CLIP (Radford et al., 2021). */
export interface ClipConfig {
  /** Width of the space in which texts and images are compared. */
  readonly projection_dim: number;
  readonly text: TextTowerConfig & {
    readonly bos_token_id: number;
    /**
     * The token whose first position summarizes a text. Older files have 2 for any vocabulary. The highest id of a
     * text then marks its end.
     */
    readonly eos_token_id: number;
  };
  readonly vision: VisionTowerConfig;
}

/** SigLIP (Zhai et al., 2023). */
export interface SiglipConfig {
  readonly text: TextTowerConfig & {
    /** Width of the space in which texts and images are compared: the width of the vision half. */
    readonly projection_size: number;
  };
  readonly vision: VisionTowerConfig & {
    /** Whether attention pools an image's tokens. Without it there is no image embedding. */
    readonly vision_use_head: boolean;
  };
}

/** Epsilon of the layer norms in both halves of CLIP, if a config has none. */
export const CLIP_EPS = 1e-5;

/** The id of the end token in older files, which is wrong for most vocabularies. See ClipConfig. */
export const LEGACY_END = 2;

/** The content of a folder's config.json, which Hugging Face reads as a CLIPModel's. */
export function clipConfigJson({ projection_dim, text, vision }: ClipConfig): string {
  const half = { projection_dim, attention_dropout: 0 };
  const json = {
    model_type: 'clip',
    architectures: ['CLIPModel'],
    projection_dim,
    text_config: { model_type: 'clip_text_model', ...half, ...text, pad_token_id: text.eos_token_id },
    vision_config: { model_type: 'clip_vision_model', ...half, num_channels: 3, ...vision },
  };
  return `${JSON.stringify(json, null, 2)}\n`;
}

/** By the `model_type` of config.json. */
export type EmbedderConfig =
  ({ readonly family: 'clip' } & ClipConfig) | ({ readonly family: 'siglip' } & SiglipConfig);
export type EmbedderFamily = EmbedderConfig['family'];
/** The vision half alone. */
export type ImageEncoderConfig =
  | ({ readonly family: 'clip' } & Pick<ClipConfig, 'vision' | 'projection_dim'>)
  | ({ readonly family: 'siglip' } & Pick<SiglipConfig, 'vision'>);

const size = z.int().positive();
const colours = z.literal(3, 'only 3 is supported: red, green and blue').default(3);

const layers = (usual: { readonly width: number; readonly heads: number; readonly act: TowerActivation }) => ({
  hidden_size: size.default(usual.width),
  intermediate_size: size.default(4 * usual.width),
  num_hidden_layers: size.default(12),
  num_attention_heads: size.default(usual.heads),
  hidden_act: z
    .enum(TOWER_ACTIVATIONS, {
      error: ({ input }) => `found ${JSON.stringify(input)}; allowed: ${TOWER_ACTIVATIONS.join(', ')}`,
    })
    .default(usual.act),
});
const words = (vocabulary: number, length: number) => ({
  vocab_size: size.default(vocabulary),
  max_position_embeddings: z.int().min(3).default(length),
});
const squares = (side: number) => ({
  num_channels: colours,
  image_size: size.default(224),
  patch_size: size.default(side),
});
const epsilon = (usual: number) =>
  z
    .number()
    .positive()
    .nullish()
    .transform((eps) => eps ?? usual);

/** Heads have one width. */
export function fitting<T extends z.ZodType<{ readonly hidden_size: number; readonly num_attention_heads: number }>>(
  schema: T,
): T {
  return schema.refine(({ hidden_size: width, num_attention_heads: heads }) => width % heads === 0, {
    error: ({ input }) => {
      const { hidden_size: width, num_attention_heads: heads } = input as z.output<T>;
      return `hidden_size ${width} is not a multiple of its ${heads} heads`;
    },
  });
}

/** CLIP's half that reads texts. */
export const clipText = z.object({
  ...layers({ width: 512, heads: 8, act: 'quick_gelu' }),
  ...words(49_408, 77),
  layer_norm_eps: epsilon(CLIP_EPS),
  bos_token_id: z.int().default(49_406),
  eos_token_id: z.int('must be a single id').default(49_407),
});
const clipVision = z.object({
  ...layers({ width: 768, heads: 12, act: 'quick_gelu' }),
  ...squares(32),
  layer_norm_eps: epsilon(CLIP_EPS),
});
const siglipText = z.object({
  ...layers({ width: 768, heads: 12, act: 'gelu_pytorch_tanh' }),
  ...words(32_000, 64),
  layer_norm_eps: epsilon(1e-6),
  projection_size: size.nullish(),
});
const siglipVision = z.object({
  ...layers({ width: 768, heads: 12, act: 'gelu_pytorch_tanh' }),
  ...squares(16),
  layer_norm_eps: epsilon(1e-6),
  vision_use_head: z.boolean().default(true),
});

type Json = Readonly<Record<string, unknown>>;

/**
 * The section of one half. As in transformers, `<half>_config_dict` takes precedence, with defaults for its absent
 * keys: early files have both.
 */
function sectionOf(json: Json, half: 'text' | 'vision', schema: z.ZodObject): object {
  const key = `${half}_config_dict`;
  const isOlder = (json[key] ?? null) !== null;
  return Object(isOlder ? z.object({ [key]: schema }).parse(json)[key] : json[`${half}_config`]) as object;
}

const families: Readonly<Record<EmbedderFamily, (json: Json) => EmbedderConfig>> = {
  clip: (json) => {
    const {
      projection_dim,
      text_config: text,
      vision_config: vision,
    } = z
      .object({
        projection_dim: size.default(512),
        text_config: fitting(clipText),
        vision_config: fitting(clipVision),
      })
      .parse({
        ...json,
        text_config: sectionOf(json, 'text', clipText),
        vision_config: sectionOf(json, 'vision', clipVision),
      });
    return { family: 'clip', projection_dim, text, vision };
  },
  siglip: ({ text_config = {}, vision_config = {} }) => {
    const { text_config: text, vision_config: vision } = z
      .object({ text_config: fitting(siglipText), vision_config: fitting(siglipVision) })
      .parse({ text_config: text_config ?? {}, vision_config: vision_config ?? {} });
    return {
      family: 'siglip',
      text: { ...text, projection_size: text.projection_size ?? text.hidden_size },
      vision,
    };
  },
};

/** Vision halves that are models of their own, by their `model_type`. */
const alone: Readonly<Record<`${EmbedderFamily}_vision_model`, (json: Json) => ImageEncoderConfig>> = {
  clip_vision_model: (json) => {
    const { projection_dim, ...vision } = fitting(clipVision.extend({ projection_dim: size.default(512) })).parse(json);
    return { family: 'clip', projection_dim, vision };
  },
  siglip_vision_model: (json) => ({ family: 'siglip', vision: fitting(siglipVision).parse(json) }),
};

/** The supported values of config.json's `model_type`. */
export const embedderTypes: readonly string[] = Object.keys(families);
/** The types of vision halves that are models of their own. */
export const imageEncoderTypes: readonly string[] = Object.keys(alone);

/** The remedies for known models of other types. */
const instead: Readonly<Record<string, string>> = {
  siglip2:
    'A siglip2 model processes images in their own aspect ratio (NaFlex), which is not supported. Name a checkpoint with one size, such as google/siglip2-base-patch16-224, whose model_type is siglip.',
};

/**
 * Reads a config.json. Raises CheckpointError, naming `where`, for another kind of model and for unsupported settings.
 */
export function readEmbedder(json: Json, where: string): EmbedderConfig {
  return read(json, where, families);
}

/** Reads the vision half of a config.json, from a whole model or a vision model. Raises the errors of `readEmbedder`. */
export function readImageEncoder(json: Json, where: string): ImageEncoderConfig {
  return read<ImageEncoderConfig>(json, where, { ...families, ...alone });
}

function read<T extends ImageEncoderConfig>(
  json: Json,
  where: string,
  readers: Readonly<Record<string, (json: Json) => T>>,
): T {
  const type = json['model_type'];
  if (typeof type !== 'string' || !Object.hasOwn(readers, type)) {
    const known = typeof type === 'string' && Object.hasOwn(instead, type) ? instead[type] : null;
    throw new CheckpointError(
      `model_type ${JSON.stringify(type)} is not supported; allowed: ${Object.keys(readers).join(', ')}`,
      { where, next: known ?? 'Name the folder of a CLIP or a SigLIP in the Hugging Face layout.' },
    );
  }
  try {
    const found = readers[type](json);
    requireSquare(found, where);
    return found;
  } catch (error) {
    if (!(error instanceof z.ZodError)) throw error;
    const [issue] = error.issues;
    throw new CheckpointError([issue.path.join('.'), issue.message].filter((part) => part !== '').join(': '), {
      where,
    });
  }
}

function requireSquare({ vision: { image_size: side, patch_size: patch } }: ImageEncoderConfig, where: string): void {
  if (patch <= side) return;
  throw new CheckpointError(`patch_size ${patch} is larger than the image size ${side}`, { where });
}
