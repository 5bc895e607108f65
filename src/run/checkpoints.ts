/**
 * Checkpoints: folders that are either whole or absent. A checkpoint is written beside its final place, every file and the folder are synced, the
 * hashes go into MANIFEST.json, and only then is it renamed. A folder that does not match its manifest, or holds numbers that are not finite, is
 * never loaded.
 */
import { createHash } from 'node:crypto';
import {
  closeSync,
  existsSync,
  fsyncSync,
  openSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  writeSync,
} from 'node:fs';
import { basename, join } from 'node:path';
import { digestOfFileSync } from '../core/digest.js';
import { CheckpointError, InternalError, RunError } from '../core/errors.js';
import { diskError, makeFolder, syncDirectory } from '../core/files.js';
import { notFiniteIn } from '../core/finite.js';
import { readPlainText, requirePlain } from '../core/plain_file.js';
import type { CheckpointContent, CheckpointFiles } from '../models/files.js';
import { pinnedByOthers } from './claim/pins.js';
import { iterationName, parseIterationName, type RunPaths } from './paths.js';
import { readJson } from './state.js';

export const MANIFEST_NAME = 'MANIFEST.json';

/** Bytes written and hashed at a time: neither a system call nor a hash takes 2 GiB at once. */
const PIECE_BYTES = 8 * 1024 * 1024;

export interface ManifestEntry {
  readonly sha256: string;
  readonly bytes: number;
}

export interface Manifest {
  readonly format: 1;
  readonly iteration: number;
  readonly files: Readonly<Record<string, ManifestEntry>>;
  readonly total_bytes: number;
}

/** A checkpoint that matches its manifest, and whose numbers are finite. */
export interface WholeCheckpoint {
  readonly iteration: number;
  readonly dir: string;
  /** What was wrong with later checkpoints that were skipped, one sentence each. */
  readonly problems: readonly string[];
}

/** How checkpoints reach the disk; tests use ones that fail. */
export interface CheckpointDisk {
  write(file: number, bytes: Uint8Array, offset: number, length: number): number;
}

const realDisk: CheckpointDisk = { write: (file, bytes, offset, length) => writeSync(file, bytes, offset, length) };

/**
 * Writes the checkpoint of an iteration (replacing one of the same iteration) and returns its folder. `files` maps plain file names to contents,
 * written and hashed at most `pieceBytes` at a time. Raises RunError when the disk refuses; earlier checkpoints stay untouched.
 */
export function saveCheckpoint(
  paths: RunPaths,
  iteration: number,
  files: CheckpointFiles,
  disk: CheckpointDisk = realDisk,
  pieceBytes = PIECE_BYTES,
): string {
  const place = paths.checkpoint(iteration);
  const temporary = join(paths.checkpointsDir, `.writing-${iterationName(iteration)}-${process.pid}`);
  try {
    rmSync(temporary, { recursive: true, force: true });
    makeFolder(temporary);
    const entries: Record<string, ManifestEntry> = {};
    let total = 0;
    for (const [name, content] of Object.entries(files)) {
      if (name === MANIFEST_NAME || !/^[A-Za-z0-9][A-Za-z0-9._-]*$/.test(name)) {
        throw new InternalError(`'${name}' cannot be a file of a checkpoint`);
      }
      entries[name] = writeSynced(join(temporary, name), content, disk, pieceBytes);
      total += entries[name].bytes;
    }
    const manifest: Manifest = { format: 1, iteration, files: entries, total_bytes: total };
    writeSynced(join(temporary, MANIFEST_NAME), `${JSON.stringify(manifest, null, 2)}\n`, disk, pieceBytes);
    syncDirectory(temporary);
    // Between these two renames the iteration has no folder; `cleanCheckpoints` restores the one that was set aside.
    const replaced = existsSync(place) ? hide(paths, iteration, 'replaced') : null;
    renameSync(temporary, place);
    syncDirectory(paths.checkpointsDir);
    if (replaced !== null) rmSync(replaced, { recursive: true, force: true });
    return place;
  } catch (cause) {
    rmSync(temporary, { recursive: true, force: true });
    throw refusedByDisk(cause) ? diskError(place, cause) : cause;
  }
}

