/** The schema as JSON Schema, for editors and other tools. */
import { z } from 'zod';
import { recipes } from '../recipes/settings.js';

/** One schema over all recipes; every field has a `description`, and an `effect` of `result` or `operation`. */
export function jsonSchema(): Record<string, unknown> {
  const [first, ...rest] = Object.values(recipes).map(({ schema }) => schema);
  return z.toJSONSchema(z.discriminatedUnion('task', [first, ...rest]), { io: 'input' });
}
