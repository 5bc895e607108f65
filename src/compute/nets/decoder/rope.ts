/**
 * Angles of rotary positions (Su et al., "RoFormer", 2021) and their scalings for contexts longer than in pretraining, with the names and the results
 * of Hugging Face's configs. With d the width of a head and theta the base, frequency i is theta^(-2i/d).
 */
import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import { CheckpointError } from '../../../core/errors.js';

/** How frequencies are changed. `factor` is by how much the context grew. */
export type RopeScaling =
  /** All positions count 1/factor (Chen et al., "Extending Context Window", 2023). */
  | { readonly rope_type: 'linear'; readonly factor: number }
  /** Changes nothing up to `max_position_embeddings` tokens, the largest supported length. */
  | { readonly rope_type: 'dynamic'; readonly max_position_embeddings: number }
  /** Long waves are slowed down, short ones are not (Llama 3.1). */
  | {
      readonly rope_type: 'llama3';
      readonly factor: number;
      readonly low_freq_factor: number;
      readonly high_freq_factor: number;
      readonly original_max_position_embeddings: number;
    }
  /** Slowed down by how often a wave turns within the former context, and scores are sharpened (Peng et al., "YaRN", 2023). */
  | {
      readonly rope_type: 'yarn';
      readonly factor: number;
      readonly beta_fast: number;
      readonly beta_slow: number;
      readonly truncate: boolean;
      /** The factor of cosines and sines. */
      readonly attention_factor: number;
      readonly original_max_position_embeddings: number;
    }
  /** Each frequency has its own factor (Ding et al., "LongRoPE", 2024). Up to the original context, which is the largest supported length. */
  | {
      readonly rope_type: 'longrope';
      readonly short_factor: readonly number[];
      /** The factor of cosines and sines. */
      readonly attention_factor: number;
      readonly original_max_position_embeddings: number;
    };

/** Frequencies [d / 2] in radians a column, and the factor of cosines and sines. */
export interface Rotation {
  readonly frequencies: readonly number[];
  readonly magnitude: number;
}

/** The rotation settings of a decoder. */
export interface RotarySettings {
  /** Width of a head, or of its rotated part. */
  readonly head_dim: number;
  readonly rope_theta: number;
  /** Absent: none. */
  readonly rope_scaling?: RopeScaling;
}

export function rotationOf({ head_dim, rope_theta, rope_scaling }: RotarySettings): Rotation {
  const plain = Array.from({ length: head_dim / 2 }, (_, i) => rope_theta ** (-(2 * i) / head_dim));
  if (rope_scaling === undefined) return { frequencies: plain, magnitude: 1 };
  switch (rope_scaling.rope_type) {
    case 'linear':
      return { frequencies: plain.map((frequency) => frequency / rope_scaling.factor), magnitude: 1 };
    case 'dynamic':
      return { frequencies: plain, magnitude: 1 };
    case 'llama3':
      return { frequencies: plain.map((frequency) => llama3(frequency, rope_scaling)), magnitude: 1 };
    case 'yarn':
      return {
        frequencies: yarn(plain, head_dim, rope_theta, rope_scaling),
        magnitude: rope_scaling.attention_factor,
      };
    case 'longrope':
      return {
        frequencies: plain.map((frequency, i) => frequency / rope_scaling.short_factor[i]),
        magnitude: rope_scaling.attention_factor,
      };
  }
}

type Scaling<Type extends RopeScaling['rope_type']> = RopeScaling & { readonly rope_type: Type };

/**
 * Waves shorter than L/high stay, those longer than L/low are slowed by the factor, and waves between them get a
 * mixture that is linear in L/wave.
 */
function llama3(frequency: number, scaling: Scaling<'llama3'>): number {
  const { factor, low_freq_factor: low, high_freq_factor: high, original_max_position_embeddings: before } = scaling;
  const turns = (before * frequency) / (2 * Math.PI);
  if (turns > high) return frequency;
  if (turns < low) return frequency / factor;
  const share = (turns - low) / (high - low);
  return frequency * ((1 - share) / factor + share);
}

/**
 * A ramp over the frequencies, from those that turn `beta_fast` times within the original context to those that turn
 * `beta_slow` times.
 */
function yarn(plain: readonly number[], depth: number, theta: number, scaling: Scaling<'yarn'>): number[] {
  const { factor, beta_fast, beta_slow, truncate, original_max_position_embeddings: before } = scaling;
  const turning = (times: number): number => (depth * Math.log(before / (times * 2 * Math.PI))) / (2 * Math.log(theta));
  const [first, last] = [turning(beta_fast), turning(beta_slow)];
  const from = Math.max(0, truncate ? Math.floor(first) : first);
  const to = Math.min(depth - 1, truncate ? Math.ceil(last) : last);
  // A ramp of no length would divide by zero.
  const length = from === to ? 0.001 : to - from;
  return plain.map((frequency, i) => {
    const slowed = Math.min(1, Math.max(0, (i - from) / length));
    return (frequency / factor) * slowed + frequency * (1 - slowed);
  });
}

/** The sharpening of a context that grew `factor` times: 0.1 k ln(factor) + 1 (YaRN, equation 22). */
export function yarnMagnitude(factor: number, k = 1): number {
  return factor <= 1 ? 1 : 0.1 * k * Math.log(factor) + 1;
}

