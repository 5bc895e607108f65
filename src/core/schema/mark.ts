/** The marks that fields carry, and the small types that several sections share. */
import { z } from 'zod';

/**
 * `result`: the field changes what a run learns; it enters the settings hash, and a resumed run refuses to change it.
 * `operation`: where and how the run works (endpoints, folders, logging); it may change at any resume.
 */
export type Effect = 'result' | 'operation';

/** Reads settings by dotted path, a number being a place in a list; undefined where nothing stands. */
export type ReadSettings = (path: string) => unknown;

/** Further properties of a field or a section. */
export interface ExtraMarks {
  /** The allowed values in words, if the schema's own wording would be unclear. */
  readonly allowed?: string;
  /** A path that counts relative to the folder at this key, so that data may move with it. */
  readonly relativeTo?: string;
  /** The path of a file: the file's content counts, not its location. For a module, its imports count too. */
  readonly file?: 'text' | 'module';
  /**
   * Whether the value changes nothing under these settings: settings that differ only in it are then equal, whatever their hashes. An idle top-level
   * section is left out of the hash.
   */
  readonly idle?: (settings: ReadSettings) => boolean;
  /** A resumed run may raise the value. */
  readonly mayGrow?: boolean;
}

export interface Mark extends ExtraMarks {
  readonly effect?: Effect;
  readonly description?: string;
}

/** Documents a field and marks it as changing what a run learns. Must be the outermost call on a schema. */
export function result<T extends z.ZodType>(description: string, schema: T, extra: ExtraMarks = {}): T {
  return schema.meta({ ...extra, description, effect: 'result' });
}

/** Documents a field and marks it as changing only how a run works. Must be the outermost call on a schema. */
export function operation<T extends z.ZodType>(description: string, schema: T, extra: ExtraMarks = {}): T {
  return schema.meta({ ...extra, description, effect: 'operation' });
}

/** Documents an object whose fields carry their own marks. */
export function section<T extends z.ZodType>(description: string, schema: T): T {
  return schema.meta({ description });
}

/** A section that changes nothing where `idle` says so. */
export function idleWhere<T extends z.ZodType>(idle: NonNullable<ExtraMarks['idle']>, schema: T): T {
  return schema.meta({ ...schema.meta(), idle });
}

/** The address of an HTTP server, without a name or password in it. */
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
