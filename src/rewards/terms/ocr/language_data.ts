/** The language data that tesseract reads with: from a folder, or from packages that lie beside this one. Nothing is ever fetched. */
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { ConfigError } from '../../../core/errors.js';

/** One language as the worker threads take it. */
export interface LanguageData {
  readonly code: string;
  /** An unpacked `traineddata` file. */
  readonly data: Uint8Array;
}

/** The variant of the packages that holds the best recogniser, with integer weights. */
const VARIANT = '4.0.0_best_int';

/** Raises ConfigError for a language that neither the folder nor a package has, and for a file that is not whole. */
export function loadLanguages(language: string, folder: string | null): readonly LanguageData[] {
  return language.split('+').map((code) => ({ code, data: unpack(fileOf(code, folder)) }));
}

function fileOf(code: string, folder: string | null): string {
  const from = folder ?? packageFolder(code);
  const found = [`${code}.traineddata.gz`, `${code}.traineddata`].map((name) => join(from, name)).find(existsSync);
  if (found !== undefined) return found;
  throw new ConfigError(`there is no ${code}.traineddata or ${code}.traineddata.gz in ${from}`, {
    where: `language '${code}'`,
    next: 'Put the file there, or leave language_data out to take it from a package.',
  });
}

function packageFolder(code: string): string {
  const name = `@tesseract.js-data/${code}`;
  try {
    return join(dirname(createRequire(import.meta.url).resolve(`${name}/package.json`)), VARIANT);
  } catch (cause) {
    throw new ConfigError(`the package ${name} is not installed`, {
      where: `language '${code}'`,
      next: `Run \`npm install ${name}\`, or set language_data to a folder with ${code}.traineddata.`,
      cause,
    });
  }
}

function unpack(file: string): Uint8Array {
  try {
    const bytes = readFileSync(file);
    return file.endsWith('.gz') ? gunzipSync(bytes) : bytes;
  } catch (cause) {
    throw new ConfigError(`cannot read the language data (${cause instanceof Error ? cause.message : String(cause)})`, {
      where: file,
      next: 'Install it again.',
      cause,
    });
  }
}