const size = z.int().positive();
const factor = z.number().positive();
const scalings = {
  linear: z.object({ factor }),
  dynamic: z.object({ factor }),
  llama3: z.object({
    factor,
    low_freq_factor: factor,
    high_freq_factor: factor,
    original_max_position_embeddings: size,
  }),
  yarn: z.object({
    factor,
    beta_fast: z.number().positive().nullish(),
    beta_slow: z.number().positive().nullish(),
    truncate: z.boolean().nullish(),
    attention_factor: z.number().positive().nullish(),
    mscale: z.number().nullish(),
    mscale_all_dim: z.number().nullish(),
    original_max_position_embeddings: size.nullish(),
  }),
  longrope: z.object({
    short_factor: z.array(factor),
    long_factor: z.array(factor),
    factor: factor.nullish(),
    attention_factor: factor.nullish(),
    original_max_position_embeddings: size,
  }),
};

/** A rotation in the form of a `config.json`. */
export type RopeJson = Readonly<Record<string, unknown>>;

/**
 * Rotations that change nothing for text: those without scaling, and vision models' three rows of positions, which are
 * equal for text.
 */
const UNSCALED = ['default'];
const UNSCALED_WITH_IMAGES = ['default', 'mrope'];

/**
 * Raises CheckpointError, naming `where`, if `rope_scaling` and `rope_parameters` differ: programs do not agree on
 * which one counts.
 */
export function requireOneRotation(scaling: RopeJson, parameters: RopeJson, theta: number, where: string): void {
  const [older, newer] = [scaling, parameters].map(({ type = 'default', rope_type, rope_theta, ...others }) => {
    const name = rope_type ?? type;
    return { ...others, rope_type: name === 'mrope' ? 'default' : name, rope_theta: rope_theta ?? theta };
  });
  if (isDeepStrictEqual(older, newer)) return;
  throw new CheckpointError(
    `rope_scaling ${JSON.stringify(scaling)} and rope_parameters ${JSON.stringify(parameters)} differ`,
    { where, next: 'Remove the one that the model was not trained with. transformers uses rope_scaling.' },
  );
}

/**
 * The scaling of a `config.json`'s rotation. Null without one. Raises CheckpointError, naming `where`, for an
 * unsupported scaling.
 */
export function readScaling(
  rope: RopeJson,
  contextSize: number,
  where: string,
  readsImages = false,
): RopeScaling | null {
  const type = rope['rope_type'] ?? rope['type'] ?? 'default';
  const unscaled = readsImages ? UNSCALED_WITH_IMAGES : UNSCALED;
  if (typeof type === 'string' && unscaled.includes(type)) return null;
  if (typeof type !== 'string' || !Object.hasOwn(scalings, type)) {
    const allowed = [...unscaled, ...Object.keys(scalings)].join(', ');
    throw new CheckpointError(`rope_type ${JSON.stringify(type)} is not supported; allowed: ${allowed}`, { where });
  }
  const name = type as keyof typeof scalings;
  if (name !== 'longrope' && !isNone(rope['short_factor'])) {
    throw new CheckpointError(`rope_type '${name}' with short_factor is not supported; allowed: longrope`, { where });
  }
  const parse = <T>(schema: z.ZodType<T>): T => {
    const parsed = schema.safeParse(rope);
    if (parsed.success) return parsed.data;
    const [issue] = parsed.error.issues;
    throw new CheckpointError(`rope_scaling.${issue.path.join('.')}: ${issue.message}`, { where });
  };
  switch (name) {
    case 'linear':
      return { rope_type: name, ...parse(scalings.linear) };
    case 'dynamic':
      parse(scalings.dynamic);
      return { rope_type: name, max_position_embeddings: contextSize };
    case 'llama3':
      return { rope_type: name, ...parse(scalings.llama3) };
    case 'yarn': {
      const { beta_fast, beta_slow, truncate, attention_factor, mscale, mscale_all_dim, ...context } = parse(
        scalings.yarn,
      );
      const before = context.original_max_position_embeddings ?? contextSize;
      const grown = context.factor;
      const magnitude =
        isNumber(mscale) && isNumber(mscale_all_dim)
          ? yarnMagnitude(grown, mscale) / yarnMagnitude(grown, mscale_all_dim)
          : yarnMagnitude(grown);
      return {
        rope_type: name,
        factor: grown,
        beta_fast: beta_fast ?? 32,
        beta_slow: beta_slow ?? 1,
        truncate: truncate ?? true,
        attention_factor: attention_factor ?? magnitude,
        original_max_position_embeddings: before,
      };
    }
    case 'longrope': {
      const {
        short_factor,
        attention_factor,
        original_max_position_embeddings: before,
        ...found
      } = parse(scalings.longrope);
      const grown = found.factor ?? contextSize / before;
      return {
        rope_type: name,
        short_factor,
        attention_factor: attention_factor ?? (grown <= 1 ? 1 : Math.sqrt(1 + Math.log(grown) / Math.log(before))),
        original_max_position_embeddings: before,
      };
    }
  }
}

/**
 * The largest number of tokens that is computed as transformers does, out of `contextSize`. LongRoPE has other factors
 * for longer sequences, and Ministral 3 multiplies later queries (`llama_4_scaling_beta`).
 */
export function supportedContext(rope: RopeJson, scaling: RopeScaling | null, contextSize: number): number {
  const { original_max_position_embeddings: original, llama_4_scaling_beta: beta } = rope;
  const changes = scaling?.rope_type === 'longrope' || isNumber(beta as number | null | undefined);
  return changes && typeof original === 'number' ? Math.min(original, contextSize) : contextSize;
}

/** Files write 0 or null for none. */
function isNumber(value: number | null | undefined): value is number {
  return typeof value === 'number' && value !== 0;
}

function isNone(value: unknown): value is null | undefined {
  return value === null || value === undefined;
}
