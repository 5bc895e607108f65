/**
 * Fetches EARL's published datasets, which are archives on the Hub, into the Hub's cache, where an interrupted download continues, and unpacks them
 * into the folder that configs name as APP__DATA_DIR. Existing folders are left unchanged.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, lstatSync, mkdirSync, readdirSync, realpathSync, renameSync, rmSync, symlinkSync } from 'node:fs';
import { basename, join } from 'node:path';
import { ConfigError, DataError, RunError } from '../src/core/errors.js';
import { DATALIST_NAME } from '../src/data/datalist.js';
import { DATASETS, snapshotFolder } from '../src/models/hub/cache.js';
import type { HubClient } from '../src/models/hub/client.js';
import { download, megabytes } from '../src/models/hub/fetch.js';

/** An archive in a dataset's repository. */
export interface Archive {
  /** OWNER/NAME. */
  readonly dataset: string;
  readonly file: string;
  readonly revision: string;
}

const omniedit = { dataset: 'mair-lab/omniedit-got-tokenized-256', revision: 'main' };

/** The datasets that EARL trains and evaluates on. */
export const published: readonly Archive[] = [
  { ...omniedit, file: 'validation_22march_256.tar.gz' },
  { ...omniedit, file: 'train_22march_256.tar.gz' },
  { dataset: 'rabiulawal/emu3_tokenized_rl_100k', revision: 'main', file: 'emu3_tokenized_rl_100k.tar.gz' },
];

const SUFFIX = /\.(?:tar\.gz|tgz|tar)$/;

/** Reads `OWNER/NAME:FILE` or `OWNER/NAME@REVISION:FILE`. Raises ConfigError for anything else. */
export function readArchive(text: string): Archive {
  const [, dataset, revision = 'main', file] = /^([\w.-]+\/[\w.-]+)(?:@([\w./-]+))?:([\w./-]+)$/.exec(text) ?? [];
  if ((dataset as string | undefined) !== undefined && SUFFIX.test(file)) return { dataset, revision, file };
  throw new ConfigError(`found ${text}; allowed: OWNER/NAME:FILE.tar.gz or OWNER/NAME@REVISION:FILE.tar.gz`);
}

/**
 * Fetches archives one after another and unpacks them into subfolders of a folder. Reports progress with `say`. An archive whose folder exists is
 * not fetched. Raises the errors of the Hub's client, ConfigError if a repository has no such file, DataError for an archive that cannot be unpacked.
 */
export async function setUpDatasets(
  folder: string,
  archives: readonly Archive[],
  client: HubClient,
  say: (line: string) => void,
): Promise<void> {
  mkdirSync(folder, { recursive: true });
  for (const archive of archives) {
    const place = join(folder, basename(archive.file).replace(SUFFIX, ''));
    if (existsSync(place)) {
      say(`${place} already exists`);
      continue;
    }
    unpack(await fetchArchive(archive, client, say), place);
    linkLists(place);
    say(`${place} is ready: ${listsBelow(place)} datasets`);
  }
}

async function fetchArchive(
  { dataset, file, revision }: Archive,
  client: HubClient,
  say: (line: string) => void,
): Promise<string> {
  const reference = { hub: `${DATASETS}${dataset}`, revision };
  const commit = await client.commitOf(reference);
  const files = await client.files(reference, commit);
  const found = files.find(({ path }) => path === file);
  if (found === undefined) {
    const others = files.map(({ path }) => path).filter((path) => SUFFIX.test(path));
    throw new ConfigError(`the dataset ${dataset} has no file ${file}`, {
      where: `${client.environment.endpoint}/${reference.hub}`,
      next: others.length === 0 ? 'It has no archives.' : `It has: ${others.slice(0, 8).join(', ')}.`,
    });
  }
  say(`fetching ${file} of ${dataset}: ${megabytes(found.bytes)}`);
  await download(client, reference, commit, found);
  return join(snapshotFolder(client.environment, reference.hub, commit), file);
}

/**
 * Unpacks an archive next to `place` and moves it there, so that it is complete or missing. No entry may be written
 * outside of it.
 */
function unpack(archive: string, place: string): void {
  const staging = `${place}.unpacking`;
  rmSync(staging, { recursive: true, force: true });
  mkdirSync(staging);
  // Both GNU tar and BSD tar drop leading slashes and refuse paths with `..`.
  const flags = ['--extract', '--no-same-owner', '--no-same-permissions', '--file', archive, '--directory', staging];
  const { status, stderr, error } = spawnSync('tar', flags, { encoding: 'utf8' });
  if (error !== undefined) {
    throw new RunError(`tar cannot be started: ${error.message}`, {
      next: 'Install tar, then repeat the command.',
    });
  }
  if (status !== 0) {
    throw new DataError(`the archive cannot be unpacked: ${stderr.trim().split('\n')[0]}`, {
      where: archive,
      next: 'If the disk is full, free some space; otherwise remove the file. Then repeat the command.',
    });
  }
  const entries = readdirSync(staging, { recursive: true, withFileTypes: true });
  const odd = entries.find((entry) => !entry.isFile() && !entry.isDirectory());
  if (odd !== undefined) {
    throw new DataError(`the archive contains ${odd.name}, which is neither a file nor a folder`, {
      where: archive,
      next: 'A dataset only has files and folders: the archive is another one, or was manipulated.',
    });
  }
  // An archive holds either one folder with its own name, or the content of that folder.
  const inner = join(staging, basename(place));
  const alone = readdirSync(staging).length === 1 && existsSync(inner);
  renameSync(alone ? inner : staging, place);
  rmSync(staging, { recursive: true, force: true });
}

/**
 * EARL reads the lists from the folder of the samples. Archives with a folder `feature` have them next to it, so they
 * are linked.
 */
function linkLists(place: string): void {
  const feature = join(place, 'feature');
  const isThere = existsSync(feature) && lstatSync(feature).isDirectory() && existsSync(join(place, 'list'));
  if (isThere && !existsSync(join(feature, 'list'))) symlinkSync(join('..', 'list'), join(feature, 'list'));
}

function listsBelow(place: string): number {
  const entries = readdirSync(place, { recursive: true, withFileTypes: true });
  // Node 24 follows the links of linkLists.
  return new Set(
    entries
      .filter(({ name }) => name === DATALIST_NAME)
      .map(({ name, parentPath }) => realpathSync(join(parentPath, name))),
  ).size;
}
