/**
 * Checkpoints: folders that are either complete or absent. A checkpoint is written to a temporary folder, synced, hashed into MANIFEST.json, and then
 * renamed. A folder that does not match its manifest or contains non-finite numbers is never loaded.
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

/** Bytes per write and hash update. Neither system calls nor hashes accept 2 GiB at once. */
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

/** A checkpoint that matches its manifest and contains only finite numbers. */
export interface WholeCheckpoint {
  readonly iteration: number;
  readonly dir: string;
  /** Problems of skipped later checkpoints, one sentence each. */
  readonly problems: readonly string[];
}

/** File system operations, which tests replace. */
export interface CheckpointDisk {
  write(file: number, bytes: Uint8Array, offset: number, length: number): number;
}

const realDisk: CheckpointDisk = { write: (file, bytes, offset, length) => writeSync(file, bytes, offset, length) };

/**
 * Writes the checkpoint of an iteration, replacing one of the same iteration, and returns its folder. `files` maps plain file names to contents, which
 * are written and hashed at most `pieceBytes` at a time. Raises RunError for a disk error. Earlier checkpoints stay untouched.
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
        throw new InternalError(`'${name}' is not a valid checkpoint file name`);
      }
      entries[name] = writeSynced(join(temporary, name), content, disk, pieceBytes);
      total += entries[name].bytes;
    }
    const manifest: Manifest = { format: 1, iteration, files: entries, total_bytes: total };
    writeSynced(join(temporary, MANIFEST_NAME), `${JSON.stringify(manifest, null, 2)}\n`, disk, pieceBytes);
    syncDirectory(temporary);
    // Between these renames the iteration has no folder. After a crash, `cleanCheckpoints` restores the old one.
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

/** Whether an error comes from the operating system. */
function refusedByDisk(cause: unknown): boolean {
  const { code } = cause as NodeJS.ErrnoException;
  return !(cause instanceof InternalError) && code !== undefined && !code.startsWith('ERR_');
}

/** The iterations that have a checkpoint folder, complete or not, in ascending order. */
export function listCheckpoints(paths: RunPaths): number[] {
  return listDirectory(paths.checkpointsDir)
    .map(parseIterationName)
    .filter((iteration) => iteration !== null)
    .sort((a, b) => a - b);
}

/**
 * Returns the problems of a checkpoint folder, one sentence each. A folder without problems has files with the sizes and hashes of its manifest, finite
 * tensors, and whole numbers as counters.
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
    return [`${manifestPath} is for iteration ${manifest.iteration}, not ${iteration}`];
  }
  const files = Object.entries(manifest.files).map(([name, entry]) => ({ path: join(dir, name), entry }));
  const problems = files.flatMap(({ path, entry }) => fileProblems(path, () => difference(path, entry)));
  return problems.length > 0 ? problems : files.flatMap(({ path }) => fileProblems(path, () => unsoundness(path)));
}

/** SHA-256 of a checkpoint's manifest, which contains the hashes of its files. Null if there is no manifest. */
export function manifestDigest(dir: string): string | null {
  const path = join(dir, MANIFEST_NAME);
  return existsSync(path) ? digestOfFileSync(path) : null;
}

/**
 * The newest checkpoint without problems, together with the problems of newer ones. Null if there is none. A checkpoint that the run removes meanwhile
 * is skipped, because the run then has a newer one.
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

/** Raises CheckpointError unless a folder is the complete checkpoint of an iteration. */
export function requireWhole(dir: string, iteration: number): void {
  const problems = checkpointProblems(dir, iteration);
  if (problems.length === 0) return;
  throw new CheckpointError(`incomplete or damaged checkpoint: ${problems.join('; ')}`, {
    where: dir,
    next: 'Use another checkpoint of the run. A valid one matches its MANIFEST.json and contains only finite numbers.',
  });
}

/** The rules for keeping checkpoints. */
export interface Retention {
  /** The first checkpoint at or after each multiple of this is kept permanently. 0 disables the rule. */
  readonly keep_every: number;
  /** Number of newest checkpoints to keep. */
  readonly keep_last: number;
  /** The iteration of the best checkpoint, which is kept. Null for none. */
  readonly best?: number | null;
}

/**
 * Removes the checkpoints that the rules do not keep and returns their iterations. Always keeps the newest complete checkpoint and the ones that other
 * runs depend on. Calls `before` with each folder before its removal.
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
    // Renames first, because a partly removed folder must never look like a checkpoint.
    try {
      rmSync(hide(paths, iteration, 'removed'), { recursive: true, force: true });
    } catch (cause) {
      throw diskError(paths.checkpoint(iteration), cause);
    }
  }
  return removed;
}

/** Whether there is a multiple of `every` (0 included) in the range (`before`, `iteration`]. */
function reachesMultiple(every: number, before: number, iteration: number): boolean {
  if (every <= 0) return false;
  return iteration === 0 || Math.floor(iteration / every) > Math.floor(before / every);
}

/** Cleans up after a process that died while it wrote or removed a checkpoint. Only the owner of the run may call it. */
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

/** Moves a damaged checkpoint aside for inspection. Returns its new path. */
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

/** Writes, hashes and syncs a file. */
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

/** The problems that `check` finds in a file, or the reason why it is unreadable. A running run may remove it at any time. */
function fileProblems(path: string, check: () => string | null): string[] {
  try {
    const problem = check();
    return problem === null ? [] : [problem];
  } catch (cause) {
    if (cause instanceof RunError) return [`${path}: ${cause.message}`];
    const { code } = cause as NodeJS.ErrnoException;
    if (code === undefined) throw cause;
    return [code === 'ENOENT' ? `${path} is missing` : `cannot read ${path} (${code})`];
  }
}

/** How a file differs from its manifest's entry. */
function difference(path: string, entry: ManifestEntry): string | null {
  const found = statSync(path);
  requirePlain(found, path);
  const bytes = found.size;
  if (bytes !== entry.bytes) return `${path} has ${bytes} bytes instead of ${entry.bytes}`;
  return digestOfFileSync(path) === entry.sha256 ? null : `${path} does not match the SHA-256 in its manifest`;
}

function listDirectory(path: string): string[] {
  try {
    return readdirSync(path);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw new CheckpointError('cannot list the folder', { where: path, cause });
  }
}

/** The training state except weights, from `train/trainer_state.ts`. */
export const TRAINER_FILE = 'trainer.json';

const COUNTERS = ['iteration', 'optimizer_steps', 'flat_validations', 'validated_iteration'];

/**
 * Returns the problem in the contents of a checkpoint file, as a sentence. The manifest shows that the file is unchanged, and this check shows that its
 * contents are usable. It skips files that it cannot parse, which their reader reports. Raises the system's error for an unreadable file.
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
      return `${name} is ${JSON.stringify(found)}, not a whole number >= 0`;
    }
  }
  const wild = infiniteNumber(state, '');
  return wild === null ? null : `${wild} is not a finite number`;
}

/** The path of the first number that is too large for a float. JSON has no NaN, but `1e999` parses as infinite. */
function infiniteNumber(value: unknown, path: string): string | null {
  if (typeof value === 'number') return Number.isFinite(value) ? null : path;
  if (typeof value !== 'object' || value === null) return null;
  for (const [key, inner] of Object.entries(value)) {
    const found = infiniteNumber(inner, path === '' ? key : `${path}.${key}`);
    if (found !== null) return found;
  }
  return null;
}