/** Whether the system refused; other errors, Node's or this program's, are not the disk's fault. */
function refusedByDisk(cause: unknown): boolean {
  const { code } = cause as NodeJS.ErrnoException;
  return !(cause instanceof InternalError) && code !== undefined && !code.startsWith('ERR_');
}

/** The iterations that have a checkpoint folder, whole or not, ascending. */
export function listCheckpoints(paths: RunPaths): number[] {
  return listDirectory(paths.checkpointsDir)
    .map(parseIterationName)
    .filter((iteration) => iteration !== null)
    .sort((a, b) => a - b);
}

/**
 * What is wrong with a checkpoint folder, one sentence each; none when every file has its manifest's size and hash, its tensors are finite and
 * its counters whole numbers.
 */
export function checkpointProblems(dir: string, iteration: number): string[] {
  const manifestPath = join(dir, MANIFEST_NAME);
  let manifest: Manifest | null;
  try {
    manifest = readJson(manifestPath) as Manifest | null;
  } catch (cause) {
    return [`${manifestPath}: ${cause instanceof Error ? cause.message : String(cause)}`];
  }
  if (manifest === null) return [`${manifestPath} is missing`];
  if (!isManifest(manifest)) return [`${manifestPath} is not a manifest`];
  if (manifest.iteration !== iteration) {
    return [`${manifestPath} is of iteration ${manifest.iteration}, not ${iteration}`];
  }
  const files = Object.entries(manifest.files).map(([name, entry]) => ({ path: join(dir, name), entry }));
  const problems = files.flatMap(({ path, entry }) => fileProblems(path, () => difference(path, entry)));
  return problems.length > 0 ? problems : files.flatMap(({ path }) => fileProblems(path, () => unsoundness(path)));
}

/** SHA-256 of a checkpoint's manifest, which holds the hashes of its files; null if there is no manifest. */
export function manifestDigest(dir: string): string | null {
  const path = join(dir, MANIFEST_NAME);
  return existsSync(path) ? digestOfFileSync(path) : null;
}

/**
 * The newest checkpoint without problems, and what was wrong with newer ones; null when there is no folder at all or none is whole. A checkpoint that
 * a run removes meanwhile is no problem: the run has a newer one.
 */
export function latestWhole(paths: RunPaths): WholeCheckpoint | null {
  const problems: string[] = [];
  const seen = new Set<number>();
  for (;;) {
    const iteration = listCheckpoints(paths).findLast((one) => !seen.has(one));
    if (iteration === undefined) return null;
    const dir = paths.checkpoint(iteration);
    const found = checkpointProblems(dir, iteration);
    seen.add(iteration);
    if (!existsSync(dir)) continue;
    if (found.length === 0) return { iteration, dir, problems };
    problems.push(...found);
  }
}

/** Raises CheckpointError when a folder is not the whole checkpoint of an iteration. */
export function requireWhole(dir: string, iteration: number): void {
  const problems = checkpointProblems(dir, iteration);
  if (problems.length === 0) return;
  throw new CheckpointError(`not a whole checkpoint: ${problems.join('; ')}`, {
    where: dir,
    next: 'Use another checkpoint of the run; a whole one matches its MANIFEST.json, and its numbers are finite.',
  });
}

/** Which checkpoints stay. */
export interface Retention {
  /** The first checkpoint at or after each multiple of this is kept for good; 0 keeps none for that reason. */
  readonly keep_every: number;
  /** How many of the newest are kept. */
  readonly keep_last: number;
  /** The iteration of the best one, which is kept; null for none. */
  readonly best?: number | null;
}

