/** Fields that a record of settings lacks: the values that their absence means. */
import { z } from 'zod';
import type { ReadSettings } from './mark.js';
import { getPath } from './paths.js';
import { fieldsOf, isObject, markOf, unwrap } from './walk.js';

/**
 * A record of settings with its absent fields filled in where they define what absence means (`absent` of their mark), at any depth; in a union, by
 * the first variant that the section then matches. The record itself is left unchanged.
 */
export function fillAbsent<T extends object>(schema: z.ZodType, record: T): T {
  return filled(schema, record, (path) => getPath(record, path)) as T;
}

function filled(schema: z.ZodType, value: unknown, record: ReadSettings): unknown {
  const bare = unwrap(schema);
  if (bare instanceof z.ZodArray && Array.isArray(value)) {
    return value.map((item) => filled(bare.element as z.ZodType, item, record));
  }
  if (bare instanceof z.ZodUnion) {
    for (const option of bare.options as readonly z.ZodType[]) {
      const candidate = filled(option, value, record);
      if (option.safeParse(candidate).success) return candidate;
    }
    return value;
  }
  const fields = fieldsOf(bare, value);
  if (fields === null || !isObject(value)) return value;
  const beside: ReadSettings = (path) => getPath(value, path);
  const entries = Object.entries(fields).map(([key, field]) => {
    const found = value[key];
    return [key, found === undefined ? whereAbsent(field, record, beside) : filled(field, found, record)] as const;
  });
  return { ...value, ...Object.fromEntries(entries.filter(([, entry]) => entry !== undefined)) };
}

/** The value of an absent field, or of an absent section by what its fields' absence means; undefined if the default is meant. */
function whereAbsent(field: z.ZodType, record: ReadSettings, beside: ReadSettings): unknown {
  const { absent } = markOf(field);
  const meant = typeof absent === 'function' ? absent(record, beside) : absent;
  return meant === undefined ? filled(field, defaultOf(field), record) : meant;
}

/** The value that replaces an absent one, as it was written in the schema; undefined if there is none. */
function defaultOf(schema: z.ZodType): unknown {
  if (schema instanceof z.ZodDefault || schema instanceof z.ZodPrefault) return schema.def.defaultValue;
  if (schema instanceof z.ZodNullable) return defaultOf(schema.unwrap() as z.ZodType);
  return undefined;
}
