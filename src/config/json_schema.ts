/** The schema as JSON Schema, for editors and other tools. */
import { z } from 'zod';
import { UsageError } from '../core/errors.js';
import { allRecipes } from './recipes.js';

type Schema = Readonly<Record<string, unknown>>;

/** A shorter part is repeated: a reference would not be easier to read. */
const LEAST_SHARED = 160;

/**
 * One schema over all recipes, or of one; every field has a `description`, and an `effect` of `result` or `operation`. Parts that fields share appear once, in
 * `$defs`. Raises UsageError for a recipe that does not exist.
 */
export function jsonSchema(task: string | null = null): Schema {
  const known = allRecipes();
  const [first, ...rest] = known.filter(({ name }) => task === null || name === task).map(({ schema }) => schema);
  if ((first as object | undefined) === undefined) {
    throw new UsageError(`there is no task '${task}'; allowed: ${known.map(({ name }) => name).join(', ')}`);
  }
  return withShared(z.toJSONSchema(z.discriminatedUnion('task', [first, ...rest]), { io: 'input' }));
}

/**
 * The same schema with repeated parts moved to `$defs`, each named after the first field that has it. Everything that restricts a value moves; a
 * field's type, description, default and effect stay beside its `$ref` (JSON Schema 2020-12), so a reader that ignores siblings of `$ref` refuses the
 * same values.
 */
export function withShared(schema: Schema): Schema {
  const counts = new Map<string, number>();
  const count = (part: Schema): void => {
    const text = JSON.stringify(bodyOf(part));
    const before = counts.get(text) ?? 0;
    counts.set(text, before + 1);
    // The parts of a repeated part are repeated with it.
    if (before === 0 || text.length < LEAST_SHARED) mapParts(part, 'settings', (inner) => (count(inner), inner));
  };
  const { $defs, ...root } = schema;
  count(root);
  const defs: Record<string, unknown> = { ...($defs as Schema | undefined) };
  const names = new Map<string, string>();
  const share = (part: Schema, name: string): Schema => {
    const body = bodyOf(part);
    const text = JSON.stringify(body);
    if (text.length < LEAST_SHARED || counts.get(text) === 1) return mapParts(part, name, share);
    const known = names.get(text);
    const own = known ?? freeName(name, defs);
    if (known === undefined) {
      names.set(text, own);
      defs[own] = {};
      defs[own] = mapParts(body, name, share);
    }
    const beside = Object.entries(part).filter(([keyword]) => keyword === 'type' || !(keyword in body));
    return { ...Object.fromEntries(beside), $ref: `#/$defs/${own}` };
  };
  return { ...share(root, 'settings'), $defs: defs };
}

/** Keywords besides parts that restrict a value. */
const LIMITS: ReadonlySet<string> = new Set(['type', 'minItems', 'maxItems', 'minProperties', 'maxProperties']);

type OnPart = (part: Schema, name: string) => Schema;

/** How to reach the parts of each keyword that has some. A field's part is named after the field, any other after the part that contains it. */
const parts: Readonly<Record<string, (value: unknown, name: string, change: OnPart) => unknown>> = {
  properties: (value, _name, change) =>
    Object.fromEntries(
      Object.entries(value as Readonly<Record<string, Schema>>).map(([key, part]) => [key, change(part, key)]),
    ),
  required: (value) => value,
  additionalProperties: one,
  propertyNames: one,
  items: one,
  prefixItems: several,
  anyOf: several,
  oneOf: several,
  allOf: several,
};

function one(value: unknown, name: string, change: OnPart): unknown {
  return typeof value === 'boolean' ? value : change(value as Schema, name);
}

function several(value: unknown, name: string, change: OnPart): unknown {
  return (value as readonly Schema[]).map((part) => change(part, name));
}

function mapParts(schema: Schema, name: string, change: OnPart): Schema {
  return Object.fromEntries(
    Object.entries(schema).map(([keyword, value]) => [keyword, parts[keyword]?.(value, name, change) ?? value]),
  );
}

/** The keywords that restrict a value with parts; empty for one without parts. */
function bodyOf(schema: Schema): Schema {
  const keywords = Object.entries(schema);
  if (!keywords.some(([keyword]) => keyword in parts)) return {};
  return Object.fromEntries(keywords.filter(([keyword]) => keyword in parts || LIMITS.has(keyword)));
}

function freeName(name: string, taken: Schema): string {
  let free = name;
  for (let n = 2; free in taken; n++) free = `${name}_${n}`;
  return free;
}
