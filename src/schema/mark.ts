/** The two marks that every field carries, and the small types that several sections share. */
import { z } from 'zod';

/**
 * `result`: the field changes what a run learns; it enters the settings hash, and a resumed run refuses to change it.
 * `operation`: where and how the run works (endpoints, folders, logging); it may change at any resume.
 */
export type Effect = 'result' | 'operation';

/** Documents a field and marks it as changing what a run learns. Must be the outermost call on a schema. */
export function result<T extends z.ZodType>(description: string, schema: T, extra: Record<string, unknown> = {}): T {
  return schema.meta({ ...extra, description, effect: 'result' });
}

/** Documents a field and marks it as changing only how a run works. Must be the outermost call on a schema. */
export function operation<T extends z.ZodType>(description: string, schema: T, extra: Record<string, unknown> = {}): T {
  return schema.meta({ ...extra, description, effect: 'operation' });
}

/** Documents an object whose fields carry their own marks. */
export function section<T extends z.ZodType>(description: string, schema: T): T {
  return schema.meta({ description });
}

export const positiveInteger = z.int().min(1);
export const count = z.int().min(0);
export const positive = z.number().positive();
export const nonNegative = z.number().min(0);
