/** Fetches a Hub model into the cache: first the files that describe it, and its weights once it is known that they can be used. */
import { createHash } from 'node:crypto';
import { existsSync, linkSync, mkdirSync, renameSync, rmSync, statSync, statfsSync, symlinkSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Response } from 'undici';
import { digestOfFile } from '../../core/digest.js';
import { CheckpointError, EndpointError, InUseError, RunError, must } from '../../core/errors.js';
import { writeFileAtomic } from '../../core/files.js';
import { type FileLock, ownerStatus, realLockWorld, takeLock } from '../../core/lock.js';
import { TransientError } from '../../core/retry.js';
import type { HubReference } from '../reference.js';
import { cachedModel, isCommit, knownCommit, nameOf, repositoryFolder, snapshotFolder } from './cache.js';
import type { HubClient, RepositoryFile } from './client.js';
import { type Need, descriptionFiles, weightFiles } from './needed.js';

/** A model by its reference. */
export interface RequestedModel {
  readonly reference: HubReference;
  readonly need: Need;
  /** The commit at the start of a run. Null before the start. */
  readonly pinned: string | null;
}

/** A model that can be had. */
export interface FoundModel extends RequestedModel {
  readonly commit: string;
  /** Its snapshot, with all files except `left`. */
  readonly folder: string;
  /** The files that remain to be fetched. */
  readonly left: readonly RepositoryFile[];
  /** Bytes of `left` that are not on the disk. */
  readonly bytesLeft: number;
  /** A note for the user about it. */
  readonly note: string | null;
}

export interface FetchListener {
  /** Called with one line for each event. */
  readonly say: (line: string) => void;
  /** Called often, with the number of bytes received so far. */
  readonly progress?: (done: number, all: number) => void;
}

const LOOK_EVERY_MS = 500;
/** The space that stays free on a disk. */
const MIN_FREE_BYTES = 64 * 2 ** 20;

/**
 * Finds a model, and fetches the files that describe it. Uses the cached commit of a started run without a query, and
 * the cached snapshot if the Hub does not answer. Raises CheckpointError if Hub queries are disabled and the cache
 * lacks the model, or if the model has no readable weights, and the errors of `HubClient` and `fetchFiles`.
 */
export async function lookUp(client: HubClient, wanted: RequestedModel, telling: FetchListener): Promise<FoundModel> {
  const { reference, need, pinned } = wanted;
  const { environment } = client;
  const cached = cachedModel(reference, need, pinned, environment);
  const ready = cached === null ? null : { ...wanted, ...cached, left: [], bytesLeft: 0, note: null };
  if (ready !== null && (pinned !== null || environment.offline)) return ready;
  if (environment.offline) throw notDownloaded(wanted, environment.cacheDir);
  try {
    const commit = pinned ?? (isCommit(reference.revision) ? reference.revision : await client.commitOf(reference));
    const files = await client.files(reference, commit);
    return await describe(client, { ...wanted, commit }, files, telling);
  } catch (error) {
    if (ready === null || !(error instanceof EndpointError)) throw error;
    return { ...ready, note: `${error.message}; using the cached copy` };
  }
}

/** The error for a model that the cache lacks while Hub queries are disabled. */
export function notDownloaded({ reference, pinned }: RequestedModel, cacheDir: string): CheckpointError {
  return new CheckpointError(
    `the model ${nameOf(reference, pinned)} was not downloaded, and HF_HUB_OFFLINE disables downloads`,
    {
      where: cacheDir,
      next: 'Unset HF_HUB_OFFLINE, or set HF_HUB_CACHE to the cache that has it.',
    },
  );
}

async function describe(
  client: HubClient,
  wanted: RequestedModel & { readonly commit: string },
  files: readonly RepositoryFile[],
  telling: FetchListener,
): Promise<FoundModel> {
  const { reference, need, commit } = wanted;
  const folder = snapshotFolder(client.environment, reference.hub, commit);
  const paths = files.map(({ path }) => path);
  const small = new Set(descriptionFiles(paths));
  const absent = (file: RepositoryFile): boolean => !isCached(client, reference, commit, file);
  const describing = files.filter((file) => small.has(file.path) && absent(file));
  if (describing.length > 0) {
    await whileLocked(client, reference, telling, async () => {
      for (const file of describing) await download(client, reference, commit, file);
    });
  }
  // A read-only shared cache works as long as it has all needed files.
  if (wanted.pinned === null && knownCommit(client.environment, reference) !== commit) {
    const ref = join(repositoryFolder(client.environment, reference.hub), 'refs', reference.revision);
    try {
      writeFileAtomic(ref, commit);
    } catch (cause) {
      throw cacheError(ref, 'it cannot be written', cause);
    }
  }
  const weights =
    need === 'model' ? weightFiles(folder, paths, `${client.environment.endpoint}/${nameOf(reference)}`) : [];
  const byPath = new Map(files.map((file) => [file.path, file]));
  const left = weights.map((path) => must(byPath.get(path), 'a file of the repository')).filter(absent);
  const bytesLeft = left.reduce((sum, file) => sum + file.bytes - bytesBefore(client, reference, file), 0);
  return { ...wanted, folder, left, bytesLeft, note: null };
}

