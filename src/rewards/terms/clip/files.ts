/** The JSON files of a model's folder. */
import { existsSync } from 'node:fs';
import { z } from 'zod';
import { ConfigError } from '../../../core/errors.js';
import { readTextFile } from '../../../core/text.js';

const AGAIN = 'Copy this file from the Hub repository of the model.';

/** The first existing file of a list. Raises ConfigError that names `what` if none exists. */
export function firstFile(files: readonly string[], what: string, folder: string): string {
  const file = files.find((candidate) => existsSync(candidate));
  if (file === undefined) throw new ConfigError(`there is no ${what}`, { where: folder, next: AGAIN });
  return file;
}

/** Raises ConfigError if the file cannot be read, is not JSON or has another form. */
export function readJson<T extends z.ZodType>(file: string, schema: T): z.output<T> {
  let json: string;
  try {
    json = readTextFile(file, ConfigError);
  } catch (cause) {
    if (cause instanceof ConfigError) throw cause;
    throw unreadable(file, cause);
  }
  return parseJson(json, schema, file);
}

/** A file's text. Raises ConfigError, naming `where`, if it is not JSON or has another form. */
export function parseJson<T extends z.ZodType>(json: string, schema: T, where: string): z.output<T> {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch (cause) {
    throw unreadable(where, cause);
  }
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw new ConfigError(z.prettifyError(parsed.error).split('\n').slice(0, 4).join(' '), { where, next: AGAIN });
}

function unreadable(where: string, cause: unknown): ConfigError {
  return new ConfigError(`is not valid JSON: ${cause instanceof Error ? cause.message : String(cause)}`, {
    where,
    next: AGAIN,
    cause,
  });
}
