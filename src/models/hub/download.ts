/**
 * One file of the Hub into the cache: into a file beside its blob first, from which a later attempt goes on, and under the blob's name
 * only once its digest is right. A snapshot's files are links to blobs.
 */
import { createHash } from 'node:crypto';
import { existsSync, linkSync, mkdirSync, renameSync, rmSync, statSync, symlinkSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import type { Response } from 'undici';
import { digestOfFile } from '../../core/digest.js';
import { EndpointError, RunError } from '../../core/errors.js';
import { TransientError } from '../../core/retry.js';
import type { HubReference } from '../../schema/model.js';
import { repositoryFolder, snapshotFolder } from './cache.js';
import type { HubClient, RepositoryFile } from './client.js';

/** Called for every piece, with the number of the file's bytes that are on disk. */
export type OnBytes = (bytes: number) => void;

/** Whether a commit's file lies in the cache, at its full size. */
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
 * Brings a file into the snapshot of its commit. Raises what the client raises, EndpointError if the Hub sends something other than it lists, and
 * RunError if the disk refuses.
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
  // Not the name that Python's downloads have while they are under way.
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
  return new EndpointError(`what the Hub sends of ${path} of ${hub} is not the file that it lists: ${found}`, {
    where: environment.endpoint,
    next: 'Give the same command again; if it stays so, something between here and the Hub (a proxy, a mirror) changes files.',
  });
}

/** Relative, so that the cache can be moved; a second name of the blob where the file system has no such links. */
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
  return cacheRefused(
    blob,
    code === 'ENOSPC' || code === 'EDQUOT' ? 'the disk is full' : `it cannot be written (${code})`,
    cause,
  );
}

/** A model that cannot be kept. */
export function cacheRefused(where: string, why: string, cause?: unknown): RunError {
  return new RunError(`the model cannot be downloaded: ${why}`, {
    where,
    next: 'Free some space, or name another folder for models: HF_HOME or HF_HUB_CACHE. What was downloaded stays.',
    cause,
  });
}
