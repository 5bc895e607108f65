/** The schema as JSON Schema, for editors and other tools. */
import { z } from 'zod';
import { UsageError } from '../core/errors.js';
import { allRecipes } from './recipes.js';

/**
 * One schema over all recipes, or of one. Every field has a `description`, and an `effect` of `result` or `operation`. Parts that fields share appear
 * once, in `$defs`. Raises UsageError for a recipe that does not exist.
 */
export function jsonSchema(task: string | null = null): Readonly<Record<string, unknown>> {
  const known = allRecipes();
  const [first, ...rest] = known.filter(({ name }) => task === null || name === task).map(({ schema }) => schema);
  if ((first as object | undefined) === undefined) {
    throw new UsageError(`there is no task '${task}'; allowed: ${known.map(({ name }) => name).join(', ')}`);
  }
  return z.toJSONSchema(z.discriminatedUnion('task', [first, ...rest]), { io: 'input', reused: 'ref' });
}
