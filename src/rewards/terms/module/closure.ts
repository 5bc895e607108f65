/** What decides how a reward module scores, as far as its text tells: its file and everything it imports. */
import { existsSync, readFileSync, realpathSync, statSync } from 'node:fs';
import { createRequire, isBuiltin } from 'node:module';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
// The lexer that Vite and webpack find imports with; this build of it needs no asynchronous start, and settings are hashed without one.
import { parse } from 'es-module-lexer/js';
import { sha256 } from '../../../core/image.js';

/** These count by their bytes alone; in others imports are looked for: `require` runs a file of any name. */
const isData = /\.(?:json|node|wasm)$/;

/**
 * SHA-256 over a module's import closure: its bytes and those of every file that it reaches by relative, absolute or `#` imports and by
 * `require`, by where they lie from it, and its packages by name and version. Moving all of it together changes nothing. Not seen are
 * imports whose name is computed, and what the module reads by itself. Null where the module cannot be read.
 */
export function moduleDigest(file: string): string | null {
  const files = new Map<string, string>();
  const packages = new Set<string>();
  let root: string;
  try {
    root = realpathSync(file);
    visit(root, files, packages);
  } catch {
    return null; // Whoever needs the module reports it.
  }
  const placed = [...files].map(([path, digest]) => [path === root ? '' : relative(dirname(root), path), digest]);
  return sha256(JSON.stringify({ files: placed.sort(byFirst), packages: [...packages].sort() }));
}

/** Whether a file's text is that of an ES module; one that does not parse may be. Raises what reading raises. */
export function hasModuleSyntax(file: string): boolean {
  try {
    return parse(readFileSync(file, 'utf8'))[3];
  } catch (error) {
    if (error instanceof Error && 'idx' in error) return true;
    throw error;
  }
}

function visit(path: string, files: Map<string, string>, packages: Set<string>): void {
  if (files.has(path)) return;
  const bytes = readFileSync(path);
  files.set(path, sha256(bytes));
  if (isData.test(path)) return;
  const text = bytes.toString('utf8');
  const found = [
    ...importsOf(text).map((name) => ({ name, target: () => fileOf(name, path) })),
    ...requiresOf(text).map((name) => ({ name, target: () => requiredFile(name, path) })),
  ];
  for (const { name, target } of found) {
    if (isBuiltin(name) || name.startsWith('data:')) continue;
    const file = target();
    if (file === null) packages.add(packageOf(name, path));
    // One that is not there is found when the module is imported.
    else if (isFile(file)) visit(realpathSync(file), files, packages);
    else files.set(file, 'missing');
  }
}

function isFile(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isFile() === true;
}

/** Imports with a literal name in a text. */
function importsOf(text: string): string[] {
  try {
    return parse(text)[0].flatMap(({ n }) => n ?? []);
  } catch {
    return []; // No valid script: importing it says where.
  }
}

/**
 * What a text requires by a name that is written out, by `require`, `createRequire(...)(...)` or whatever it calls what `createRequire` gave. No
 * lexer of modules looks for it. One in a comment counts, too, which at worst hashes a file too many.
 */
function requiresOf(text: string): string[] {
  const creators = ['createRequire', ...groups(text, /\bcreateRequire\s*(?:as|:)\s*([\w$]+)/g)].map(quoted).join('|');
  const created = `(?:${creators})\\s*\\(${inner}(?:\\(${inner}\\)${inner}){0,3}\\)`;
  const named = groups(text, new RegExp(`(?<![\\w$])([\\w$]+)\\s*=\\s*(?:[\\w$]+\\s*\\.\\s*)?${created}`, 'g')).map(
    quoted,
  );
  const callee = ['require', ...named].map((name) => `(?<![\\w$])${name}(?:\\s*\\.\\s*resolve)?`);
  return groups(
    text,
    new RegExp(
      `(?:${[...callee, created].join('|')})\\s*\\(\\s*(?:"([^"\\n]+)"|'([^'\\n]+)'|\`([^\`$]+)\`)\\s*[,)]`,
      'g',
    ),
  );
}

/** The argument of a call; bounded, since bundles have lines of megabytes. */
const inner = '[^()]{0,200}';

/** The first group of each match that took part in it. */
function groups(text: string, pattern: RegExp): string[] {
  return [...text.matchAll(pattern)].flatMap(([, ...found]) => found.find((group) => group !== undefined) ?? []);
}

function quoted(name: string): string {
  return name.replace(/\$/g, '\\$&');
}

/** The file that `require` takes, which need not have its extension in its name; null for a package. */
function requiredFile(name: string, from: string): string | null {
  if (!/^(?:\.{0,2}\/|\.{1,2}$|#)/.test(name)) return null;
  try {
    return createRequire(from).resolve(name);
  } catch {
    return name.startsWith('#') ? null : resolve(dirname(from), name); // Not there: requiring it says so.
  }
}

/** The file that a specifier names; null for a package. */
function fileOf(specifier: string, from: string): string | null {
  if (/^(\.{0,2}\/|file:)/.test(specifier)) {
    const url = new URL(specifier, pathToFileURL(from));
    [url.search, url.hash] = ['', ''];
    return fileURLToPath(url);
  }
  if (!specifier.startsWith('#')) return null;
  try {
    return createRequire(from).resolve(specifier);
  } catch {
    return null; // The nearest package.json does not have it; importing it says so.
  }
}

/** `name@version` of the package that an import finds; without a version where it is not installed. */
function packageOf(specifier: string, from: string): string {
  const name = specifier
    .split('/')
    .slice(0, specifier.startsWith('@') ? 2 : 1)
    .join('/');
  for (let folder = dirname(from); ; folder = dirname(folder)) {
    const manifest = join(folder, 'node_modules', name, 'package.json');
    if (existsSync(manifest)) return `${name}@${versionIn(manifest)}`;
    if (folder === dirname(folder)) return name;
  }
}

function versionIn(manifest: string): string {
  const { version } = JSON.parse(readFileSync(manifest, 'utf8')) as { readonly version?: unknown };
  return typeof version === 'string' ? version : '';
}

function byFirst([a]: readonly string[], [b]: readonly string[]): number {
  return a < b ? -1 : 1;
}
