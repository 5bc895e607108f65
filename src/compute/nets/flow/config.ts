/** The config of a flow-matching transformer, with the names of diffusers' `config.json`, and which of these transformers are supported. */
import { z } from 'zod';
import { CheckpointError, GraphError, must } from '../../../core/errors.js';

/** An IP-Adapter (Ye et al., "IP-Adapter", 2023): a style image as further tokens that the image attends to, apart from the text. */
export interface IpAdapterConfig {
  /** Tokens that a style image becomes. */
  readonly tokens: number;
  /** Width of the style image's features. */
  readonly image_embed_dim: number;
  /** The factor of its attention. */
  readonly scale: number;
}

interface Sizes {
  /** Width of an input image token, including masks and other channels. */
  readonly in_channels: number;
  readonly out_channels: number;
  /** Blocks with weights of their own for text and image. */
  readonly num_layers: number;
  readonly attention_head_dim: number;
  readonly num_attention_heads: number;
  /** Width of a text token. */
  readonly joint_attention_dim: number;
  /** Null: none. */
  readonly ip_adapter: IpAdapterConfig | null;
  /**
   * The output of the last layer: the velocity itself, or the clean sample x0, from which the velocity is computed.
   * diffusers does not have the latter. Noise fills all dimensions and clean samples only few, so a narrow model may
   * predict x0 more easily (Li and He, "Back to Basics", 2025, arXiv 2511.13720).
   */
  readonly prediction: 'velocity' | 'sample';
  /**
   * The share of training images without words and style. Null if unknown. The files of diffusers have no such field.
   * At 0, guidance had no measurable effect.
   */
  readonly condition_dropout: number | null;
}

/** Positions by rotation of queries and keys. */
interface Turned {
  /**
   * Elements of a head that turn with each axis of a position. Their sum is attention_head_dim. There are three axes, and
   * four in FLUX.2.
   */
  readonly axes_dims_rope: readonly number[];
}

/** FLUX (Black Forest Labs, 2024). */
export interface FluxConfig extends Sizes, Turned {
  readonly architecture: 'flux';
  /** Blocks after the joint ones, in which text and image share weights. May be 0. */
  readonly num_single_layers: number;
  /** Width of the text's summary. 0 means no summary and no layer for it, which diffusers does not support. */
  readonly pooled_projection_dim: number;
  /** Whether the guidance is one of its inputs. */
  readonly guidance_embeds: boolean;
}

/**
 * FLUX.2 (Black Forest Labs, 2025): layers without biases, blocks of one kind share their modulation, and single blocks
 * have one layer for queries, keys, values and the feed-forward part. Its tokens are squares of 2 x 2 latents, which
 * its autoencoder packs.
 */
export interface Flux2Config extends Sizes, Turned {
  readonly architecture: 'flux2';
  /** Blocks after the joint ones, in which text and image share weights. May be 0. */
  readonly num_single_layers: number;
  /** Width of the feed-forward layers, divided by the width of the streams. */
  readonly mlp_ratio: number;
  /** The base of the frequencies that positions turn with. */
  readonly rope_theta: number;
  /** Whether the guidance is one of its inputs. */
  readonly guidance_embeds: boolean;
}

/** Qwen-Image (Alibaba, 2025). */
export interface QwenImageConfig extends Sizes, Turned {
  readonly architecture: 'qwen_image';
  /** Side of the patch of one output token, which is patch_size^2 * out_channels wide. */
  readonly patch_size: number;
  /** Whether reference images are modulated as at a noise level of 0, their true level: Qwen-Image-Edit-2511. */
  readonly zero_cond_t: boolean;
}

/**
 * Stable Diffusion 3 and 3.5 (Esser et al., 2024): only joint blocks, with positions that are added to the image's
 * tokens.
 */
