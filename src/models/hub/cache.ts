/**
 * The Hub's cache on this machine, in Hugging Face's layout: `models--OWNER--NAME/` with `refs/REVISION` (its commit),
 * `snapshots/COMMIT/FILE` and `blobs/DIGEST`, to which the snapshots' files link. It shares Python's downloads.
 */
import { existsSync, readFileSync, realpathSync } from 'node:fs';
import { homedir } from 'node:os';
import { join, sep } from 'node:path';
import { CheckpointError } from '../../core/errors.js';
import type { HubReference } from '../reference.js';
import { readJson } from '../files.js';
import { type Need, missingFiles } from './needed.js';

/** A model in the cache. */
export interface CachedModel {
  readonly folder: string;
  readonly commit: string;
}

/** The prefix of a dataset's repository, as in its address. */
export const DATASETS = 'datasets/';

export function repositoryFolder({ cacheDir }: Pick<HubEnvironment, 'cacheDir'>, hub: string): string {
  const path = hub.startsWith(DATASETS) ? hub : `models/${hub}`;
  return join(cacheDir, path.replaceAll('/', '--'));
}

export function snapshotFolder(environment: Pick<HubEnvironment, 'cacheDir'>, hub: string, commit: string): string {
  return join(repositoryFolder(environment, hub), 'snapshots', commit);
}

/** Whether a revision is a full commit hash, which never changes its commit. */
export function isCommit(revision: string): boolean {
  return /^[0-9a-f]{40}$/.test(revision);
}

/** The commit of a revision when it was last queried. Null if it never was. */
export function knownCommit(environment: HubEnvironment, { hub, revision }: HubReference): string | null {
  if (isCommit(revision)) return revision;
  const ref = join(repositoryFolder(environment, hub), 'refs', revision);
  const commit = existsSync(ref) ? readFileSync(ref, 'utf8').trim() : '';
  return isCommit(commit) ? commit : null;
}

/** The snapshot of a model, at `pinned` if a commit is given. Null if it is missing or lacks required files. */
export function cachedModel(
  reference: HubReference,
  need: Need,
  pinned: string | null = null,
  environment = hubEnvironment(),
): CachedModel | null {
  const commit = pinned ?? knownCommit(environment, reference);
  if (commit === null) return null;
  const folder = snapshotFolder(environment, reference.hub, commit);
  return missingFiles(folder, need).length === 0 ? { folder, commit } : null;
}

/**
 * The snapshot of a revision as last queried, or of `pinned`, even if only partly downloaded. Null without any file.
 */
export function cachedSnapshot(
  reference: HubReference,
  pinned: string | null = null,
  environment = hubEnvironment(),
): string | null {
  const commit = pinned ?? knownCommit(environment, reference);
  const folder = commit === null ? null : snapshotFolder(environment, reference.hub, commit);
  return folder !== null && existsSync(folder) ? folder : null;
}

/** Like `cachedSnapshot`, but raises CheckpointError if there is none. */
export function cachedFolder(
  reference: HubReference,
  pinned: string | null = null,
  environment = hubEnvironment(),
): string {
  const folder = cachedSnapshot(reference, pinned, environment);
  if (folder !== null) return folder;
  throw new CheckpointError(`the model ${nameOf(reference, pinned)} is not in the Hub's cache on this machine`, {
    where: environment.cacheDir,
    next: 'Start its run again (`editrl run` downloads it), or set HF_HUB_CACHE to the cache that has it.',
  });
}

/** The name in messages. */
export function nameOf({ hub, revision }: HubReference, pinned: string | null = null): string {
  const shown = pinned ?? (revision === 'main' ? null : revision);
  return shown === null ? hub : `${hub} at ${isCommit(shown) ? shown.slice(0, 12) : shown}`;
}

/** The Hub model of a folder in a cache. Null for another folder. */
export function hubModelAt(folder: string): { readonly hub: string; readonly revision: string } | null {
  const [repository = '', snapshots, commit = ''] = folder.split(sep).slice(-3);
  const [kind, owner, name, ...more] = repository.split('--');
  if (kind !== 'models' || name === undefined || more.length > 0) return null;
  return snapshots === 'snapshots' && isCommit(commit) ? { hub: `${owner}/${name}`, revision: commit } : null;
}

/** The SHA-256 that names a large file of a cache. Null for any other file. */
export function blobDigest(path: string): string | null {
  const [folder, name = ''] = realpathSync(path).split(sep).slice(-2);
  return folder === 'blobs' && /^[0-9a-f]{64}$/.test(name) ? name : null;
}

/** The Hub model that an adapter's file names as its base. Null if it names a folder, or without an adapter. */
export function hubBaseOf(folder: string): HubReference | null {
  const file = join(folder, 'adapter_config.json');
  if (!existsSync(file)) return null;
  const { base_model_name_or_path: base, revision } = readJson(file) as Record<string, unknown>;
  if (typeof base !== 'string' || !/^[\w.-]+\/[\w.-]+$/.test(base) || existsSync(base)) return null;
  return { hub: base, revision: typeof revision === 'string' && revision !== '' ? revision : 'main' };
}

export interface HubEnvironment {
  /** The Hub's address, without a slash at its end. */
  readonly endpoint: string;
  /** The folder of models. */
  readonly cacheDir: string;
  /** The token of the user. Null: anonymous. */
  readonly token: string | null;
  /** Whether Hub queries are disabled. */
  readonly offline: boolean;
}

/** HF_ENDPOINT, HF_HUB_CACHE (else HF_HOME), HF_TOKEN (else the file that logging in leaves), HF_HUB_OFFLINE, and their older names. */
export function hubEnvironment(env: NodeJS.ProcessEnv = process.env): HubEnvironment {
  const first = (...names: string[]): string | undefined => names.map((name) => env[name]?.trim()).find(Boolean);
  const is = (...names: string[]): boolean => /^(1|on|yes|true)$/i.test(first(...names) ?? '');
  const path = (text: string): string => text.replace(/^~(?=\/|$)/, homedir());
  const home = path(first('HF_HOME') ?? join(first('XDG_CACHE_HOME') ?? '~/.cache', 'huggingface'));
  const tokenFile = path(first('HF_TOKEN_PATH') ?? join(home, 'token'));
  const implicit = is('HF_HUB_DISABLE_IMPLICIT_TOKEN') ? null : readToken(tokenFile);
  return {
    endpoint: (first('HF_ENDPOINT') ?? 'https://huggingface.co').replace(/\/+$/, ''),
    cacheDir: path(first('HF_HUB_CACHE', 'HUGGINGFACE_HUB_CACHE') ?? join(home, 'hub')),
    token: first('HF_TOKEN', 'HUGGING_FACE_HUB_TOKEN') ?? implicit,
    offline: is('HF_HUB_OFFLINE', 'TRANSFORMERS_OFFLINE'),
  };
}

/** Null if no one has logged in on this machine, or if another account owns the file. */
function readToken(path: string): string | null {
  try {
    return readFileSync(path, 'utf8').trim() || null;
  } catch {
    return null;
  }
}
