/** Explains keys of a config: description, type and default, in every recipe that has them. */
import { z } from 'zod';
import { UsageError } from '../core/errors.js';
import { nearest } from '../core/nearest.js';
import type { Effect } from '../core/schema/mark.js';
import { allRecipes } from './recipes.js';
import { fieldsOf, knownPaths, markOf, unwrap } from '../core/schema/walk.js';

/** A field as defined by some recipes. */
export interface Explanation {
  /** Dotted. `[]` matches any index of a list. */
  readonly key: string;
  readonly meaning: string;
  /** The allowed values, in words. */
  readonly type: string;
  /** JSON of the default. Null if a value is required. */
  readonly default: string | null;
  /** Null for a section, whose fields have their own. */
  readonly effect: Effect | null;
  readonly recipes: readonly string[];
  /** The variant with this form of the field, such as `algorithm.type 'grpo'`. '' if all variants have it. */
  readonly where: string;
  /** Keys below a section. Empty for a field. */
  readonly below: readonly string[];
}

/** The keys of all recipes. */
export function explainableKeys(): readonly string[] {
  return [...new Set(allRecipes().flatMap(({ schema }) => [...knownPaths(schema)]))];
}

/**
 * Explains a key: one entry for each of its descriptions, types and defaults. A name without its section, such as `kl_coeff`, works if only one key ends in
 * it. Raises UsageError for an unknown key.
 */
export function explain(query: string): readonly Explanation[] {
  const key = resolveKey(query.replaceAll(/(?:\.\d+|\[\d*\])(?=\.|$)/g, '[]'));
  const found = new Map<string, Explanation & { recipes: string[] }>();
  for (const { name, schema } of allRecipes()) {
    for (const { field, where } of placesOf(schema, key.split('.'))) {
      const explanation = explained(key, field, where);
      const same = JSON.stringify(explanation);
      const entry = found.get(same) ?? { ...explanation, recipes: [] };
      if (!entry.recipes.includes(name)) entry.recipes.push(name);
      found.set(same, entry);
    }
  }
  return [...found.values()];
}

function resolveKey(key: string): string {
  const known = explainableKeys();
  if (known.includes(key)) return key;
  const ending = known.filter((each) => each.endsWith(`.${key}`));
  if (ending.length === 1) return ending[0];
  const last = key.split('.').at(-1) ?? key;
  const named = ending.length > 0 ? ending : known.filter((each) => each.endsWith(`.${last}`));
  const close = nearestByName(last, known) ?? nearest(key, known);
  const meant = named.length > 0 ? named.slice(0, 6).join(', ') : close;
  throw new UsageError(`there is no key '${key}'${meant === null ? '' : `; did you mean ${meant}?`}`, {
    where: 'KEY',
    next: '`editrl config schema` lists every key, and `editrl config explain SECTION` lists the keys of a section.',
  });
}

/** The first key, in any section, whose last name is close to a misspelled one. */
function nearestByName(name: string, known: readonly string[]): string | null {
  const names = [...new Set(known.map((key) => key.split('.').at(-1) ?? key))];
  const close = nearest(name, names);
  return close === null ? null : (known.find((key) => key === close || key.endsWith(`.${close}`)) ?? null);
}

interface Place {
  readonly field: z.ZodType;
  readonly where: string;
}

/** The schemas at a path, one for each variant that has the path. A segment may end in `[]`, for the elements of a list. */
function* placesOf(schema: z.ZodType, path: readonly string[], walked = '', where = ''): Generator<Place> {
  const bare = unwrap(schema);
  if (path.length === 0) {
    yield { field: schema, where };
    return;
  }
  if (bare instanceof z.ZodDiscriminatedUnion) {
    const { discriminator } = bare.def;
    for (const option of bare.options as z.ZodType[]) {
      const names = literals((fieldsOf(option, null) ?? {})[discriminator]);
      const shared = path[0] === discriminator;
      const variant = shared ? where : `${walked}${discriminator} '${names.join("' or '")}'`;
      yield* placesOf(option, path, walked, variant);
    }
    return;
  }
  if (bare instanceof z.ZodUnion) {
    for (const option of bare.options as z.ZodType[]) yield* placesOf(option, path, walked, where);
    return;
  }
  const name = path[0].replace(/\[\]$/, '');
  const field = (fieldsOf(bare, null) ?? {})[name] as z.ZodType | undefined;
  if (field === undefined) return;
  const listed = path[0].endsWith('[]') ? unwrap(field) : null;
  const next = listed instanceof z.ZodArray ? (listed.element as z.ZodType) : field;
  yield* placesOf(next, path.slice(1), `${walked}${path[0]}.`, where);
}

function literals(schema: z.ZodType): string[] {
  const bare = unwrap(schema);
  return bare instanceof z.ZodLiteral ? [...bare.values].map(String) : [];
}

function explained(key: string, field: z.ZodType, where: string): Omit<Explanation, 'recipes'> {
  const { description = '', effect = null, allowed } = markOf(field);
  const preset = field.safeParse(undefined);
  const below = effect === null ? belowOf(field, key) : [];
  return {
    key,
    meaning: description,
    type: allowed ?? typeInWords(z.toJSONSchema(field, { io: 'input', unrepresentable: 'any' }) as JsonType),
    default: preset.success && below.length === 0 ? (JSON.stringify(preset.data) ?? null) : null,
    effect,
    where,
    below,
  };
}

/** The direct children of a section, or of a list of sections. */
function belowOf(field: z.ZodType, key: string): string[] {
  const bare = unwrap(field);
  const [inner, prefix] = bare instanceof z.ZodArray ? [bare.element as z.ZodType, `${key}[]`] : [bare, key];
  return Object.keys(fieldsOf(inner, undefined) ?? {}).map((name) => `${prefix}.${name}`);
}

/** The part of a JSON Schema that describes a type. */
interface JsonType {
  readonly type?: string;
  readonly const?: unknown;
  readonly enum?: readonly unknown[];
  readonly anyOf?: readonly JsonType[];
  readonly oneOf?: readonly JsonType[];
  readonly items?: JsonType;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly exclusiveMinimum?: number;
  readonly exclusiveMaximum?: number;
}

const KINDS: Readonly<Record<string, string>> = {
  string: 'a string',
  boolean: 'true or false',
  null: 'null',
  object: 'an object',
};

function typeInWords(type: JsonType): string {
  const options = type.anyOf ?? type.oneOf;
  if (options !== undefined) return [...new Set(options.map(typeInWords))].join(', or ');
  if (type.const !== undefined) return JSON.stringify(type.const);
  if (type.enum !== undefined) return type.enum.map((value) => JSON.stringify(value)).join(', ');
  if (type.type === 'array') return `a list${type.items === undefined ? '' : `; each: ${typeInWords(type.items)}`}`;
  if (type.type === 'integer' || type.type === 'number') return `${NUMBERS[type.type]}${boundsOf(type)}`;
  return KINDS[type.type ?? ''] ?? 'anything';
}

const NUMBERS = { integer: 'an integer', number: 'a number' } as const;

function boundsOf({ minimum, maximum, exclusiveMinimum, exclusiveMaximum }: JsonType): string {
  const bounds: readonly (readonly [string, number | undefined])[] = [
    ['>', exclusiveMinimum],
    ['>=', minimum],
    ['<', exclusiveMaximum],
    ['<=', maximum],
  ];
  return bounds
    .filter(([, bound]) => bound !== undefined && Math.abs(bound) < Number.MAX_SAFE_INTEGER)
    .map(([sign, bound]) => ` ${sign} ${bound}`)
    .join(',');
}