export interface Sd3Config extends Sizes {
  readonly architecture: 'sd3';
  /**
   * Side of the patch of one input or output token. In files, in_channels is the number of a latent's channels. Here it
   * is the width of a token.
   */
  readonly patch_size: number;
  readonly pooled_projection_dim: number;
  /** Rows and columns of the table of positions, of which an image uses the middle. */
  readonly pos_embed_max_size: number;
  /** Side of the latents in training, which diffusers needs to initialize a table of positions. */
  readonly sample_size: number;
  /** The norm of queries and keys. Null: none. */
  readonly qk_norm: 'rms_norm' | null;
  /** Blocks with a second attention of the image to itself. */
  readonly dual_attention_layers: readonly number[];
}

/** The settings of a flow transformer with random weights. */
export type FluxInit = Pick<
  FluxConfig,
  'num_layers' | 'num_single_layers' | 'attention_head_dim' | 'num_attention_heads' | 'prediction'
>;

/**
 * FLUX with random weights and without guidance: a third of each head's rotation follows rows, a third columns, and the
 * rest images.
 */
export function freshFlux(
  { num_layers, num_single_layers, attention_head_dim: depth, num_attention_heads, prediction }: FluxInit,
  widths: Omit<FluxConfig, keyof FluxInit | 'architecture' | 'guidance_embeds' | 'axes_dims_rope'>,
): FluxConfig {
  const third = 2 * Math.floor(depth / 6);
  return {
    architecture: 'flux',
    num_layers,
    num_single_layers,
    attention_head_dim: depth,
    num_attention_heads,
    prediction,
    guidance_embeds: false,
    axes_dims_rope: [depth - 2 * third, third, third],
    ...widths,
  };
}

/** The transformers whose queries and keys turn with their positions. */
export type RotaryConfig = FluxConfig | Flux2Config | QwenImageConfig;
export type FlowTransformerConfig = RotaryConfig | Sd3Config;
export type FlowArchitecture = FlowTransformerConfig['architecture'];

interface Traits {
  /** Whether an IP-Adapter is supported. */
  readonly style: boolean;
  /** Whether a second image can follow the first as further tokens: Stable Diffusion 3 has no positions for one. */
  readonly second: boolean;
  /**
   * Maximum number of source images of an edit: Qwen-Image-Edit-2509 and -2511 were trained with up to three, FLUX.2-klein with up to
   * four.
   */
  readonly sources: number;
  /** Whether linear layers have biases. */
  readonly biases: boolean;
  /** The function between feed-forward layers: GELU, or SwiGLU, whose first layer has a gate beside the values. */
  readonly activation: 'gelu' | 'swiglu';
}

const traits: Readonly<Record<FlowArchitecture, Traits>> = {
  flux: { style: true, second: true, sources: 1, biases: true, activation: 'gelu' },
  flux2: { style: false, second: true, sources: 4, biases: false, activation: 'swiglu' },
  qwen_image: { style: true, second: true, sources: 3, biases: true, activation: 'gelu' },
  sd3: { style: false, second: false, sources: 1, biases: true, activation: 'gelu' },
};

/** The same transformer with another IP-Adapter. */
export function withIpAdapter(config: FlowTransformerConfig, adapter: IpAdapterConfig): FlowTransformerConfig {
  return { ...config, ip_adapter: adapter };
}

/** Width of the streams between the blocks. */
export function innerWidth(config: FlowTransformerConfig): number {
  return config.num_attention_heads * config.attention_head_dim;
}

/** Width of an outgoing token. */
export function velocityWidth(config: FlowTransformerConfig): number {
  return 'patch_size' in config ? config.patch_size ** 2 * config.out_channels : config.out_channels;
}

/** Width of the text's summary. 0 for none. */
export function pooledWidth(config: FlowTransformerConfig): number {
  return 'pooled_projection_dim' in config ? config.pooled_projection_dim : 0;
}

/** Whether the guidance is one of its inputs. */
export function embedsGuidance(config: FlowTransformerConfig): boolean {
  return 'guidance_embeds' in config && config.guidance_embeds;
}

/** How many single blocks follow the joint ones. */
export function singleLayers(config: FlowTransformerConfig): number {
  return 'num_single_layers' in config ? config.num_single_layers : 0;
}

/** Width of feed-forward layers, divided by the width of the streams, if the config does not have it. */
const MLP_RATIO = 4;