/**
 * Removes the checkpoints that retention does not keep and returns their iterations. Always keeps the newest whole checkpoint and those that other
 * runs start from. `before` is called with the folder of each before it is removed.
 */
export function applyRetention(
  paths: RunPaths,
  retention: Retention,
  before: (folder: string) => void = () => {},
): number[] {
  const all = listCheckpoints(paths);
  const kept = new Set(all.slice(Math.max(0, all.length - Math.max(1, retention.keep_last))));
  for (const [index, iteration] of all.entries()) {
    if (reachesMultiple(retention.keep_every, all[index - 1] ?? 0, iteration)) kept.add(iteration);
  }
  if (typeof retention.best === 'number') kept.add(retention.best);
  if (kept.size === all.length) return [];
  const whole = latestWhole(paths);
  if (whole !== null) kept.add(whole.iteration);
  const left = all.filter((iteration) => !kept.has(iteration));
  const pinned = pinnedByOthers(paths, left);
  const removed = left.filter((iteration) => !pinned.has(iteration));
  for (const iteration of removed) {
    before(paths.checkpoint(iteration));
    // Renamed first: a half-removed folder must never look like a checkpoint.
    try {
      rmSync(hide(paths, iteration, 'removed'), { recursive: true, force: true });
    } catch (cause) {
      throw diskError(paths.checkpoint(iteration), cause);
    }
  }
  return removed;
}

/** Whether a multiple of `every` lies after iteration `before` and not after `iteration`; iteration 0 is one itself. */
function reachesMultiple(every: number, before: number, iteration: number): boolean {
  if (every <= 0) return false;
  return iteration === 0 || Math.floor(iteration / every) > Math.floor(before / every);
}

/** Cleans up after a process that died while writing or removing a checkpoint. Only the owner of the run may call it. */
export function cleanCheckpoints(paths: RunPaths): void {
  try {
    for (const name of listDirectory(paths.checkpointsDir)) {
      const path = join(paths.checkpointsDir, name);
      const replaced = /^\.replaced-(\d{6,})-/.exec(name);
      if (replaced !== null && !existsSync(paths.checkpoint(Number(replaced[1])))) {
        renameSync(path, paths.checkpoint(Number(replaced[1])));
      } else if (/^\.(writing|replaced|removed)-/.test(name)) {
        rmSync(path, { recursive: true, force: true });
      }
    }
  } catch (cause) {
    throw diskError(paths.checkpointsDir, cause);
  }
}

/** Moves a checkpoint that is not whole out of the way, keeping it for inspection; returns its new path. */
export function quarantine(paths: RunPaths, iteration: number): string {
  const target = join(paths.checkpointsDir, `corrupt-${iterationName(iteration)}-${Date.now()}`);
  try {
    renameSync(paths.checkpoint(iteration), target);
  } catch (cause) {
    throw diskError(target, cause);
  }
  return target;
}

function hide(paths: RunPaths, iteration: number, why: 'replaced' | 'removed'): string {
  const target = join(paths.checkpointsDir, `.${why}-${iterationName(iteration)}-${process.pid}`);
  rmSync(target, { recursive: true, force: true });
  renameSync(paths.checkpoint(iteration), target);
  return target;
}

