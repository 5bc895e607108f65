/**
 * Whose settings a process of this user follows. A record can name programs, environment variables, modules and servers, so a run of another user is not
 * continued, evaluated or scored without being asked to.
 */
import { existsSync, lstatSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { RunError } from '../core/errors.js';
import { shellQuote } from '../core/shell.js';
import type { RunPaths } from './paths.js';

const ROOT = 0;
/** Anybody may write. */
const WORLD_WRITABLE = 0o002;

/** The programs and modules that settings name, and the environment that they set: one line each, with its key. */
export function namedPrograms(settings: unknown, at = ''): string[] {
  if (typeof settings !== 'object' || settings === null) return [];
  return Object.entries(settings).flatMap(([name, value]: [string, unknown]) => {
    const key = at === '' ? name : `${at}.${name}`;
    if (name === 'command' && Array.isArray(value)) return [`${key}: ${value.map(String).map(shellQuote).join(' ')}`];
    if (name === 'module' && typeof value === 'string') return [`${key}: ${value}`];
    if (name === 'env' && typeof value === 'object' && value !== null) {
      const entries = Object.entries(value).map(([variable, text]) => `${variable}=${shellQuote(String(text))}`);
      return entries.length === 0 ? [] : [`${key}: ${entries.join(' ')}`];
    }
    return namedPrograms(value, key);
  });
}

/**
 * Raises RunError, with the programs that the settings name, if the run's folder, its record or another entry belongs to another user, or if anybody may
 * write the folder or the record. Root's files count as one's own.
 *
 * @param settings those of the run's record.
 * @param uid the asking user; null on systems without user numbers, which are not checked.
 */
export function requireOwn(paths: RunPaths, settings: unknown, uid: number | null = process.getuid?.() ?? null): void {
  if (uid === null) return;
  const foreign = foreignFile(paths, uid);
  if (foreign === null) return;
  const programs = namedPrograms(settings);
  const named =
    programs.length === 0 ? '' : `, and its settings name\n${programs.map((line) => `    ${line}`).join('\n')}`;
  throw new RunError(`run '${paths.runName}' may not be yours: ${foreign.why}${named}`, {
    where: foreign.path,
    next: 'Its settings would decide which programs run with your rights and which servers get your data. If you trust its owner, add --trust. `editrl report` reads it without.',
  });
}

function foreignFile(paths: RunPaths, uid: number): { readonly path: string; readonly why: string } | null {
  for (const path of [paths.dir, paths.record]) {
    const found = statSync(path, { throwIfNoEntry: false });
    if (found === undefined) continue;
    if (found.uid !== uid && found.uid !== ROOT) return { path, why: `this belongs to user ${found.uid}` };
    if ((found.mode & WORLD_WRITABLE) !== 0) return { path, why: 'any user may write this' };
  }
  if (!existsSync(paths.dir)) return null;
  for (const name of readdirSync(paths.dir)) {
    const path = join(paths.dir, name);
    const owner = lstatSync(path, { throwIfNoEntry: false })?.uid;
    if (owner !== undefined && owner !== uid && owner !== ROOT) return { path, why: `this belongs to user ${owner}` };
  }
  return null;
}
