/** Writes files and folders so that a crash at any moment leaves either the old or the complete new content. */
import { randomUUID } from 'node:crypto';
import {
  accessSync,
  closeSync,
  constants,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeSync,
} from 'node:fs';
import { hostname } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { RunError } from './errors.js';
import { openFilesAdvice, processStart, saysTooManyFiles } from './process.js';

/**
 * Creates a folder and its parents by absolute path: Node's recursive `mkdir` of a relative path never returns if the working directory was
 * removed. Raises the system's error.
 */
export function makeFolder(path: string): void {
  mkdirSync(resolve(path), { recursive: true });
}

/**
 * Writes beside the target, syncs and renames. Raises RunError on a disk error. Files that are rewritten soon may skip the sync: then
 * only a failing machine could lose them, not a dying process.
 */
export function writeFileAtomic(path: string, content: Uint8Array | string, { sync = true } = {}): void {
  const temporary = `${path}.${process.pid}.tmp`;
  try {
    makeFolder(dirname(path));
    const bytes = typeof content === 'string' ? Buffer.from(content, 'utf8') : content;
    const file = openSync(temporary, 'w');
    try {
      let written = 0;
      while (written < bytes.length) written += writeSync(file, bytes, written, bytes.length - written);
      if (sync) fsyncSync(file);
    } finally {
      closeSync(file);
    }
    renameSync(temporary, path);
  } catch (cause) {
    rmSync(temporary, { force: true });
    throw diskError(path, cause);
  }
}

/**
 * Returns the folder, or its closest existing parent, after checking that files can be written there. Raises RunError. Called before long
 * work. Node's recursive `mkdir` reports ENOENT for a read-only disk.
 */
export function requireWritable(folder: string, next: string): string {
  let there = resolve(folder);
  while (!existsSync(there)) there = dirname(there);
  if (!statSync(there).isDirectory()) throw new RunError('is a file, not a folder', { where: there, next });
  try {
    accessSync(there, constants.W_OK);
  } catch (cause) {
    const readOnly = (cause as NodeJS.ErrnoException).code === 'EROFS';
    throw new RunError(readOnly ? 'the disk is read-only' : 'no permission to write here', {
      where: there,
      next,
      cause,
    });
  }
  return there;
}

/** Makes renames in a directory durable. */
export function syncDirectory(path: string): void {
  const directory = openSync(path, 'r');
  try {
    fsyncSync(directory);
  } finally {
    closeSync(directory);
  }
}

/** Renames a file or folder to the first free name of `PATH.WORD-1`, `PATH.WORD-2`, ..., and returns it. Raises RunError on a disk error. */
export function renameAside(path: string, word: string): string {
  let number = 1;
  while (existsSync(`${path}.${word}-${number}`)) number++;
  const aside = `${path}.${word}-${number}`;
  try {
    renameSync(path, aside);
  } catch (cause) {
    throw diskError(path, cause);
  }
  return aside;
}

/** Adds advice to an operating-system error. */
export function diskError(path: string, cause: unknown): RunError {
  const code = (cause as NodeJS.ErrnoException).code ?? '';
  const remedies: Record<string, string> = {
    ENOSPC:
      'The disk is full: free some space (older checkpoints are under checkpoints/), then run the same command again.',
    EDQUOT: 'Your disk quota is used up: free some space, then run the same command again.',
    EROFS: 'The file system is read-only: choose another base_exp_dir.',
    EISDIR: 'A folder has the name of this file: move it away, then run the same command again.',
    ENOENT: 'Its folder is gone: check who removed it, then run the same command again.',
    EPERM:
      'The file may not be replaced: check its attributes (lsattr) and its folder, or choose another base_exp_dir.',
    EIO: 'The disk fails: check the system log, and choose another base_exp_dir.',
    EACCES: 'No permission to write there: choose another base_exp_dir or change its permissions.',
    ...(saysTooManyFiles(cause) ? { EMFILE: openFilesAdvice(), ENFILE: openFilesAdvice() } : {}),
  };
  return new RunError(`cannot write (${code || (cause instanceof Error ? cause.message : String(cause))})`, {
    where: path,
    ...(remedies[code] === undefined ? {} : { next: remedies[code] }),
    cause,
  });
}

/** The folder of package.json, found from the sources and from dist/. */
export function projectRoot(): string {
  for (let folder = dirname(fileURLToPath(import.meta.url)); ; folder = dirname(folder)) {
    if (existsSync(join(folder, 'package.json'))) return folder;
    if (folder === dirname(folder)) {
      throw new RunError("editrl's own folder was not found", { where: folder, next: 'Run: npm ci' });
    }
  }
}

/** The version of this program. */
export function programVersion(): string {
  return (JSON.parse(readFileSync(join(projectRoot(), 'package.json'), 'utf8')) as { version: string }).version;
}

/** The path of a compiled program that runs in its own process, such as `config/interpreter_main` of src/. */
export function programPath(name: string): string {
  return join(projectRoot(), 'dist', 'src', `${name}.js`);
}

/** The folder that holds the shipped configs under the name `editrl`, a copy that the build makes. */
export function libraryFolder(): string {
  return join(projectRoot(), 'dist', 'library');
}

/** A folder path that no other process on any machine uses. */
export function stagingFolder(parent: string, prefix: string): string {
  return join(parent, `${prefix}${hostname()}-${process.pid}-${randomUUID().slice(0, 8)}`);
}

/** Whether such a folder belongs to a process of this machine that has ended. Processes of other machines are unknown. */
export function isAbandoned(name: string, prefix: string): boolean {
  const [, host, pid] = /^(.*)-(\d+)-[0-9a-f]{8}$/.exec(name.startsWith(prefix) ? name.slice(prefix.length) : '') ?? [];
  return host === hostname() && processStart(Number(pid)) === null;
}

/** Removes unfinished folders of processes of this machine that have ended. */
export function sweepStaging(parent: string, prefix: string): void {
  if (!existsSync(parent)) return;
  for (const name of readdirSync(parent)) {
    if (isAbandoned(name, prefix)) rmSync(join(parent, name), { recursive: true, force: true });
  }
}