/** Fetches the remaining files of a model, one process at a time. Raises RunError if the disk has no room, and whatever `download` raises. */
export async function fetchModel(
  client: HubClient,
  found: FoundModel,
  telling: FetchListener,
  freeOf: (folder: string) => number = freeSpace,
): Promise<void> {
  const { reference, commit, left } = found;
  const repository = repositoryFolder(client.environment, reference.hub);
  if (left.length > 0) {
    await whileLocked(client, reference, telling, async () => {
      const open = left.filter((file) => !isCached(client, reference, commit, file));
      const before = open.map((file) => bytesBefore(client, reference, file));
      const all = open.reduce((sum, { bytes }) => sum + bytes, 0);
      requireRoom(repository, all - before.reduce((sum, bytes) => sum + bytes, 0), freeOf(repository));
      let done = 0;
      for (const file of open) {
        await download(client, reference, commit, file, (bytes) => telling.progress?.(done + bytes, all));
        done += file.bytes;
      }
    });
  }
}

function freeSpace(folder: string): number {
  const { bavail, bsize } = statfsSync(folder);
  return bavail * bsize;
}

function requireRoom(folder: string, bytes: number, free: number): void {
  if (bytes === 0 || free >= bytes + MIN_FREE_BYTES) return;
  throw cacheError(folder, `${megabytes(bytes)} are to be fetched, and the disk has ${megabytes(free)} free`);
}

/** The size of a download, for people. */
export function megabytes(bytes: number): string {
  return bytes < 1e9 ? `${Math.max(1, Math.ceil(bytes / 1e6))} MB` : `${(bytes / 1e9).toFixed(1)} GB`;
}

/** Runs an action while no other process of this program downloads from the same repository. Waits for its turn. */
async function whileLocked(
  client: HubClient,
  { hub }: HubReference,
  { say }: FetchListener,
  work: () => Promise<void>,
): Promise<void> {
  const { environment } = client;
  const folder = repositoryFolder(environment, hub);
  try {
    mkdirSync(folder, { recursive: true });
  } catch (cause) {
    throw cacheError(
      folder,
      `its folder cannot be created (${(cause as NodeJS.ErrnoException).code ?? String(cause)})`,
      cause,
    );
  }
  const lock = await lockWhenFree(join(folder, '.editrl.lock'), client.signal, () =>
    say(`another process is downloading ${hub}: waiting for it`),
  );
  lock.keepAlive({ onLost: () => {} });
  try {
    await work();
  } finally {
    lock.release();
  }
}

async function lockWhenFree(path: string, signal: AbortSignal, onWaiting: () => void): Promise<FileLock> {
  const world = realLockWorld();
  for (let wasReported = false; ;) {
    try {
      return takeLock(
        path,
        ({ owner }) => {
          if (owner === null || ownerStatus(owner, world) !== 'gone') throw new InUseError('in use');
        },
        world,
      );
    } catch (error) {
      if (!(error instanceof InUseError)) throw error;
      if (!wasReported) onWaiting();
      wasReported = true;
      await sleep(LOOK_EVERY_MS, undefined, { signal });
    }
  }
}

/** Called for every piece, with the number of the file's bytes that are on disk. */
export type OnBytes = (bytes: number) => void;

/** Whether a commit's file is in the cache, at its full size. */
export function isCached(
  client: HubClient,
  { hub }: HubReference,
  commit: string,
  { path, bytes }: RepositoryFile,
): boolean {
  const place = join(snapshotFolder(client.environment, hub, commit), path);
  return existsSync(place) && statSync(place).size === bytes;
}

/** The number of a file's bytes that need not be fetched again. */
export function bytesBefore(client: HubClient, { hub }: HubReference, file: RepositoryFile): number {
  const { blob, begun } = places(client, hub, file);
  return [blob, begun].map(sizeOf).find((size) => size > 0 && size <= file.bytes) ?? 0;
}

/**
 * Adds a file to the snapshot of its commit. Raises the client's errors, EndpointError if the Hub sends another file
 * than it lists, and RunError if the disk fails.
 */
