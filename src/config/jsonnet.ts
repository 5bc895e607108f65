/** Evaluates Jsonnet. A config with its overlays is one evaluation, because each takes tens of milliseconds. */
import { existsSync, readdirSync, realpathSync, statSync } from 'node:fs';
import { basename, delimiter, dirname, isAbsolute, join, resolve } from 'node:path';
import { ConfigError, EditrlError } from '../core/errors.js';
import { libraryFolder } from '../core/files.js';
import { readPlain } from '../core/plain_file.js';
import { textOf } from '../core/text.js';
import { sha256 } from '../core/images/image.js';
import { evaluateJsonnet, limitsOf, JsonnetError } from './interpreter.js';
import { readJsonnet, type ImportToken } from './jsonnet_text.js';
import { nearest } from '../core/nearest.js';

export type Environment = Readonly<Record<string, string | undefined>>;

export interface Evaluation {
  /** The JSON value of the composition. */
  readonly value: unknown;
  /** SHA-256 over the contents of all files. */
  readonly importHash: string;
  /** All files with their texts: the config, then overlays, then their imports. */
  readonly sources: ReadonlyMap<string, string>;
}

/**
 * The external variables of a config: those of `-V`, every `APP__*` of the environment, and defaults for those that are always defined. An empty
 * `APP__RUN_NAME`, `APP__BASE_EXP_DIR` or `APP__DATA_DIR` of the environment counts as unset.
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
  for (const [name, value] of Object.entries(environment)) {
    if (name.startsWith(VARIABLE_PREFIX)) variables[name.slice(VARIABLE_PREFIX.length)] = value ?? '';
  }
  return variables;
}

/** Begins the environment variables that carry `-V NAME=VALUE` to child processes and Slurm jobs. */
export const VARIABLE_PREFIX = 'EDITRL_VARIABLE_';

/** The environment variable with the library path: folders with the platform's separator between them, the first one searched first. */
export const LIBRARY_PATH = 'EDITRL_JPATH';

/** A file's name without its folder and its last extension. */
export function fileStem(file: string): string {
  return basename(file).replace(/\.[^.]*$/, '');
}

export interface SnippetRequest {
  /** The file named in errors without a line number. Its stem is the value of APP__RUN_NAME. */
  readonly file: string;
  /** The files that the snippet imports. All must exist. */
  readonly roots: readonly string[];
  readonly snippet: string;
  readonly environment: Environment;
}

/** The Jsonnet expression that imports a file from anywhere. */
export function importOf(path: string): string {
  return `(import ${JSON.stringify(resolve(path))})`;
}

/** Evaluates an expression over some files. Raises ConfigError for all Jsonnet errors. */
export async function evaluateSnippet({ file, roots, snippet, environment }: SnippetRequest): Promise<Evaluation> {
  for (const path of roots) requireFile(path);
  const sources = importClosure(roots);
  const variables = externalVariables(file, environment);
  const expression = { snippet, name: compositionName, variables, library: libraryPath() };
  try {
    const text = await evaluateJsonnet(expression, limitsOf(environment), displayPath(file));
    return { value: JSON.parse(text) as unknown, importHash: closureHash(sources), sources };
  } catch (error) {
    if (error instanceof JsonnetError) throw jsonnetError(file, roots, variables, sources, error);
    throw error;
  }
}

const compositionName = 'the composed config';

function isFile(path: string): boolean {
  return existsSync(path) && statSync(path).isFile();
}

function requireFile(path: string): void {
  if (/\.ya?ml$/i.test(path)) {
    throw new ConfigError('found a YAML file; allowed: Jsonnet or JSON', {
      where: path,
      next: 'Write the settings as Jsonnet; docs/reference/originals.md has the key for each flag of the original programs.',
    });
  }
  if (isFile(path)) return;
  const isThere = existsSync(path);
  const close = isThere ? null : fileMeant(path);
  const what = isThere ? `is ${kindOf(path)}, not a Jsonnet file` : 'no such file';
  throw new ConfigError(what, {
    where: path === '' ? "the name ''" : path,
    next: close === null ? 'Name a Jsonnet file, such as one in configs/.' : `Did you mean ${close}?`,
  });
}

