/** Validation: the schema first, then combinations of settings, so that all problems of a config are reported at once. */
import type { z } from 'zod';
import type { Recipe } from '../recipes/recipe.js';
import { problem, type Problem, type Reader } from '../recipes/rules.js';
import { recipeNamed, recipeNames, recipeOf } from '../recipes/settings.js';
import { getPath } from '../schema/paths.js';
import type { RunSettings } from '../schema/run.js';
import { isObject, leaves } from '../schema/walk.js';
import { nearest } from '../core/nearest.js';
import { problemsOf } from './problems.js';

export type Validated = { readonly settings: RunSettings } | { readonly problems: readonly Problem[] };

/**
 * Validates a canonical config. A misspelt task is validated as the one that was meant. `begun` are the settings of a run that continues: a rule that
 * these break too is not enforced, because it was added later.
 */
export function validate(raw: Readonly<Record<string, unknown>>, begun?: unknown): Validated {
  const named = raw['task'];
  const meant = recipeNamed(named) === undefined && typeof named === 'string' ? nearest(named, recipeNames) : named;
  const recipe = recipeNamed(meant);
  const taskProblems = recipe !== undefined && meant === named ? [] : problem('task', taskProblem(named, recipe?.name));
  if (recipe === undefined) return { problems: taskProblems };

  const { schema } = recipe;
  const value = { ...raw, task: recipe.name };
  const parsed = schema.safeParse(value);
  const schemaProblems = parsed.success ? [] : problemsOf(parsed.error, schema, value);
  const broken = brokenRules(recipe, parsed.success ? readerOf(parsed.data) : partialReader(schema, value));
  const excused = begun === undefined ? [] : brokenRules(recipe, readerOf(begun)).map(({ message }) => message);
  const problems = [...taskProblems, ...schemaProblems, ...broken.filter(({ message }) => !excused.includes(message))];
  return parsed.success && problems.length === 0 ? { settings: parsed.data as RunSettings } : { problems };
}

/** Every combination that cannot work: the recipe's own, and a run that names itself as a model. */
export function brokenRules(recipe: Recipe, read: Reader): Problem[] {
  const name = read('run_name');
  const models = recipe.trainer === 'this program' ? recipe.models : [];
  const itself = models.filter((key) => name !== undefined && read(`${key}.run`) === name);
  return [
    ...recipe.rules.flatMap((rule) => rule(read)),
    ...itself.flatMap((key) =>
      problem(`${key}.run`, `found '${String(name)}', which is this run itself; allowed: another run`),
    ),
  ];
}

function taskProblem(found: unknown, meant: string | undefined): string {
  const available = recipeNames.join(', ');
  if (found === undefined) return `missing; allowed: ${available}`;
  const text = typeof found === 'string' ? `'${found}'` : JSON.stringify(found);
  return `found ${text}; allowed: ${available}${meant === undefined ? '' : `; did you mean '${meant}'?`}`;
}

/** Keys of the paths that rules read, cached: they are few, and read for every one of many settings. */
const keysOf = new Map<string, readonly string[]>();

/** Reads defaulted settings by dotted path. */
export function readerOf(settings: unknown): Reader {
  return (path) => {
    const keys = keysOf.get(path) ?? path.split('.');
    keysOf.set(path, keys);
    return getPath(settings, keys);
  };
}

/** Reads the parts that are valid by themselves: each section is validated alone, without its invalid entries. */
function partialReader(schema: z.ZodObject, value: Record<string, unknown>): Reader {
  const fields = schema.shape as Readonly<Record<string, z.ZodType>>;
  const valid: Record<string, unknown> = {};
  const wrong: string[] = [];
  for (const [key, field] of Object.entries(fields)) {
    const whole = field.safeParse(value[key]);
    if (whole.success) {
      valid[key] = whole.data;
      continue;
    }
    const paths = whole.error.issues
      .filter((issue) => issue.code !== 'unrecognized_keys')
      .map((issue) => issue.path as (string | number)[]);
    wrong.push(...paths.map((path) => [key, ...path].join('.')));
    const keys = whole.error.issues.flatMap((issue) =>
      issue.code === 'unrecognized_keys'
        ? issue.keys.map((name) => [...(issue.path as (string | number)[]), name])
        : [],
    );
    const pruned = [...paths, ...keys].reduce(without, value[key]);
    const reparsed = field.safeParse(pruned);
    valid[key] = reparsed.success ? reparsed.data : pruned;
  }
  const read = readerOf(valid);
  // A default that replaces an invalid value must not take part in a rule: only what the author wrote (or left to the default) counts.
  const isWrong = (path: string): boolean =>
    wrong.some((bad) => bad === path || path.startsWith(`${bad}.`) || bad.startsWith(`${path}.`));
  return (path) => (isWrong(path) ? undefined : read(path));
}

/** A copy without the entry at a path; the value itself if the path is empty. */
function without(value: unknown, path: readonly (string | number)[]): unknown {
  const [key, ...rest] = path;
  if (key === undefined) return value;
  if (Array.isArray(value)) {
    return value.map((item, index) => (index === key ? without(item, rest) : (item as unknown)));
  }
  if (!isObject(value)) return value;
  if (rest.length > 0) return { ...value, [key]: without(value[key], rest) };
  return Object.fromEntries(Object.entries(value).filter(([name]) => name !== String(key)));
}

/** Every leaf of the settings with its mark; for tests and for tools that list settings. */
export function listSettings(settings: RunSettings): { key: string; value: unknown; effect: 'result' | 'operation' }[] {
  return leaves(recipeOf(settings).schema, settings).map(({ path, value, effect }) => ({
    key: path,
    value,
    effect,
  }));
}
