/** The schema as JSON Schema, for editors and other tools. */
import { z } from 'zod';
import { settingsOfTask } from './schema/tasks.js';

/** One schema over all tasks; every field has a `description`, and an `effect` of `result` or `operation`. */
export function jsonSchema(): Record<string, unknown> {
  const [first, ...rest] = Object.values(settingsOfTask);
  return z.toJSONSchema(z.discriminatedUnion('task', [first, ...rest]), { io: 'input' });
}