function kindOf(path: string): string {
  return statSync(path).isDirectory() ? 'a folder' : 'a device or a pipe';
}

/** The file that a wrong path probably means: a missing extension, a shipped file, or a misspelling. */
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

/** Folders that libjsonnet searches for an import after all others. */
const defaultLibrary = ['/usr/local/share/jsonnet-v0.20.0/', '/usr/share/jsonnet-v0.20.0/'];

/**
 * Folders in which an import is searched if it is not beside the file that names it, the first one first: those of EDITRL_JPATH, then the folder
 * with the shipped configs, so that `import 'editrl/sft_s.jsonnet'` works in every file.
 */
function libraryPath(): string[] {
  const own = (process.env[LIBRARY_PATH] ?? '').split(delimiter).filter((folder) => folder !== '');
  return [...own, libraryFolder()].map((folder) => `${resolve(folder)}/`);
}

/** The file of an import, as libjsonnet finds it. Null if there is none, which libjsonnet reports if it evaluates the import. */
export function resolveImport(from: string, target: string): string | null {
  const folders = [`${dirname(from)}/`, ...libraryPath(), ...defaultLibrary];
  const found = folders.map((folder) => (isAbsolute(target) ? target : folder + target)).find(existsSync);
  if (found === undefined || target === '') return null;
  // A folder in the path may be a link. `..` then leads out of its target.
  const plain = resolve(found);
  const [real, same] = [statSync(found), statSync(plain, { throwIfNoEntry: false })];
  return real.dev === same?.dev && real.ino === same.ino ? plain : realpathSync.native(found);
}

/** The place and the kind of an import. For a config or an overlay its name. */
interface Named {
  readonly where: string;
  readonly kind: ImportToken['kind'];
  /** The start of messages. Empty for a config or an overlay. */
  readonly what: string;
}

/** Reads a file. Raises ConfigError if it is not a regular file, is too large for a config, or is not UTF-8. */
function readSource(path: string, { where, kind, what }: Named): string {
  const file = displayPath(path);
  try {
    const bytes = readPlain(path) ?? Buffer.alloc(0);
    return kind === 'importbin' ? bytes.toString('latin1') : textOf(bytes, file, { kind: ConfigError });
  } catch (error) {
    if (!(error instanceof EditrlError)) throw error;
    const at = error.where?.startsWith(`${file}:`) === true ? ` (${error.where})` : '';
    const next = error instanceof ConfigError ? error.next : undefined;
    throw new ConfigError(`${what}${error.message}${at}`, { where, ...(next === undefined ? {} : { next }) });
  }
}

/**
 * Files reachable from `roots` through imports, by absolute path, in the order of first mention. Texts are UTF-8, or Latin-1 for a file that is only an
 * importbin. Raises ConfigError for an import that is not a regular file or not UTF-8, even if it would not be evaluated.
 */
export function importClosure(roots: readonly string[]): Map<string, string> {
  const sources = new Map<string, string>();
  const read = new Map<string, ImportToken['kind']>();
  const visit = (path: string, named: Named): void => {
    const { kind } = named;
    if (read.get(path) === 'import' || (read.has(path) && kind !== 'import')) return;
    read.set(path, kind);
    const text = readSource(path, named);
    sources.set(path, text);
    if (kind !== 'import') return;
    for (const { kind: of, target, at } of readJsonnet(text).imports) {
      const found = resolveImport(path, target);
      if (found === null) continue;
      visit(found, { where: `${displayPath(path)}:${lineAt(text, at)}`, kind: of, what: `${of} '${target}': ` });
    }
  };
  for (const root of roots) {
    if (isFile(root)) visit(resolve(root), { where: displayPath(root), kind: 'import', what: '' });
  }
  return sources;
}