/** Writes a file, hashing it on the way, and syncs it. */
function writeSynced(
  path: string,
  content: CheckpointContent,
  disk: CheckpointDisk,
  pieceBytes: number,
): ManifestEntry {
  const hash = createHash('sha256');
  let bytes = 0;
  const file = openSync(path, 'w');
  try {
    for (const piece of piecesOf(content, pieceBytes)) {
      hash.update(piece);
      let done = 0;
      while (done < piece.length) done += disk.write(file, piece, done, piece.length - done);
      bytes += piece.length;
    }
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
  return { sha256: hash.digest('hex'), bytes };
}

/** Yields the content in views of at most `pieceBytes` bytes. */
function* piecesOf(content: CheckpointContent, pieceBytes: number): Generator<Uint8Array> {
  const whole = typeof content === 'string' ? Buffer.from(content, 'utf8') : content;
  for (const part of whole instanceof Uint8Array ? [whole] : whole) {
    for (let start = 0; start < part.length; start += pieceBytes) yield part.subarray(start, start + pieceBytes);
  }
}

function isManifest(value: Manifest): boolean {
  if (typeof value !== 'object' || typeof value.files !== 'object' || value.files === null) return false;
  let total = 0;
  for (const entry of Object.values<ManifestEntry | null>(value.files)) {
    if (typeof entry?.sha256 !== 'string' || !Number.isInteger(entry.bytes)) return false;
    total += entry.bytes;
  }
  return total === value.total_bytes;
}

/** What `check` finds wrong with a file, or why the file cannot be read: a run that trains on may remove it at any moment. */
function fileProblems(path: string, check: () => string | null): string[] {
  try {
    const problem = check();
    return problem === null ? [] : [problem];
  } catch (cause) {
    if (cause instanceof RunError) return [`${path}: ${cause.message}`];
    const { code } = cause as NodeJS.ErrnoException;
    if (code === undefined) throw cause;
    return [code === 'ENOENT' ? `${path} is missing` : `${path} cannot be read (${code})`];
  }
}

/** How a file differs from its manifest's entry. */
function difference(path: string, entry: ManifestEntry): string | null {
  const found = statSync(path);
  requirePlain(found, path);
  const bytes = found.size;
  if (bytes !== entry.bytes) return `${path} has ${bytes} bytes, its manifest says ${entry.bytes}`;
  return digestOfFileSync(path) === entry.sha256 ? null : `${path} does not have the SHA-256 of its manifest`;
}

function listDirectory(path: string): string[] {
  try {
    return readdirSync(path);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw new CheckpointError('cannot list the folder', { where: path, cause });
  }
}

/** The training state besides the weights; `train/trainer_state.ts` writes it. */
export const TRAINER_FILE = 'trainer.json';

const COUNTERS = ['iteration', 'optimizer_steps', 'flat_validations', 'validated_iteration'];

/**
 * What is wrong with the contents of a checkpoint's file, as a sentence. A manifest shows that the file is the one that was written; this checks that
 * what was written is usable. A file that cannot be parsed is left to its reader, which knows what it should hold. Raises what the system says of a
 * file that cannot be read.
 */
export function unsoundness(path: string): string | null {
  const problem = path.endsWith('.safetensors')
    ? tensorProblem(path)
    : basename(path) === TRAINER_FILE
      ? counterProblem(path)
      : null;
  return problem === null ? null : `${path}: ${problem}`;
}

function tensorProblem(path: string): string | null {
  try {
    return notFiniteIn(path);
  } catch (error) {
    if (error instanceof CheckpointError) return null;
    throw error;
  }
}

function counterProblem(path: string): string | null {
  let state: unknown;
  try {
    state = JSON.parse(readPlainText(path) ?? '');
  } catch (error) {
    if (error instanceof SyntaxError) return null;
    throw error;
  }
  for (const name of COUNTERS) {
    const found = (Object(state) as Record<string, unknown>)[name];
    if (found !== undefined && !(Number.isSafeInteger(found) && (found as number) >= 0)) {
      return `${name} is ${JSON.stringify(found)}, a whole number from 0 is needed`;
    }
  }
  const wild = infiniteNumber(state, '');
  return wild === null ? null : `${wild} is not a finite number`;
}

/** The path of the first number that is too large for a float: JSON has no NaN, but `1e999` reads as infinite. */
function infiniteNumber(value: unknown, path: string): string | null {
  if (typeof value === 'number') return Number.isFinite(value) ? null : path;
  if (typeof value !== 'object' || value === null) return null;
  for (const [key, inner] of Object.entries(value)) {
    const found = infiniteNumber(inner, path === '' ? key : `${path}.${key}`);
    if (found !== null) return found;
  }
  return null;
}
