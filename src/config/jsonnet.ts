/** Evaluates Jsonnet: once per config, whatever its overlays, because each evaluation takes tens of milliseconds. */
import { existsSync, readdirSync, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { ConfigError } from '../core/errors.js';
import { readTextFile } from '../core/text.js';
import { sha256 } from '../core/image.js';
import { Interpreter, limitsOf, JsonnetError } from './interpreter.js';
import { nearest } from '../core/nearest.js';

export type Environment = Readonly<Record<string, string | undefined>>;

export interface Evaluation {
  /** The JSON value of the composition. */
  readonly value: unknown;
  /** SHA-256 over the content of every file involved. */
  readonly importHash: string;
  /** Every file involved, with its text; the config first, then overlays, then what they import. */
  readonly sources: ReadonlyMap<string, string>;
}

/**
 * The external variables of a config: every `APP__*` of the environment, plus defaults for those that are always defined. An empty `APP__RUN_NAME`,
 * `APP__BASE_EXP_DIR` or `APP__DATA_DIR` counts as unset.
 */
export function externalVariables(file: string, environment: Environment): Record<string, string> {
  const variables: Record<string, string> = {
    APP__RUN_NAME: fileStem(file),
    APP__BASE_EXP_DIR: 'runs',
    APP__DATA_DIR: 'data',
    APP__REWARD_FUNCTION_API_BASE: '',
  };
  for (const [name, value] of Object.entries(environment)) {
    if (!name.startsWith('APP__') || value === undefined) continue;
    if (value !== '' || !(name in variables)) variables[name] = value;
  }
  return variables;
}

/** A file's name without its folder and its last extension. */
export function fileStem(file: string): string {
  return basename(file).replace(/\.[^.]*$/, '');
}

export interface SnippetRequest {
  /** The file named in errors for which Jsonnet gives no line; its stem is APP__RUN_NAME. */
  readonly file: string;
  /** The files that the snippet imports; all must exist. */
  readonly roots: readonly string[];
  readonly snippet: string;
  readonly environment: Environment;
  /** Functions that the snippet may call as `std.native(name)(text)`; errors they throw are raised unchanged. */
  readonly natives?: Readonly<Record<string, (text: string) => unknown>>;
}

/** The Jsonnet expression that imports a file; valid in any file. */
export function importOf(path: string): string {
  return `(import ${JSON.stringify(resolve(path))})`;
}

/** Evaluates an expression over some files. Raises ConfigError for everything that Jsonnet refuses. */
export async function evaluateSnippet(request: SnippetRequest): Promise<Evaluation> {
  const { file, roots, snippet, environment, natives = {} } = request;
  for (const path of roots) requireFile(path);
  const sources = importClosure(roots);
  const variables = externalVariables(file, environment);
  let text: string;
  try {
    const limits = limitsOf(environment);
    const where = displayPath(file);
    text = await interpreter.evaluate({ file: where, snippet, name: compositionName, variables, natives, limits });
  } catch (error) {
    if (error instanceof JsonnetError) throw jsonnetError(file, variables, sources, error);
    throw error;
  }
  return { value: JSON.parse(text) as unknown, importHash: closureHash(sources), sources };
}

const compositionName = 'the composed config';

const interpreter = new Interpreter();

function isFile(path: string): boolean {
  return existsSync(path) && statSync(path).isFile();
}

function readSource(path: string): string {
  try {
    return readTextFile(path, ConfigError);
  } catch (cause) {
    if (cause instanceof ConfigError) throw cause;
    const why = (cause as NodeJS.ErrnoException).code ?? String(cause);
    throw new ConfigError(`cannot be read (${why})`, { where: displayPath(path), cause });
  }
}

function requireFile(path: string): void {
  if (/\.ya?ml$/i.test(path)) {
    throw new ConfigError('found a YAML file; allowed: Jsonnet or JSON', {
      where: path,
      next: 'Write the settings as Jsonnet; docs/originals.md has the key for each flag of the original programs.',
    });
  }
  if (isFile(path)) return;
  const found = existsSync(path) ? statSync(path) : undefined;
  const close = found === undefined ? fileMeant(path) : null;
  const what =
    found === undefined
      ? 'no such file'
      : `is a ${found.isDirectory() ? 'folder' : 'device or a pipe'}, not a Jsonnet file`;
  throw new ConfigError(what, {
    where: path === '' ? "the name ''" : path,
    next: close === null ? 'Name a Jsonnet file; the shipped ones are in configs/.' : `Did you mean ${close}?`,
  });
}

/** The file that a path was meant to be: given without its extension, one of the shipped files, or misspelt. */
function fileMeant(path: string): string | null {
  const folder = dirname(path);
  const [folders, endings] = [
    [folder, 'configs', join('configs', 'lib'), 'experiments'],
    ['', '.jsonnet', '.libsonnet'],
  ];
  const there = folders.flatMap((one) => endings.map((ending) => join(one, `${basename(path)}${ending}`))).find(isFile);
  if (there !== undefined) return there;
  const names = existsSync(folder) && statSync(folder).isDirectory() ? readdirSync(folder) : [];
  const close = nearest(
    basename(path),
    names.filter((name) => /\.(jsonnet|libsonnet)$/.test(name)),
  );
  return close === null ? null : join(folder, close);
}

/** Files reachable from `roots` through import, importstr and importbin, in the order of first mention. */
export function importClosure(roots: readonly string[]): Map<string, string> {
  const sources = new Map<string, string>();
  const visit = (path: string, evaluated: boolean): void => {
    // Jsonnet itself reports a missing import, or one that is not a file, with its line.
    if (sources.has(path) || !isFile(path)) return;
    const text = readSource(path);
    sources.set(path, text);
    if (!evaluated) return;
    for (const { target, isCode } of importsOf(text)) visit(resolve(dirname(path), target), isCode);
  };
  for (const root of roots) visit(resolve(root), true);
  return sources;
}

/** Matches comments and strings, which may contain the searched word. */
const hiding =
  /\/\*[\s\S]*?\*\/|\/\/[^\n]*|#[^\n]*|@"(?:[^"]|"")*"|@'(?:[^']|'')*'|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\|\|\|[\s\S]*?\n\s*\|\|\|/;
/** Matches an import, or a comment or string, which is skipped. */
const importToken = new RegExp(
  `\\b(import|importstr|importbin)\\s*(?:"((?:[^"\\\\]|\\\\.)*)"|'((?:[^'\\\\]|\\\\.)*)')|${hiding.source}`,
  'g',
);

/** Files that import each other, with the first one repeated at the end; null if there is no cycle. */
function importCycle(sources: ReadonlyMap<string, string>): string[] | null {
  const done = new Set<string>();
  const visit = (file: string, path: readonly string[]): string[] | null => {
    if (path.includes(file)) return [...path.slice(path.indexOf(file)), file];
    if (done.has(file)) return null;
    done.add(file);
    for (const { target, isCode } of importsOf(sources.get(file) ?? '')) {
      const cycle = isCode ? visit(resolve(dirname(file), target), [...path, file]) : null;
      if (cycle !== null) return cycle;
    }
    return null;
  };
  for (const file of sources.keys()) {
    const cycle = visit(file, []);
    if (cycle !== null) return cycle;
  }
  return null;
}

/** Positions of the fields with this name in a text: where each key begins and ends. */
export function fieldsNamed(text: string, name: string): [number, number][] {
  const bare = name.replace(/[^\w]/g, '\\$&');
  const field = new RegExp(`${hiding.source}|(?<![\\w.])${bare}(?=\\s*\\+?:)`, 'g');
  return [...text.matchAll(field)].flatMap((match): [number, number][] => {
    const end = match.index + match[0].length;
    const quoted = [`'${name}'`, `"${name}"`].includes(match[0]) && /^\s*\+?:/.test(text.slice(end));
    return match[0] === name || quoted ? [[match.index, end]] : [];
  });
}

function importsOf(text: string): { target: string; isCode: boolean }[] {
  return [...text.matchAll(importToken)]
    .filter((match) => match[1] !== undefined)
    .map((match) => ({ target: match[2] ?? match[3], isCode: match[1] === 'import' }));
}

/** Independent of the files' paths: only their contents count, in a fixed order. */
export function closureHash(sources: ReadonlyMap<string, string>): string {
  return sha256([...sources.values()].map(sha256).sort().join('\n'));
}

/** A position in Jsonnet's messages: `FILE:3:45`, `FILE:3:45-50` or, over several lines, `FILE:(3:45)-(6:10)`; followed by the message. */
const located = /^(.+?):\(?(\d+):(\d+)(?:-\d+|\)-\(\d+:\d+\))?(?:: (.*)|\t.*)?$/s;

function placeIn(text: string): { readonly file: string; readonly where: string; readonly rest: string } | null {
  const match = located.exec(text);
  if (match === null) return null;
  const [, file, line, column, rest = ''] = match;
  return { file, where: `${file}:${line}:${column}`, rest };
}

/** A message, which may have several lines, is followed by the trace, whose lines begin with a tab. */
function jsonnetError(
  file: string,
  variables: Record<string, string>,
  sources: ReadonlyMap<string, string>,
  cause: JsonnetError,
): ConfigError {
  const [head, ...trace] = cause.message.trimEnd().split('\n\t');
  const said = head.replace(/^(?:STATIC|RUNTIME) ERROR: /, '');
  const place = head.startsWith('STATIC') ? placeIn(said) : null;
  const steps = trace.map(placeIn).filter((step) => step !== null);
  const first = place ?? steps.find((step) => step.file !== compositionName && step.file !== 'std.jsonnet');
  const message = (place?.rest ?? said).replace(
    /basic_filebuf.*: Is a directory|attempted to import a directory/,
    'it is a folder',
  );
  const where = displayPath(first?.where ?? file);
  const cycle = message.startsWith('max stack frames exceeded') ? importCycle(sources) : null;
  if (cycle !== null) {
    const found = `the evaluation does not end, and files import each other: ${cycle.map(displayPath).join(' -> ')}`;
    return new ConfigError(found, {
      where,
      next: 'Move what both need to a file of its own, which both import.',
      cause,
    });
  }
  return new ConfigError(message, { where, next: remedy(message, variables), cause });
}

function remedy(message: string, variables: Record<string, string>): string {
  const unset = /undefined external variable: (\S+)/.exec(message);
  if (unset !== null) {
    const meant = nearest(unset[1], Object.keys(variables));
    const hint = meant === null ? '' : ` (or did you mean ${meant}?)`;
    return unset[1].startsWith('APP__')
      ? `Set it before the command: export ${unset[1]}=…${hint}`
      : `External variables are the environment's APP__*: rename it to APP__${unset[1]} and export that${hint}.`;
  }
  if (message.startsWith("couldn't open import")) return 'Check the path: it is relative to the file that imports it.';
  if (message.startsWith("couldn't manifest function")) return 'Call the function, or hide its field with `::`.';
  if (message.startsWith('max stack frames exceeded')) return 'Something refers to itself without end.';
  if (message.startsWith('binary operator + requires')) return 'A config and each overlay must evaluate to an object.';
  return 'Correct the file; editrl config show prints what a config evaluates to.';
}

/** Relative to the working folder if that is shorter. */
export function displayPath(path: string): string {
  const here = `${process.cwd()}/`;
  return path.startsWith(here) ? path.slice(here.length) : path;
}
