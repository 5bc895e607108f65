/** The problems of a config: a line each, with the place, the value and the allowed values. */
import { ConfigError } from '../core/errors.js';
import { z } from 'zod';
import { canonicalKeyOf, flatKeys } from './earl/keys.js';
import { displayPath, withoutContents } from './jsonnet.js';
import { nearest } from '../core/nearest.js';
import { isSet, placesOf, replacementOf, type Composed, type Origin } from './origin.js';
import type { Problem } from './schema/rules.js';
import { getPath, fieldsOf, isObject, knownPaths, markOf, schemaAt, unwrap } from '../core/schema/walk.js';

type Path = readonly (string | number)[];

/** One error with all problems, each with the place that gave the value. */
export function tracedError(problems: readonly Problem[], origin: Origin): ConfigError {
  return errorOf(problemLines(problems, origin), origin.file, foreignOverlay(problems, origin));
}

/** Advice about an overlay that sets several unknown keys. Null if there is none. */
function foreignOverlay(problems: readonly Problem[], origin: Origin): string | null {
  const unknown = problems.filter(({ message }) => message.startsWith('unknown key')).map(({ key }) => key);
  const places = placesOf(unknown, origin);
  const overlay = origin.layers
    .slice(1)
    .map(({ file }) => displayPath(file))
    .find((file) => places.filter((place) => place.startsWith(`${file}:`)).length > 1);
  if (overlay === undefined) return null;
  return `${overlay} may belong to another recipe: its first lines name the configs that it is for.`;
}

/** Problems as lines, each with the place that gave the value. */
export function problemLines(problems: readonly Problem[], origin: Origin): string[] {
  const places = placesOf(
    problems.map(({ key }) => key),
    origin,
  );
  return linesOf(explained(problems, origin), places, origin.sets).map((line) => withoutContents(line, origin.sources));
}

/** Adds to missing keys the file that replaces a section instead of merging into it. */
function explained(problems: readonly Problem[], origin: Composed): Problem[] {
  return problems.map((problem) => {
    const lost = problem.message.startsWith('missing') ? replacementOf(problem.key, origin) : null;
    if (lost === null) return problem;
    const { section, where } = lost;
    const [name] = section.split('.').slice(-1);
    return {
      ...problem,
      message: `${problem.message}; ${where} replaces all of ${section}, write \`${name}+:\` there to merge into it`,
    };
  });
}

/** One error with all problems of values that are in no file. */
export function configError(problems: readonly Problem[], { file, sets }: Pick<Origin, 'file' | 'sets'>): ConfigError {
  const places = problems.map(({ key }) => (isSet(key, sets) ? '--set' : ''));
  return errorOf(linesOf(problems, places, sets), file);
}

/** `places`: the place that set each value, '' if unknown. */
function linesOf(problems: readonly Problem[], places: readonly string[], sets: Origin['sets']): string[] {
  return problems.map(({ key, message }, index) => {
    const place = places[index] === '' ? '' : `(${places[index]}) `;
    return `${place}${key}: ${message}${formOf(key, message, sets)}`;
  });
}

function errorOf(lines: readonly string[], file: string, advice: string | null = null): ConfigError {
  const text =
    lines.length === 1 ? lines[0] : `${lines.length} problems\n${lines.map((line) => `  ${line}`).join('\n')}`;
  return new ConfigError(text, {
    where: displayPath(file),
    next:
      advice ??
      'editrl config schema lists every key with its meaning; editrl config show --origin prints the origin of each value.',
  });
}

/** A hint for `--set` with a string that looks like another type. */
function formOf(key: string, message: string, sets: readonly string[]): string {
  const given = sets.find((text) => text.startsWith(`${key}=`))?.slice(key.length + 1);
  if (given === undefined || !message.endsWith('allowed: a string') || !/^[\w.+-]+$/.test(given)) return '';
  return ` (--set takes JSON: '${key}="${given}"' is one)`;
}

/** Turns the schema's issues into problems. `value` is what was validated. */
export function problemsOf(error: z.ZodError, schema: z.ZodType, value: unknown): Problem[] {
  return error.issues.flatMap((issue) => problemsOfIssue(issue, schema, value));
}

