/** Looking into a schema: which fields there are at a path, and how they are marked. */
import { z } from 'zod';
import type { Effect } from './mark.js';

export interface Mark {
  readonly effect?: Effect;
  readonly description?: string;
  /** What may stand here, in words, where the schema's own wording would be unclear. */
  readonly allowed?: string;
  /** A path that counts relative to the folder at this key, so that data may move with it. */
  readonly relativeTo?: string;
  /** The path of a text file: what the file says counts, and not where it lies. */
  readonly text?: boolean;
  /** The value at which the field is left out of the hash: the default of one that recorded runs were hashed without. */
  readonly unhashed?: unknown;
  /** What a record that lacks the field means by it. */
  readonly absent?: unknown;
  /** A resumed run may raise the value. */
  readonly mayGrow?: boolean;
}

/** The mark of a schema: its own, else that of what it wraps. */
export function markOf(schema: z.ZodType): Mark {
  const own = schema.meta();
  if (own !== undefined) return own as Mark;
  const inner = wrapped(schema);
  return inner === null ? {} : markOf(inner);
}

function wrapped(schema: z.ZodType): z.ZodType | null {
  if (schema instanceof z.ZodDefault || schema instanceof z.ZodPrefault) return schema.unwrap() as z.ZodType;
  if (schema instanceof z.ZodNullable || schema instanceof z.ZodOptional) return schema.unwrap() as z.ZodType;
  return null;
}

/** The schema without defaults and nullability. */
export function unwrap(schema: z.ZodType): z.ZodType {
  const inner = wrapped(schema);
  return inner === null ? schema : unwrap(inner);
}

/** The fields of an object schema; of a discriminated union those of the variant that `value` names, else of all variants. */
export function fieldsOf(schema: z.ZodType, value: unknown): Readonly<Record<string, z.ZodType>> | null {
  const bare = unwrap(schema);
  if (bare instanceof z.ZodObject) return bare.shape;
  if (bare instanceof z.ZodDiscriminatedUnion) {
    const variants = (bare.options as z.ZodType[]).map((option) => fieldsOf(option, value) ?? {});
    const discriminator = bare.def.discriminator;
    const name = isObject(value) ? value[discriminator] : undefined;
    const chosen = variants.find((fields) => fields[discriminator].safeParse(name).success);
    return chosen ?? (Object.assign({}, ...variants) as Record<string, z.ZodType>);
  }
  return null;
}

/** The schema of one key or index of `value`, or null where there is none. */
export function childOf(schema: z.ZodType, key: string | number, value: unknown): z.ZodType | null {
  const bare = unwrap(schema);
  if (bare instanceof z.ZodArray) return bare.element as z.ZodType;
  return fieldsOf(bare, value)?.[key] ?? null;
}

/** Follows a path through a schema, choosing variants by what `value` holds; null where it leads nowhere. */
export function schemaAt(schema: z.ZodType, path: readonly (string | number)[], value: unknown): z.ZodType | null {
  let here: z.ZodType | null = schema;
  let found = value;
  for (const key of path) {
    if (here === null) return null;
    here = childOf(here, key, found);
    found = isObject(found) || Array.isArray(found) ? (found as Record<string | number, unknown>)[key] : undefined;
  }
  return here;
}

export interface Leaf {
  readonly path: string;
  readonly value: unknown;
  readonly effect: Effect;
  readonly mark: Mark;
}

/** Every marked field of a value, in the order of the schema. An absent section counts as `result` if it could hold one. */
export function* leaves(schema: z.ZodType, value: unknown, path: readonly (string | number)[] = []): Generator<Leaf> {
  const mark = markOf(schema);
  const at = path.join('.');
  if (mark.effect !== undefined) {
    yield { path: at, value, effect: mark.effect, mark };
    return;
  }
  const bare = unwrap(schema);
  if (bare instanceof z.ZodArray && Array.isArray(value)) {
    for (const [index, item] of value.entries()) yield* leaves(bare.element as z.ZodType, item, [...path, index]);
    return;
  }
  const fields = fieldsOf(bare, value);
  if (fields !== null && isObject(value)) {
    for (const [key, field] of Object.entries(fields)) yield* leaves(field, value[key], [...path, key]);
    return;
  }
  yield { path: at, value, effect: holdsResult(bare) ? 'result' : 'operation', mark };
}

function holdsResult(schema: z.ZodType): boolean {
  const mark = markOf(schema);
  if (mark.effect !== undefined) return mark.effect === 'result';
  const bare = unwrap(schema);
  if (bare instanceof z.ZodArray) return holdsResult(bare.element as z.ZodType);
  const fields = fieldsOf(schema, undefined);
  return fields !== null && Object.values(fields).some(holdsResult);
}

/** Dotted paths of every key that a schema knows, sections included; `[]` stands for any place in a list. */
export function* knownPaths(schema: z.ZodType, prefix = ''): Generator<string> {
  for (const [key, field] of Object.entries(fieldsOf(schema, undefined) ?? {})) {
    yield `${prefix}${key}`;
    const bare = unwrap(field);
    if (bare instanceof z.ZodArray) yield* knownPaths(bare.element as z.ZodType, `${prefix}${key}[].`);
    else yield* knownPaths(field, `${prefix}${key}.`);
  }
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
