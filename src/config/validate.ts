/** Validation of the schema and of combinations of settings. All problems of a config are reported at once. */
import type { z } from 'zod';
import { markInvalid, problem, type PartialSettings, type Problem } from './schema/rules.js';
import { allRecipes, recipeNamed, recipeOf, isTrainable } from './recipes.js';
import { getPath, fieldsOf, isObject, leaves } from '../core/schema/walk.js';
import type { RunSettings, TrainedSettings } from './schema/run.js';
import { nearest } from '../core/nearest.js';
import { problemsOf } from './problems.js';
import { growable, optimizerSteps } from './hash.js';

export type Validated = { readonly settings: RunSettings } | { readonly problems: readonly Problem[] };

/** Validates a canonical config. A misspelled task is validated as the nearest one. */
export function validate(raw: Readonly<Record<string, unknown>>): Validated {
  const named = raw['task'];
  const meant = recipeNamed(named) === undefined && typeof named === 'string' ? nearest(named, recipeNames()) : named;
  const recipe = recipeNamed(meant);
  const taskProblems = recipe !== undefined && meant === named ? [] : problem('task', taskProblem(named, recipe?.name));
  if (recipe === undefined) return { problems: taskProblems };

  const { schema } = recipe;
  const value = { ...raw, task: recipe.name };
  const parsed = schema.safeParse(value);
  const schemaProblems = parsed.success ? [] : problemsOf(parsed.error, schema, value);
  const broken = brokenRules(recipe, parsed.success ? parsed.data : validParts(schema, value));
  const problems = [...taskProblems, ...schemaProblems, ...broken];
  return parsed.success && problems.length === 0 ? { settings: parsed.data as RunSettings } : { problems };
}

/** Problems of combinations, in settings or in their valid parts: the recipe's rules, and a run that names itself as a model. */
export function brokenRules(recipe: ReturnType<typeof recipeOf>, settings: unknown): Problem[] {
  const parts = settings as PartialSettings<TrainedSettings>;
  const models = recipe.trainer === 'this program' ? recipe.models : [];
  const itself = models.filter(
    (key) => parts.run_name !== undefined && getPath(parts, `${key}.run`) === parts.run_name,
  );
  return [
    ...recipe.broken(parts),
    ...itself.flatMap((key) =>
      problem(`${key}.run`, `found '${String(parts.run_name)}', which is this run itself; allowed: another run`),
    ),
  ];
}

const recipeNames = (): string[] => allRecipes().map(({ name }) => name);

function taskProblem(found: unknown, meant: string | undefined): string {
  const available = recipeNames().join(', ');
  if (found === undefined) return `missing; allowed: ${available}`;
  const text = typeof found === 'string' ? `'${found}'` : JSON.stringify(found);
  return `found ${text}; allowed: ${available}${meant === undefined ? '' : `; did you mean '${meant}'?`}`;
}

type Path = readonly (string | number)[];

/**
 * The parts that are valid by themselves: each section is validated alone, without its invalid entries. A default that would replace an invalid value does
 * not count.
 */
function validParts(schema: z.ZodObject, value: Record<string, unknown>): Record<string, unknown> {
  const fields = Object.entries<z.ZodType>(schema.shape);
  return Object.fromEntries(
    fields.map(([key, field]) => {
      const whole = field.safeParse(value[key]);
      if (whole.success) return [key, whole.data];
      const { issues } = whole.error;
      const wrong = issues.flatMap(({ code, path }) => (code === 'unrecognized_keys' ? [] : [path as Path]));
      const unknown = issues.flatMap((issue) =>
        issue.code === 'unrecognized_keys' ? issue.keys.map((name) => [...(issue.path as Path), name]) : [],
      );
      const pruned = [...wrong, ...unknown].reduce(without, value[key]);
      const parts = field.safeParse(pruned);
      return [key, wrong.reduce(marked, parts.success ? parts.data : soundOf(field, pruned))];
    }),
  );
}

