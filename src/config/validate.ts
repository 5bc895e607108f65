/** Validation: the schema, then the combinations, so that all problems of a config are reported at once. */
import type { z } from 'zod';
import { nearest } from './nearest.js';
import { problemsOf, type Problem } from './problems.js';
import { combinationProblems, type Reader } from './rules.js';
import { laterTasks } from './later.js';
import { settingsOfTask, taskNames, type TaskName } from './schema/tasks.js';
import { getPath, isObject, leaves } from '../schema/walk.js';
import type { Settings } from './settings.js';

export type Validated = { readonly settings: Settings } | { readonly problems: readonly Problem[] };

/** Validates a canonical config. A task that is only misspelt is validated as the one that was meant. */
export function validate(raw: Readonly<Record<string, unknown>>): Validated {
  const named = raw['task'];
  const task = taskNames.find((name) => name === named);
  const meant = task ?? (typeof named === 'string' ? (nearest(named, taskNames) as TaskName | null) : null);
  const taskProblems = task === undefined ? [{ key: 'task', message: taskProblem(named, meant) }] : [];
  if (meant === null) return { problems: taskProblems };

  const value = { ...raw, task: meant };
  const schema = settingsOfTask[meant];
  const parsed = schema.safeParse(value);
  const schemaProblems = parsed.success ? [] : problemsOf(parsed.error, schema, value);
  const reader = parsed.success ? readerOf(parsed.data) : partialReader(schema, value);
  const problems = [...taskProblems, ...schemaProblems, ...combinationProblems(reader)];
  return parsed.success && problems.length === 0 ? { settings: parsed.data } : { problems };
}

function taskProblem(found: unknown, meant: string | null): string {
  const available = taskNames.join(', ');
  if (found === undefined) return `missing; allowed: ${available}`;
  const text = typeof found === 'string' ? `'${found}'` : JSON.stringify(found);
  if (typeof found === 'string' && laterTasks.includes(found)) {
    return `${text} is not available in this version; available: ${available}`;
  }
  return `found ${text}; allowed: ${available}${meant === null ? '' : `; did you mean '${meant}'?`}`;
}

/** Reads defaulted settings by dotted path. */
export function readerOf(settings: unknown): Reader {
  return { value: (path) => getPath(settings, path) };
}

/** Reads what is valid by itself: each section is validated alone, without the entries that are wrong. */
function partialReader(schema: (typeof settingsOfTask)[TaskName], value: Record<string, unknown>): Reader {
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
  const reader = readerOf(valid);
  // A replaced default must not take part in a rule: only what the author wrote (or left to the default) counts.
  const isWrong = (path: string): boolean =>
    wrong.some((bad) => bad === path || path.startsWith(`${bad}.`) || bad.startsWith(`${path}.`));
  return { value: (path) => (isWrong(path) ? undefined : reader.value(path)) };
}

/** A copy without the entry at a path; the value itself when the path is empty. */
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
export function listSettings(settings: Settings): { key: string; value: unknown; effect: 'result' | 'operation' }[] {
  return [...leaves(settingsOfTask[settings.task], settings)].map(({ path, value, effect }) => ({
    key: path,
    value,
    effect,
  }));
}
