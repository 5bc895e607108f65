/** Walks a schema: the fields at a path, and their marks. */
import { z } from 'zod';
import type { Effect, Mark } from './mark.js';

/** Cached: a schema never changes, and zod takes microseconds per field. */
const marks = new WeakMap<z.ZodType, Mark>();

/** The mark of a schema: its own, else that of the schema it wraps. */
export function markOf(schema: z.ZodType): Mark {
  const known = marks.get(schema);
  if (known !== undefined) return known;
  const inner = wrapped(schema);
  const mark = (schema.meta() as Mark | undefined) ?? (inner === null ? {} : markOf(inner));
  marks.set(schema, mark);
  return mark;
}

function wrapped(schema: z.ZodType): z.ZodType | null {
  if (schema instanceof z.ZodDefault || schema instanceof z.ZodPrefault) return schema.unwrap() as z.ZodType;
  if (schema instanceof z.ZodNullable || schema instanceof z.ZodOptional) return schema.unwrap() as z.ZodType;
  return null;
}

const bares = new WeakMap<z.ZodType, z.ZodType>();

/** The schema without defaults and nullability. */
export function unwrap(schema: z.ZodType): z.ZodType {
  const known = bares.get(schema);
  if (known !== undefined) return known;
  const inner = wrapped(schema);
  const bare = inner === null ? schema : unwrap(inner);
  bares.set(schema, bare);
  return bare;
}

/** The fields of an object schema. For a discriminated union, the fields of the variant that `value` names, else of all variants. */
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

/** The schema of one key or index of `value`. Null if there is none. */
export function childOf(schema: z.ZodType, key: string | number, value: unknown): z.ZodType | null {
  const bare = unwrap(schema);
  if (bare instanceof z.ZodArray) return bare.element as z.ZodType;
  if (bare instanceof z.ZodRecord) return bare.valueType as z.ZodType;
  const fields = fieldsOf(bare, value);
  return fields !== null && Object.hasOwn(fields, key) ? fields[key] : null;
}

/** Follows a path through a schema, choosing variants by the content of `value`. Null if there is none. */
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

/** Every marked field of a value, in schema order. An absent section counts as `result` if it could contain one. */
export function leaves(schema: z.ZodType, value: unknown, path = ''): Leaf[] {
  const found: Leaf[] = [];
  collectLeaves(schema, value, path, found);
  return found;
}

function collectLeaves(schema: z.ZodType, value: unknown, path: string, found: Leaf[]): void {
  const mark = markOf(schema);
  if (mark.effect !== undefined) {
    found.push({ path, value, effect: mark.effect, mark });
    return;
  }
  const bare = unwrap(schema);
  const at = (key: string | number): string => (path === '' ? String(key) : `${path}.${key}`);
  if (bare instanceof z.ZodArray && Array.isArray(value)) {
    for (const [index, item] of value.entries()) collectLeaves(bare.element as z.ZodType, item, at(index), found);
    return;
  }
  const fields = fieldsOf(bare, value);
  if (fields !== null && isObject(value)) {
    for (const key in fields) collectLeaves(fields[key], value[key], at(key), found);
    return;
  }
  found.push({ path, value, effect: holdsResult(bare) ? 'result' : 'operation', mark });
}

function holdsResult(schema: z.ZodType): boolean {
  const mark = markOf(schema);
  if (mark.effect !== undefined) return mark.effect === 'result';
  const bare = unwrap(schema);
  if (bare instanceof z.ZodArray) return holdsResult(bare.element as z.ZodType);
  const fields = fieldsOf(schema, undefined);
  return fields !== null && Object.values(fields).some(holdsResult);
}

/** Dotted paths of all keys of a schema, sections included. `[]` stands for any index of a list. */
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

/** The value at a path, dotted or in parts. Undefined if there is none. */
export function getPath(root: unknown, path: string | readonly (string | number)[]): unknown {
  let here = root;
  for (const key of typeof path === 'string' ? path.split('.') : path) {
    if (!isObject(here) && !Array.isArray(here)) return undefined;
    here = Object.hasOwn(here, key) ? (here as Record<string, unknown>)[key] : undefined;
  }
  return here;
}

export function hasPath(root: unknown, path: string): boolean {
  return getPath(root, path) !== undefined;
}

/**
 * Sets a value and creates the objects of its path (also in place of nulls). If a part of the path is neither an object nor an existing
 * list element, returns the path to it, else null.
 */
export function setPath(root: Record<string, unknown>, path: string, value: unknown): string | null {
  const keys = path.split('.');
  let here: unknown = root;
  for (const [depth, key] of keys.entries()) {
    const isLast = depth === keys.length - 1;
    if (Array.isArray(here)) {
      if (!/^\d+$/.test(key) || Number(key) >= here.length) return keys.slice(0, depth).join('.');
    } else if (!isObject(here)) {
      return keys.slice(0, depth).join('.');
    }
    const container = here as Record<string, unknown>;
    if (isLast) {
      container[key] = value;
    } else {
      if (!Object.hasOwn(container, key) || container[key] === null) container[key] = {};
      here = container[key];
    }
  }
  return null;
}

/** The leaves of a value by dotted path, in order. A list, and an object without keys, is one leaf. */
export function leavesOf(value: Readonly<Record<string, unknown>>, above = ''): [path: string, value: unknown][] {
  return Object.entries(value).flatMap(([key, inner]): [string, unknown][] => {
    const path = above === '' ? key : `${above}.${key}`;
    return isObject(inner) && Object.keys(inner).length > 0 ? leavesOf(inner, path) : [[path, inner]];
  });
}