/** The valid parts of an invalid section, without defaults. */
function soundOf(schema: z.ZodType, value: unknown): unknown {
  if (schema.safeParse(value).success) return value;
  const fields = fieldsOf(schema, value);
  if (fields === null || !isObject(value)) return undefined;
  const known = Object.entries(value).filter(([key]) => Object.hasOwn(fields, key));
  return Object.fromEntries(known.map(([key, entry]) => [key, soundOf(fields[key], entry)]));
}

/** A copy in which the entry at a path, or its list, is undefined and the sections around it are marked invalid. */
function marked(value: unknown, [key, ...rest]: Path): unknown {
  return key === undefined || !isObject(value) ? undefined : markInvalid({ ...value, [key]: marked(value[key], rest) });
}

/** A copy without the entry at a path. */
function without(value: unknown, [key, ...rest]: Path): unknown {
  if (key === undefined) return value;
  if (Array.isArray(value)) {
    return value.map((item, index) => (index === key ? without(item, rest) : (item as unknown)));
  }
  if (!isObject(value)) return value;
  if (rest.length > 0) return { ...value, [key]: without(value[key], rest) };
  return Object.fromEntries(Object.entries(value).filter(([name]) => name !== String(key)));
}

/** Every leaf of the settings with its effect. */
export function listSettings(settings: RunSettings): { key: string; value: unknown; effect: 'result' | 'operation' }[] {
  return leaves(recipeOf(settings).schema, settings).map(({ path, value, effect }) => ({
    key: path,
    value,
    effect,
  }));
}

export function warningsOf(settings: RunSettings): string[] {
  return isTrainable(settings) ? [...ofTraining(settings), ...ofEnvironment(settings)] : [];
}

/** A step of AdamW is about as large as the learning rate, and weights are of the order of 0.01 to 1. */
const MAX_USUAL_LEARNING_RATE = 0.1;

/** Environment variables that control PyTorch's GPU memory and NCCL's communication. */
const TORCH_VARIABLE = /^(?:PYTORCH_|TORCH_|NCCL_)/;

function ofEnvironment({ launch: { env, command } }: TrainedSettings): string[] {
  const names = command === null ? Object.keys(env).filter((name) => TORCH_VARIABLE.test(name)) : [];
  const visible = command === null && 'CUDA_VISIBLE_DEVICES' in env;
  return [
    ...(names.length === 0 ? [] : [`launch.env: ${names.join(', ')} has no effect, because PyTorch is not used`]),
    ...(visible ? ['launch.env: CUDA_VISIBLE_DEVICES has no effect; use launch.devices and launch.placement'] : []),
  ];
}

function ofTraining(settings: TrainedSettings): string[] {
  const { data, algorithm, optimizer, checkpoint, track } = settings;
  const warnings = [...recipeOf(settings).warnings(settings)];
  if (data?.validation.some(({ coefficient }) => coefficient !== null)) {
    warnings.push('data.validation: coefficient has no effect; evaluations use the same prompts of each held-out set');
  }
  const steps = optimizerSteps(settings);
  if (algorithm.warmup_steps > 0 && steps <= algorithm.warmup_steps) {
    const unused = growable(settings) ? '' : `; optimizer.schedule '${optimizer.schedule}' has no effect`;
    warnings.push(
      `algorithm.warmup_steps: found ${algorithm.warmup_steps}; the run ends during warm-up, after ${steps} steps${unused}`,
    );
  }
  if (optimizer.learning_rate > MAX_USUAL_LEARNING_RATE) {
    warnings.push(
      `optimizer.learning_rate: found ${optimizer.learning_rate}; usual values are 1e-6 to 1e-2, because AdamW changes every weight by about this much per step`,
    );
  }
  const published = track.push_to_hub?.every_n_iterations ?? null;
  const { save_every_n_iterations: saved } = checkpoint;
  if (published !== null && published % saved !== 0) {
    warnings.push(
      `track.push_to_hub.every_n_iterations: found ${published}; only checkpoints are published, and checkpoint.save_every_n_iterations is ${saved}`,
    );
  }
  return warnings;
}
