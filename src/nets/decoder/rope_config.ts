/** Reads the rotation of positions from a Hugging Face `config.json`. */
import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import { CheckpointError } from '../../core/errors.js';
import { yarnMagnitude, type RopeScaling } from './rope.js';

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
};

/** A rotation as a `config.json` holds it. */
export type RopeJson = Readonly<Record<string, unknown>>;

/** Rotations that change nothing for text: without scaling, and the three rows of positions of models with pictures, which are equal there. */
const UNSCALED = ['default'];
const UNSCALED_WITH_PICTURES = ['default', 'mrope'];

/** Raises CheckpointError, naming `where`, if `rope_scaling` says another rotation than `rope_parameters`: programs differ in which of them they take. */
export function requireOneRotation(scaling: RopeJson, parameters: RopeJson, theta: number, where: string): void {
  const [older, newer] = [scaling, parameters].map(({ type = 'default', rope_type, rope_theta, ...others }) => {
    const name = rope_type ?? type;
    return { ...others, rope_type: name === 'mrope' ? 'default' : name, rope_theta: rope_theta ?? theta };
  });
  if (isDeepStrictEqual(older, newer)) return;
  throw new CheckpointError(
    `rope_scaling ${JSON.stringify(scaling)} and rope_parameters ${JSON.stringify(parameters)} differ`,
    { where, next: 'Remove the one that the model was not trained with. transformers takes rope_scaling.' },
  );
}

/**
 * How a `config.json` scales the rotation of positions; null if it does not. Raises CheckpointError, naming `where`, for a scaling that is not
 * supported.
 */
export function readScaling(
  rope: RopeJson,
  contextSize: number,
  where: string,
  readsPictures = false,
): RopeScaling | null {
  const type = rope['rope_type'] ?? rope['type'] ?? 'default';
  const unscaled = readsPictures ? UNSCALED_WITH_PICTURES : UNSCALED;
  if (typeof type === 'string' && unscaled.includes(type)) return null;
  if (typeof type !== 'string' || !Object.hasOwn(scalings, type)) {
    const allowed = [...unscaled, ...Object.keys(scalings)].join(', ');
    throw new CheckpointError(`rope_type ${JSON.stringify(type)} is not covered; covered: ${allowed}`, { where });
  }
  const name = type as keyof typeof scalings;
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
  }
}

/** Files say 0 or null for none. */
function isNumber(value: number | null | undefined): value is number {
  return typeof value === 'number' && value !== 0;
}