function problemsOfIssue(issue: z.core.$ZodIssue, schema: z.ZodType, root: unknown): Problem[] {
  const path = issue.path as Path;
  if (issue.code === 'unrecognized_keys') {
    return issue.keys.map((key) => ({ key: dottedPath([...path, key]), message: unknownKey(key, path, schema, root) }));
  }
  const found = getPath(root, path);
  if (found === undefined && issue.code === 'invalid_type' && issue.expected === 'object') {
    // The keys that a missing section must have.
    const parsed = schemaAt(schema, path, root)?.safeParse({});
    const inner = parsed?.error?.issues ?? [];
    if (inner.length > 0) {
      return inner.flatMap((each) => problemsOfIssue({ ...each, path: [...path, ...each.path] }, schema, root));
    }
  }
  if (issue.code === 'invalid_union' && isObject(found)) {
    const meant = variantMeant(issue.errors, found, schemaAt(schema, path, root));
    if (meant !== null) {
      return meant.flatMap((inner) => problemsOfIssue({ ...inner, path: [...path, ...inner.path] }, schema, root));
    }
  }
  return [
    {
      key: dottedPath(path),
      message: `${describeFound(found)}; ${describeAllowed(issue, path, schema, root)}`,
    },
  ];
}

function unknownKey(key: string, path: Path, schema: z.ZodType, root: unknown): string {
  const here = schemaAt(schema, path, root) ?? schema;
  const fields = Object.keys(fieldsOf(here, getPath(root, path)) ?? unionFields(here));
  const close = nearest(key, fields);
  if (close !== null) return `unknown key; did you mean ${dottedPath([...path, close])}?`;
  if (path.length === 0) {
    const canonical = canonicalKeyOf(key);
    if (canonical !== null) return `a key of EARL's flat form; in this form: ${canonical}`;
    const flat = nearest(key, flatKeys);
    if (flat !== null) return `unknown key; did you mean ${flat} (EARL's flat form)?`;
  }
  const other = otherVariant(key, here, getPath(root, path), path);
  if (other !== null) return other;
  const elsewhere = [...knownPaths(schema)].filter((known) => known.split('.').at(-1) === key);
  if (elsewhere.length > 0) return `unknown key here; did you mean ${elsewhere.slice(0, 3).join(' or ')}?`;
  return `unknown key; allowed: ${fields.sort().join(', ')}`;
}

/** A message for a key of another variant, such as another `algorithm.type`. Null if no variant has it. */
function otherVariant(key: string, schema: z.ZodType, found: unknown, path: Path): string | null {
  const union = unwrap(schema);
  if (!(union instanceof z.ZodDiscriminatedUnion) || !isObject(found)) return null;
  const { discriminator } = union.def;
  const having = (union.options as z.ZodType[]).filter((option) => Object.hasOwn(fieldsOf(option, null) ?? {}, key));
  const names = having.flatMap((option) => namesOf((fieldsOf(option, null) ?? {})[discriminator]));
  if (names.length === 0) return null;
  return `a key of ${dottedPath([...path, discriminator])} '${names.join("' or '")}' only; here it is '${String(found[discriminator])}'`;
}

/** The issues of the variant that shares most keys with an object. Null if none shares any. */
function variantMeant(
  errors: readonly (readonly z.core.$ZodIssue[])[],
  found: Record<string, unknown>,
  schema: z.ZodType | null,
): readonly z.core.$ZodIssue[] | null {
  const bare = schema === null ? null : unwrap(schema);
  if (!(bare instanceof z.ZodUnion)) return null;
  const shared = (bare.options as z.ZodType[]).map(
    (option) => Object.keys(fieldsOf(option, found) ?? {}).filter((key) => key in found).length,
  );
  const most = Math.max(0, ...shared);
  return most === 0 ? null : (errors[shared.indexOf(most)] ?? null);
}

/** The keys of all objects in a union. */
function unionFields(schema: z.ZodType): Record<string, z.ZodType> {
  const bare = unwrap(schema);
  if (!(bare instanceof z.ZodUnion)) return {};
  return Object.assign(
    {},
    ...(bare.options as z.ZodType[]).map((option) => fieldsOf(option, undefined) ?? {}),
  ) as Record<string, z.ZodType>;
}

