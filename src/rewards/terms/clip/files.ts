/** The JSON files of a model's folder. */
import { existsSync, readFileSync } from 'node:fs';
import { z } from 'zod';
import { ConfigError } from '../../../core/errors.js';

const AGAIN = 'Export the model again, or copy this file from its Hub repository.';

/** The first of some files that is there. Raises ConfigError that names `what` where none is. */
export function firstFile(files: readonly string[], what: string, folder: string): string {
  const file = files.find((candidate) => existsSync(candidate));
  if (file === undefined) throw new ConfigError(`there is no ${what}`, { where: folder, next: AGAIN });
  return file;
}

/** Raises ConfigError where the file cannot be read, is no JSON or has another form. */
export function readJson<T extends z.ZodType>(file: string, schema: T): z.output<T> {
  let value: unknown;
  try {
    value = JSON.parse(readFileSync(file, 'utf8'));
  } catch (cause) {
    throw new ConfigError(`cannot be read as JSON: ${cause instanceof Error ? cause.message : String(cause)}`, {
      where: file,
      next: AGAIN,
      cause,
    });
  }
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw new ConfigError(z.prettifyError(parsed.error).split('\n').slice(0, 4).join(' '), { where: file, next: AGAIN });
}
