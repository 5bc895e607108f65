/** Marks of fields, and small types that several sections share. */
import { z } from 'zod';

/**
 * `result`: the field affects what a run learns. It enters the settings hash and cannot change on resume. `operation`: where and how the
 * run works (endpoints, folders, logging). It may change on resume.
 */
export type Effect = 'result' | 'operation';

/** Reads settings by dotted path. A number is an index of a list. Undefined if there is none. */
export type ReadSettings = (path: string) => unknown;

/** Further properties of a field or a section. */
export interface ExtraMarks {
  /** The allowed values in words, if the schema's own wording would be unclear. */
  readonly allowed?: string;
  /** The path is relative to the folder at this key, so that data can move with it. */
  readonly relativeTo?: string;
  /** The path of a file whose content counts, not its location. For a module, its imports count too. */
  readonly file?: 'text' | 'module';
  /**
   * Whether the value has no effect under these settings. Settings that differ only in idle values are equal, whatever their hashes. An
   * idle top-level section is left out of the hash.
   */
  readonly idle?: (settings: ReadSettings) => boolean;
  /** A resumed run may raise the value. */
  readonly mayGrow?: boolean;
}

export interface Mark extends ExtraMarks {
  readonly effect?: Effect;
  readonly description?: string;
}

/** Documents a field that affects what a run learns. Must be the outermost call on a schema. */
export function result<T extends z.ZodType>(description: string, schema: T, extra: ExtraMarks = {}): T {
  return schema.meta({ ...extra, description, effect: 'result' });
}

/** Documents a field that affects only how a run works. Must be the outermost call on a schema. */
export function operation<T extends z.ZodType>(description: string, schema: T, extra: ExtraMarks = {}): T {
  return schema.meta({ ...extra, description, effect: 'operation' });
}

/** Documents an object whose fields have their own marks. */
export function section<T extends z.ZodType>(description: string, schema: T): T {
  return schema.meta({ description });
}

/** A section that is without effect if `idle` returns true. */
export function idleWhere<T extends z.ZodType>(idle: NonNullable<ExtraMarks['idle']>, schema: T): T {
  return schema.meta({ ...schema.meta(), idle });
}

/** The address of an HTTP server, without a user name or password. */
export const httpAddress = (example: string) =>
  z
    .string()
    .refine((text) => URL.canParse(text) && /^https?:$/.test(new URL(text).protocol) && new URL(text).username === '', {
      error: `an address such as ${example}`,
    });

export const positiveInteger = z.int().min(1);
export const count = z.int().min(0);
export const positive = z.number().positive();
export const nonNegative = z.number().min(0);