export async function download(
  client: HubClient,
  reference: HubReference,
  commit: string,
  file: RepositoryFile,
  onBytes: OnBytes = () => {},
): Promise<void> {
  const { blob, begun } = places(client, reference.hub, file);
  const place = join(snapshotFolder(client.environment, reference.hub, commit), file.path);
  try {
    if (sizeOf(blob) !== file.bytes) {
      mkdirSync(dirname(blob), { recursive: true });
      await client.persevere(
        reference,
        () => fetchRest(client, reference, commit, file, begun, onBytes),
        () => sizeOf(begun),
      );
      await checkDigest(client, reference, file, begun);
      renameSync(begun, blob);
    }
    onBytes(file.bytes);
    mkdirSync(dirname(place), { recursive: true });
    link(blob, place);
  } catch (cause) {
    throw diskFull(cause, blob) ?? cause;
  }
}

function places(client: HubClient, hub: string, { digest }: RepositoryFile): { blob: string; begun: string } {
  const blob = join(repositoryFolder(client.environment, hub), 'blobs', digest.hex);
  // Python's unfinished downloads have another name, so the two never mix.
  return { blob, begun: `${blob}.editrl.incomplete` };
}

function sizeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
}

async function fetchRest(
  client: HubClient,
  reference: HubReference,
  commit: string,
  { path, bytes }: RepositoryFile,
  begun: string,
  onBytes: OnBytes,
): Promise<void> {
  const before = sizeOf(begun);
  if (before > bytes) rmSync(begun);
  const from = before > bytes ? 0 : before;
  if (from === bytes && existsSync(begun)) return;
  const response = await client.open(reference, commit, path, from);
  const start = startOf(response);
  const file = await open(begun, start === from && from > 0 ? 'a' : 'w');
  try {
    let written = start === from ? from : 0;
    if (start !== from && start !== 0) {
      throw other(client, reference, path, `it begins at byte ${start} instead of ${from}`);
    }
    for await (const piece of (response.body ?? []) as AsyncIterable<Uint8Array>) {
      await file.writeFile(piece);
      written += piece.length;
      if (written > bytes) throw other(client, reference, path, `it is longer than its ${bytes} bytes`);
      onBytes(written);
    }
    await file.sync();
    if (written < bytes) throw new TransientError(`it sends ${written} of the ${bytes} bytes of ${path}`);
  } finally {
    await file.close();
  }
}

/** The place in the file of a reply's first byte. */
function startOf(response: Response): number {
  const range = /^bytes (\d+)-/.exec(response.headers.get('content-range') ?? '');
  return response.status === 206 && range !== null ? Number(range[1]) : 0;
}

async function checkDigest(
  client: HubClient,
  reference: HubReference,
  { path, bytes, digest }: RepositoryFile,
  begun: string,
): Promise<void> {
  // Git hashes a file's size before its content.
  const hash = digest.of === 'sha256' ? createHash('sha256') : createHash('sha1').update(`blob ${bytes}\0`);
  if ((await digestOfFile(begun, hash)) === digest.hex) return;
  rmSync(begun);
  throw other(client, reference, path, 'its digest is not the one that the Hub lists');
}

function other({ environment }: HubClient, { hub }: HubReference, path: string, found: string): EndpointError {
  return new EndpointError(`the downloaded ${path} of ${hub} is not the listed file: ${found}`, {
    where: environment.endpoint,
    next: 'Repeat the command. If it fails again, a proxy or mirror between this machine and the Hub changes files.',
  });
}

/** Relative, so that the cache can be moved. A hard link to the blob if the file system has no symbolic links. */
function link(blob: string, place: string): void {
  rmSync(place, { force: true });
  try {
    symlinkSync(relative(dirname(place), blob), place);
  } catch (cause) {
    if (!['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS'].includes((cause as NodeJS.ErrnoException).code ?? '')) {
      throw cause;
    }
    linkSync(blob, place);
  }
}

function diskFull(cause: unknown, blob: string): RunError | null {
  const { code = '', syscall } = cause as NodeJS.ErrnoException;
  if (syscall === undefined || !['ENOSPC', 'EDQUOT', 'EACCES', 'EROFS', 'EPERM'].includes(code)) return null;
  return cacheError(
    blob,
    code === 'ENOSPC' || code === 'EDQUOT' ? 'the disk is full' : `it cannot be written (${code})`,
    cause,
  );
}

/** The error for a model that cannot be stored. */
export function cacheError(where: string, why: string, cause?: unknown): RunError {
  return new RunError(`the model cannot be downloaded: ${why}`, {
    where,
    next: 'Free some space, or name another folder for models: HF_HOME or HF_HUB_CACHE. Downloaded data stays.',
    cause,
  });
}