/** The names that are allowed at a path: the values of an enumeration, or the variants of a discriminator. */
export function availableAt(path: Path, schema: z.ZodType, root: unknown): string[] {
  const parent = unwrap(schemaAt(schema, path.slice(0, -1), root) ?? schema);
  const last = path.at(-1);
  if (parent instanceof z.ZodDiscriminatedUnion && parent.def.discriminator === last) {
    return (parent.options as z.ZodType[]).flatMap((option) => namesOf((fieldsOf(option, null) ?? {})[last]));
  }
  const field = schemaAt(schema, path, root);
  return field === null ? [] : namesOf(field);
}

function namesOf(schema: z.ZodType): string[] {
  const bare = unwrap(schema);
  if (bare instanceof z.ZodEnum) return bare.options.map(String);
  if (bare instanceof z.ZodLiteral) return [...bare.values].map(String);
  return [];
}

/** Maximum length of a value in a message. */
const MAX_SHOWN = 80;

/** A value for a message. A long one is described by its size, because it may be the contents of a file. */
function describeFound(found: unknown): string {
  if (found === undefined) return 'missing';
  const text = JSON.stringify(found);
  if (text.length <= MAX_SHOWN) return `found ${text}`;
  if (typeof found === 'string') return `found a string of ${found.length} characters`;
  if (Array.isArray(found)) return `found a list of ${found.length}`;
  const keys = Object.keys(found as object);
  return `found an object with ${keys.slice(0, 4).join(', ')}${keys.length > 4 ? ', …' : ''}`;
}

function describeAllowed(issue: z.core.$ZodIssue, path: Path, schema: z.ZodType, root: unknown): string {
  const field = schemaAt(schema, path, root);
  const words = field === null ? undefined : markOf(field).allowed;
  if (words !== undefined) return `allowed: ${words}`;
  switch (issue.code) {
    case 'invalid_type':
      return `allowed: ${kindInWords(issue.expected)}`;
    case 'invalid_value':
    case 'invalid_union': {
      const values = issue.code === 'invalid_value' ? issue.values.map(String) : availableAt(path, schema, root);
      if (issue.code === 'invalid_union' && values.length === 0) return `allowed: ${kindsOf(issue)}`;
      const found = getPath(root, path);
      const close = typeof found === 'string' ? nearest(found, values) : null;
      return `allowed: ${values.join(', ')}${close === null ? '' : `; did you mean '${close}'?`}`;
    }
    case 'too_small':
      return `allowed: ${sized(issue.origin)}${issue.inclusive === false ? '>' : '>='} ${issue.minimum}`;
    case 'too_big':
      return `allowed: ${sized(issue.origin)}${issue.inclusive === false ? '<' : '<='} ${issue.maximum}`;
    case 'custom':
      return `allowed: ${String(issue.params?.['allowed'] ?? issue.message)}`;
    case 'invalid_format':
    case 'not_multiple_of':
    case 'unrecognized_keys':
    case 'invalid_key':
    case 'invalid_element':
      return `allowed: ${issue.message}`;
  }
}

/** The kinds of a union's options, in words. */
function kindsOf({ errors }: z.core.$ZodIssueInvalidUnion): string {
  const kinds = errors.flatMap(([first]) =>
    first?.code === 'invalid_type'
      ? [kindInWords(first.expected)]
      : first?.code === 'invalid_value'
        ? first.values.map(String)
        : [],
  );
  return [...new Set(kinds)].join(' or ');
}

function sized(origin: string): string {
  if (origin === 'string') return 'a string of length ';
  return origin === 'array' ? 'a list of length ' : 'a number ';
}

function kindInWords(expected: string): string {
  const words: Record<string, string> = {
    int: 'an integer',
    number: 'a number',
    string: 'a string',
    boolean: 'true or false',
    array: 'a list',
    tuple: 'a list',
    object: 'an object',
    record: 'an object',
  };
  return words[expected] ?? expected;
}

export function dottedPath(path: Path): string {
  return path.join('.');
}