/** The feed-forward layers of a stream. */
export interface FeedForwardForm {
  readonly activation: Traits['activation'];
  /** Width of the activation's input, and of its result. */
  readonly up: number;
  readonly inner: number;
}

export function feedForwardForm(config: FlowTransformerConfig): FeedForwardForm {
  const { activation } = traits[config.architecture];
  const inner = Math.floor(innerWidth(config) * ('mlp_ratio' in config ? config.mlp_ratio : MLP_RATIO));
  return { activation, inner, up: activation === 'swiglu' ? 2 * inner : inner };
}

/** Whether linear layers have biases. */
export function hasBiases({ architecture }: FlowTransformerConfig): boolean {
  return traits[architecture].biases;
}

/** Whether each head's queries and keys are normalized. */
export function normsHeads(config: FlowTransformerConfig): boolean {
  return config.architecture !== 'sd3' || config.qk_norm !== null;
}

/** The layers of a joint block. */
export interface JointForm {
  /**
   * Whether the block updates the text. If not, the text provides only keys and values, without further layers and with
   * its own order of modulations.
   */
  readonly text: 'whole' | 'keys';
  /** Whether the image attends to itself once more. */
  readonly dual: boolean;
}

export function jointForm(config: FlowTransformerConfig, index: number): JointForm {
  if (config.architecture !== 'sd3') return { text: 'whole', dual: false };
  return {
    text: index === config.num_layers - 1 ? 'keys' : 'whole',
    dual: config.dual_attention_layers.includes(index),
  };
}

/** The largest number of tokens on a side of an image. */
export function maxSideTokens(config: FlowTransformerConfig): number {
  return config.architecture === 'sd3' ? config.pos_embed_max_size : Infinity;
}

export function takesStyle({ architecture }: FlowTransformerConfig): boolean {
  return traits[architecture].style;
}

export function takesSecond({ architecture }: FlowTransformerConfig): boolean {
  return traits[architecture].second;
}

/** Maximum number of source images that a model of this architecture was trained with. */
export function mostSources({ architecture }: FlowTransformerConfig): number {
  return traits[architecture].sources;
}

export function takesSeveral(config: FlowTransformerConfig): boolean {
  return mostSources(config) > 1;
}

const size = z.int().positive();
const axis = z.int().nonnegative();
/** The form in a config.json. */
export const ipAdapterSchema = z.object({ tokens: size, image_embed_dim: size, scale: z.number() });
/** Settings that diffusers' classes do not have. */
const own = {
  ip_adapter: ipAdapterSchema.nullish().transform((adapter) => adapter ?? null),
  prediction: z.enum(['velocity', 'sample']).default('velocity'),
  condition_dropout: z
    .number()
    .nullish()
    .transform((share) => share ?? null),
};
const sizes = {
  in_channels: size.default(64),
  attention_head_dim: size.default(128),
  num_attention_heads: size.default(24),
  axes_dims_rope: z.tuple([axis, axis, axis]).default([16, 56, 56]),
  ...own,
};
const sd3Fields = {
  sample_size: size.default(128),
  patch_size: size.default(2),
  in_channels: size.default(16),
  out_channels: size.nullable().default(16),
  num_layers: size.default(18),
  attention_head_dim: size.default(64),
  num_attention_heads: size.default(18),
  joint_attention_dim: size.default(4096),
  pooled_projection_dim: size.default(2048),
  pos_embed_max_size: size.default(96),
  dual_attention_layers: z.array(axis).default([]),
  qk_norm: z.literal('rms_norm').nullable().default(null),
};
const flux2Fields = {
  in_channels: size.default(128),
  out_channels: size.nullish(),
  num_layers: size.default(8),
  num_single_layers: z.int().nonnegative().default(48),
  attention_head_dim: size.default(128),
  num_attention_heads: size.default(48),
  joint_attention_dim: size.default(15360),
  mlp_ratio: z.number().positive().default(3),
  axes_dims_rope: z.tuple([axis, axis, axis, axis]).default([32, 32, 32, 32]),
  rope_theta: z.number().positive().default(2000),
  guidance_embeds: z.boolean().default(true),
};
/** Keys of every file. */
const naming = {
  _class_name: z.string(),
  _diffusers_version: z.string().nullish(),
  _name_or_path: z.string().nullish(),
};
const no = z.literal(false, 'only false is supported').nullish();
const only = <T extends number>(value: T) => z.literal(value, `only ${value} is supported`).nullish();

