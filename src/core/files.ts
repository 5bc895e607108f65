/** Writes files and folders so that a crash at any moment leaves either the old content or the complete new content. */
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
 * Makes a folder and those above it, by its absolute path: Node's recursive `mkdir` of a relative one never returns where the working directory was
 * removed. Raises what the system says.
 */
export function makeFolder(path: string): void {
  mkdirSync(resolve(path), { recursive: true });
}

/**
 * Writes beside the target, syncs, renames. Raises RunError with what to do when the disk refuses. What is soon written again may go
 * without the sync: a process may still die at any moment, only a failing machine could lose it.
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
 * That files can be written to a folder, or to what it will be made in, which is returned. Raises RunError with what to do. Asked before
 * long work; Node's recursive `mkdir` besides says ENOENT of a read-only disk.
 */
export function requireWritable(folder: string, next: string): string {
  let there = resolve(folder);
  while (!existsSync(there)) there = dirname(there);
  if (!statSync(there).isDirectory()) throw new RunError('is a file, not a folder', { where: there, next });
  try {
    accessSync(there, constants.W_OK);
  } catch (cause) {
    const readOnly = (cause as NodeJS.ErrnoException).code === 'EROFS';
    throw new RunError(readOnly ? 'the disk is read-only' : 'you may not write here', { where: there, next, cause });
  }
  return there;
}

/** Makes a directory's renames durable. */
export function syncDirectory(path: string): void {
  const directory = openSync(path, 'r');
  try {
    fsyncSync(directory);
  } finally {
    closeSync(directory);
  }
}

/** Gives a file or folder the first free name of `PATH.WORD-1`, `PATH.WORD-2`, ..., which is returned. Raises RunError where the disk refuses. */
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

/** Turns an operating-system error into one that says what to do. */
export function diskError(path: string, cause: unknown): RunError {
  const code = (cause as NodeJS.ErrnoException).code ?? '';
  const remedies: Record<string, string> = {
    ENOSPC:
      'The disk is full: free some space (older checkpoints are under checkpoints/), then run the same command again.',
    EDQUOT: 'Your disk quota is used up: free some space, then run the same command again.',
    EROFS: 'The file system is read-only: choose another base_exp_dir.',
    EISDIR: 'A folder has the name of this file: see who put it there, move it away, then run the same command again.',
    ENOENT: 'Its folder is gone: see who removed it, then run the same command again.',
    EPERM: 'The file may not be replaced: see its attributes (lsattr) and its folder, or choose another base_exp_dir.',
    EIO: 'The disk fails: see the system log, and choose another base_exp_dir.',
    EACCES: 'You may not write there: choose another base_exp_dir or change its permissions.',
    ...(saysTooManyFiles(cause) ? { EMFILE: openFilesAdvice(), ENFILE: openFilesAdvice() } : {}),
  };
  return new RunError(`cannot write (${code || (cause instanceof Error ? cause.message : String(cause))})`, {
    where: path,
    ...(remedies[code] === undefined ? {} : { next: remedies[code] }),
    cause,
  });
}

/** The folder of package.json, found both from the sources and from dist/. */
export function projectRoot(): string {
  for (let folder = dirname(fileURLToPath(import.meta.url)); ; folder = dirname(folder)) {
    if (existsSync(join(folder, 'package.json'))) return folder;
    if (folder === dirname(folder)) {
      throw new RunError('the folder of this program is not found', { where: folder, next: 'Run: npm ci' });
    }
  }
}

/** The version of this program. */
export function programVersion(): string {
  return (JSON.parse(readFileSync(join(projectRoot(), 'package.json'), 'utf8')) as { version: string }).version;
}

/** A program of its own that processes are started with, as the build compiles it: `config/interpreter_main` of src/. */
export function programPath(name: string): string {
  return join(projectRoot(), 'dist', 'src', `${name}.js`);
}

/** The folder that holds the shipped configs under the name `editrl`, a copy that the build makes. */
export function libraryFolder(): string {
  return join(projectRoot(), 'dist', 'library');
}

/** The path of such a folder, which no other process gives, on whatever machine. */
export function stagingFolder(parent: string, prefix: string): string {
  return join(parent, `${prefix}${hostname()}-${process.pid}-${randomUUID().slice(0, 8)}`);
}

/** Whether such a folder is of a process of this machine that is gone; whether those of others live is not known here. */
export function isAbandoned(name: string, prefix: string): boolean {
  const [, host, pid] = /^(.*)-(\d+)-[0-9a-f]{8}$/.exec(name.startsWith(prefix) ? name.slice(prefix.length) : '') ?? [];
  return host === hostname() && processStart(Number(pid)) === null;
}

/** Removes half-made folders of processes of this machine that are gone. */
export function sweepStaging(parent: string, prefix: string): void {
  if (!existsSync(parent)) return;
  for (const name of readdirSync(parent)) {
    if (isAbandoned(name, prefix)) rmSync(join(parent, name), { recursive: true, force: true });
  }
}