/** The line of an offset, counted from 1. */
export function lineAt(text: string, offset: number): number {
  return text.slice(0, offset).split('\n').length;
}

/** Files that import each other, with the first one repeated at the end. Null without a cycle. */
function importCycle(sources: ReadonlyMap<string, string>): string[] | null {
  const done = new Set<string>();
  const visit = (file: string, path: readonly string[]): string[] | null => {
    if (path.includes(file)) return [...path.slice(path.indexOf(file)), file];
    if (done.has(file)) return null;
    done.add(file);
    for (const { target, kind } of readJsonnet(sources.get(file) ?? '').imports) {
      const found = kind === 'import' ? resolveImport(file, target) : null;
      const cycle = found === null ? null : visit(found, [...path, file]);
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

/** A hash of the contents of files, independent of their paths. */
export function closureHash(sources: ReadonlyMap<string, string>): string {
  return sha256([...sources.values()].map(sha256).sort().join('\n'));
}

/** A position in Jsonnet's messages, before the message: `FILE:3:45`, `FILE:3:45-50` or, over several lines, `FILE:(3:45)-(6:10)`. */
const located = /^(.+?):\(?(\d+):(\d+)(?:-\d+|\)-\(\d+:\d+\))?(?:: (.*)|\t.*)?$/s;

interface Place {
  readonly file: string;
  readonly line: number;
  readonly where: string;
  readonly rest: string;
}

function placeIn(text: string): Place | null {
  const match = located.exec(text);
  if (match === null) return null;
  const [, file, line, column, rest = ''] = match;
  return { file, line: Number(line), where: `${file}:${line}:${column}`, rest };
}

/** Converts a Jsonnet message. Its trace follows the message, in lines that begin with a tab. */
function jsonnetError(
  file: string,
  roots: readonly string[],
  variables: Record<string, string>,
  sources: ReadonlyMap<string, string>,
  cause: JsonnetError,
): ConfigError {
  const [head, ...trace] = cause.message.trimEnd().split('\n\t');
  const text = head.replace(/^(?:STATIC|RUNTIME) ERROR: /, '');
  const place = head.startsWith('STATIC') ? placeIn(text) : null;
  const steps = trace.map(placeIn).filter((step) => step !== null);
  const first = place ?? steps.find((step) => step.file !== compositionName && step.file !== 'std.jsonnet');
  const message = place?.rest ?? text;
  const where = displayPath(first?.where ?? file);
  const line = lineOf(first, sources);
  const cycle = message.startsWith('max stack frames exceeded') ? importCycle(sources) : null;
  if (cycle !== null) {
    const found = `the evaluation does not end, and files import each other: ${cycle.map(displayPath).join(' -> ')}`;
    return new ConfigError(found, {
      where,
      next: 'Move what both need to a file of its own, which both import.',
      cause,
    });
  }
  const isOverlay = roots.slice(1).some((root) => resolve(root) === resolve(first?.file ?? ''));
  const next =
    newerThan(message, line, cause.version) ??
    needed(message, isOverlay) ??
    remedy(message, variables, cause.version, head.startsWith('STATIC'));
  // The cause may contain contents of secret files, so it is left out.
  return new ConfigError(withoutContents(message, sources), { where, next });
}

/** The line of a text at a place. '' if it is unknown. */
function lineOf(
  place: { readonly file: string; readonly line: number } | undefined,
  sources: Evaluation['sources'],
): string {
  if (place === undefined) return '';
  return sources.get(resolve(place.file))?.split('\n')[place.line - 1] ?? '';
}

/** Advice for a line that needs a newer Jsonnet. Null if nothing suggests it. */
function newerThan(message: string, line: string, version: string): string | null {
  const builtIn = `editrl has Jsonnet ${version.replace(/^v/, '')} built in`;
  const field = /^field does not exist: (\w+)/.exec(message)?.[1];
  if (field !== undefined && new RegExp(`\\bstd\\s*\\.\\s*${field}\\b`).test(line)) {
    return `${builtIn}, which has no std.${field}. Write it with functions of that version.`;
  }
  const separated = /\d+(?:_\d+)+/.exec(line)?.[0];
  if (separated !== undefined && message.startsWith('expected')) {
    return `${builtIn}, which has no digit separators. Write ${separated.replaceAll('_', '')} for ${separated}.`;
  }
  if (message.startsWith('text block') && line.includes('|||-')) {
    return `${builtIn}, which has no |||-. Write |||, and remove the last line break with std.rstripChars(text, '\\n').`;
  }
  return null;
}

/** Advice for an overlay that belongs to another recipe. Null if nothing suggests it. */
function needed(message: string, isOverlay: boolean): string | null {
  const field = /^field does not exist: (\w+)/.exec(message)?.[1];
  if (field === undefined || !isOverlay) return null;
  return `The overlay needs a config with ${field}. It may belong to another recipe: use it with the configs that its first lines name.`;
}

/** The texts that a config imports by importstr or importbin. */
function importedTexts(sources: Evaluation['sources']): string[] {
  const targets = [...sources].flatMap(([file, text]) =>
    readJsonnet(text).imports.flatMap(({ kind, target }) =>
      kind === 'import' ? [] : (resolveImport(file, target) ?? []),
    ),
  );
  return targets.flatMap((file) => sources.get(file) ?? []);
}

/** Minimum length of a line to search for. A message may contain a shorter one by chance. */
const MIN_LINE = 6;

/** Removes lines of files that a config imports as text from a message. They may be secret, and messages are logged. */
export function withoutContents(message: string, sources: Evaluation['sources']): string {
  const lines = importedTexts(sources).flatMap((text) => text.split('\n'));
  const secret = lines.map((line) => line.trim()).filter((line) => line.length >= MIN_LINE);
  return [...new Set(secret)].reduce(
    (left, line) => left.replaceAll(line, '…').replaceAll(JSON.stringify(line).slice(1, -1), '…'),
    message,
  );
}

function remedy(message: string, variables: Record<string, string>, version: string, isSyntax: boolean): string {
  const unset = /undefined external variable: (\S+)/.exec(message);
  if (unset !== null) {
    const meant = nearest(unset[1], Object.keys(variables));
    const hint = meant === null ? '' : ` (or did you mean ${meant}?)`;
    return unset[1].startsWith('APP__')
      ? `Set it before the command: export ${unset[1]}=…${hint}`
      : `Set it with -V ${unset[1]}=…${hint}`;
  }
  if (message.startsWith("couldn't open import")) {
    return "Write the path relative to the file that imports it, name the folder with --jpath or EDITRL_JPATH, or import a shipped config as 'editrl/sft_s.jsonnet'.";
  }
  const parameter = /^function parameter (\S+) not bound in call/.exec(message)?.[1];
  if (parameter !== undefined) {
    return `A config is called without arguments. Give ${parameter} a default, or read it with std.extVar('APP__${parameter.toUpperCase()}').`;
  }
  if (message.startsWith("couldn't manifest function")) return 'Call the function, or hide its field with `::`.';
  if (message.startsWith('max stack frames exceeded')) return 'Look for a value or function that refers to itself.';
  if (message.startsWith('binary operator + requires')) return 'A config and each overlay must evaluate to an object.';
  if (isSyntax) return `Correct the file. editrl has Jsonnet ${version.replace(/^v/, '')} built in.`;
  return 'Correct the file. editrl config show prints the value of a config.';
}

/** A path relative to the working folder if it is inside. */
export function displayPath(path: string): string {
  const here = `${process.cwd()}/`;
  return path.startsWith(here) ? path.slice(here.length) : path;
}