/**
 * By `_class_name`: the supported values of its settings, and the reader of the rest. Defaults are those of diffusers'
 * classes.
 */
const classes = {
  FluxTransformer2DModel: {
    architecture: 'flux',
    covered: z.looseObject({ patch_size: z.literal(1).nullish() }),
    schema: z
      .object({
        ...sizes,
        out_channels: size.nullish(),
        num_layers: size.default(19),
        num_single_layers: z.int().nonnegative().default(38),
        joint_attention_dim: size.default(4096),
        pooled_projection_dim: z.int().nonnegative().default(768),
        guidance_embeds: z.boolean().default(false),
      })
      .transform(({ out_channels, ...rest }): FluxConfig => ({
        architecture: 'flux',
        ...rest,
        out_channels: out_channels ?? rest.in_channels,
      })),
  },
  Flux2Transformer2DModel: {
    architecture: 'flux2',
    covered: z.strictObject({
      ...flux2Fields,
      ...own,
      ...naming,
      ip_adapter: z.null().optional(),
      patch_size: only(1),
      timestep_guidance_channels: only(256),
      eps: only(1e-6),
    }),
    schema: z.object({ ...flux2Fields, ...own }).transform(({ out_channels, ...rest }): Flux2Config => ({
      architecture: 'flux2',
      ...rest,
      out_channels: out_channels ?? rest.in_channels,
    })),
  },
  QwenImageTransformer2DModel: {
    architecture: 'qwen_image',
    covered: z.looseObject({
      guidance_embeds: no,
      // Qwen-Image-Layered's.
      use_additional_t_cond: no,
      use_layer3d_rope: no,
    }),
    schema: z
      .object({
        ...sizes,
        patch_size: size.default(2),
        out_channels: size.nullable().default(16),
        num_layers: size.default(60),
        joint_attention_dim: size.default(3584),
        zero_cond_t: z
          .boolean()
          .nullish()
          .transform((zero) => zero ?? false),
      })
      .transform(({ out_channels, ...rest }): QwenImageConfig => ({
        architecture: 'qwen_image',
        ...rest,
        out_channels: out_channels ?? rest.in_channels,
      })),
  },
  SD3Transformer2DModel: {
    architecture: 'sd3',
    covered: z
      .strictObject({
        ...sd3Fields,
        ...own,
        ...naming,
        ip_adapter: z.null().optional(),
        caption_projection_dim: size.default(1152),
      })
      .refine(
        ({ caption_projection_dim: text, num_attention_heads: heads, attention_head_dim: depth }) =>
          text === heads * depth,
        {
          path: ['caption_projection_dim'],
          message: 'text and image must have the same width: num_attention_heads * attention_head_dim',
        },
      ),
    schema: z.object({ ...sd3Fields, ...own }).transform(({ in_channels, out_channels, ...rest }): Sd3Config => ({
      architecture: 'sd3',
      ...rest,
      in_channels: rest.patch_size ** 2 * in_channels,
      out_channels: out_channels ?? in_channels,
    })),
  },
} as const satisfies Record<
  string,
  { readonly architecture: FlowArchitecture; readonly covered: z.ZodType; readonly schema: z.ZodType }
>;

/** The classes of diffusers that can be read. */
export const flowClasses: readonly string[] = Object.keys(classes);

/** The class in diffusers of a transformer. */
export function flowClassOf({ architecture }: Pick<FlowTransformerConfig, 'architecture'>): string {
  const found = Object.entries(classes).find(([, entry]) => entry.architecture === architecture);
  return must(found, `the class of ${architecture}`)[0];
}

/**
 * Reads a transformer's `config.json`. Raises CheckpointError, naming `where`, for an unsupported class (the message
 * lists the supported ones) and for unsupported settings.
 */
export function readFlowConfig(json: unknown, where: string): FlowTransformerConfig {
  const outer = z.looseObject({ _class_name: z.string() }).safeParse(json);
  const name = outer.success ? outer.data._class_name : null;
  if (name === null || !Object.hasOwn(classes, name)) {
    const found = name === null ? 'it names no _class_name' : `_class_name '${name}' is not supported`;
    throw new CheckpointError(`${found}; allowed: ${flowClasses.join(', ')}`, {
      where,
      next: "Name a transformer's folder of one of these classes, as diffusers saves it.",
    });
  }
  const { covered, schema } = classes[name as keyof typeof classes];
  const parsed = schema.safeParse(outer.data);
  const issue = covered.safeParse(outer.data).error?.issues[0] ?? parsed.error?.issues[0];
  if (issue !== undefined || !parsed.success) {
    const at = issue === undefined || issue.path.length === 0 ? '' : `${issue.path.join('.')}: `;
    throw new CheckpointError(`${name}: ${at}${issue?.message ?? 'is not supported'}`, { where });
  }
  const config: FlowTransformerConfig = parsed.data;
  const problem = problemOf(config);
  if (problem !== null) throw new CheckpointError(problem, { where });
  return config;
}

/** Raises GraphError if the sizes do not fit together. */
export function checkFlowConfig(config: FlowTransformerConfig): void {
  const problem = problemOf(config);
  if (problem !== null) throw new GraphError(problem);
}

function problemOf(config: FlowTransformerConfig): string | null {
  if (config.ip_adapter !== null && !takesStyle(config)) {
    return `an IP-Adapter for a ${flowClassOf(config)} is not supported`;
  }
  if (config.architecture === 'sd3') return problemOfSd3(config);
  const { axes_dims_rope: axes, attention_head_dim: depth } = config;
  const odd = axes.find((turning) => turning % 2 !== 0);
  if (odd !== undefined) return `axes_dims_rope has ${odd}, but all of its elements must be even`;
  const sum = axes.reduce((total, turning) => total + turning, 0);
  return sum === depth ? null : `axes_dims_rope sums to ${sum}, which must be attention_head_dim ${depth}`;
}

function problemOfSd3({ dual_attention_layers: dual, num_layers: layers }: Sd3Config): string | null {
  const beyond = dual.find((layer) => layer >= layers);
  return beyond === undefined ? null : `dual_attention_layers has ${beyond}, but num_layers is ${layers}`;
}

/** Whether a transformer's config.json has settings that diffusers' classes do not have and that change the result. */
export function hasOwnSettings(json: Readonly<Record<string, unknown>>): boolean {
  return [json['ip_adapter'], json['prediction']].some((value) => (value ?? null) !== null);
}

/** With `in_channels` as in the files. */
function storedSizes(
  config: FlowTransformerConfig,
): FlowTransformerConfig & { readonly caption_projection_dim?: number } {
  if (config.architecture !== 'sd3') return config;
  return {
    ...config,
    in_channels: config.in_channels / config.patch_size ** 2,
    caption_projection_dim: innerWidth(config),
  };
}

/** The content of a checkpoint's config.json, which `readFlowConfig` reads back. */
export function flowConfigJson(config: FlowTransformerConfig): string {
  const { architecture, ip_adapter, prediction, condition_dropout, ...settings } = storedSizes(config);
  const { zero_cond_t, ...known } = { zero_cond_t: false, ...settings };
  const json = {
    _class_name: flowClassOf({ architecture }),
    ...known,
    // Older releases of diffusers do not have it.
    ...(zero_cond_t ? { zero_cond_t } : {}),
    ...(ip_adapter === null ? {} : { ip_adapter }),
    ...(prediction === 'velocity' ? {} : { prediction }),
    ...(condition_dropout === null ? {} : { condition_dropout }),
  };
  return `${JSON.stringify(json, null, 2)}\n`;
}

/** Positions of Stable Diffusion 3, [1, size^2, width]: they are stored with the weights, and never trained. */
export const POSITION_TABLE = 'pos_embed.pos_embed';
