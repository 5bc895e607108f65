/** Uploads a run's files beside its stream, iteration by iteration, so that the progress is a single number. */
import pLimit from 'p-limit';
import { sleep, type Clock } from '../../../core/clock.js';
import { sha256 } from '../../../core/images/image.js';
import type { RunPaths } from '../../paths.js';
import type { Say } from '../shared.js';
import {
  captionOf,
  episodeTable,
  imageOf,
  IMAGE_KINDS,
  shownEpisodes,
  type Cell,
  type ImageKind,
  type ShownEpisodes,
  type ShownImage,
} from '../shown_episodes.js';
import { headersOf, WandbRefusedError, type WandbClient } from './client.js';

const CREATE = `mutation CreateRunFiles($entity: String!, $project: String!, $run: String!, $files: [String!]!) {
  createRunFiles(input: {entityName: $entity, projectName: $project, runName: $run, files: $files}) {
    runID uploadHeaders files { name uploadUrl }
  }
}`;

/** Files of an iteration that are uploaded at the same time. */
const CONCURRENT_UPLOADS = 4;
const POLL_MS = 500;

interface QueuedUpload {
  /** Null for files of the run as a whole. */
  readonly iteration: number | null;
  readonly files: readonly MediaFile[];
}

export class Uploads {
  readonly #queue: QueuedUpload[] = [];
  /** Names that the server has. Equal images share a name. */
  readonly #done = new Set<string>();
  #finished: string[] = [];
  #through: number | null = null;
  #stopped = false;
  #refused = false;

  constructor(
    private readonly client: WandbClient,
    private readonly target: UploadTarget,
    private readonly clock: Clock,
    private readonly say: Say,
  ) {}

  /** Call with iterations in order, including iterations without files. */
  add(iteration: number, { files }: Pick<Media, 'files'>): void {
    // A run that went back to a checkpoint repeats iterations.
    if (this.#through !== null && iteration <= this.#through) this.#through = iteration - 1;
    if (this.#queue.length === 0 && files.length === 0) this.#through = iteration;
    else this.#queue.push({ iteration, files });
  }

  /** Adds files of the whole run to the end of the queue. */
  addOfRun(files: readonly MediaFile[]): void {
    this.#queue.push({ iteration: null, files });
  }

  /**
   * Names of files uploaded since the last call, and the iteration up to which everything is uploaded. Null before the
   * first.
   */
  taken(): { readonly names: readonly string[]; readonly through: number | null } {
    const names = this.#finished;
    this.#finished = [];
    return { names, through: this.#through };
  }

  /**
   * Uploads until `complete` is aborted and the queue is empty. Files that the server refuses are reported once and
   * skipped. Raises GivenUpError as the client does.
   */
  async run(complete: AbortSignal): Promise<void> {
    while (!this.#stopped && !(complete.aborted && this.#queue.length === 0)) {
      const next = this.#queue.at(0);
      if (next === undefined) {
        await sleep(this.clock, POLL_MS, complete);
        continue;
      }
      await this.#upload(next.files);
      this.#queue.shift();
      this.#through = next.iteration ?? this.#through;
    }
  }

  stop(): void {
    this.#stopped = true;
  }

  /** Uploads the files of one iteration. Raises the errors of `run`. */
  async #upload(files: readonly MediaFile[]): Promise<void> {
    const wanted = files.filter(({ name }) => !this.#done.has(name));
    if (wanted.length === 0 || this.#refused) return;
    try {
      const addresses = await this.#addresses(wanted.map(({ name }) => name));
      const limit = pLimit(CONCURRENT_UPLOADS);
      await Promise.all(wanted.map((file) => limit(() => this.#put(file, addresses))));
    } catch (error) {
      if (!(error instanceof WandbRefusedError)) throw error;
      this.#refused = true;
      this.say(
        `${error.toText()}\n  Files, images and tables stay in the run directory. Metrics are still uploaded.`,
        'warn',
      );
    }
  }

  async #put({ name, read }: MediaFile, { urls, headers }: Addresses): Promise<void> {
    const bytes = read();
    const url = urls.get(name);
    if (bytes === null || url === undefined) return;
    try {
      await this.client.put(url, headers, bytes);
    } catch (error) {
      if (!isForbidden(error)) throw error;
      // A signed address expires, so a new one is requested.
      const again = await this.#addresses([name]);
      await this.client.put(again.urls.get(name) ?? url, again.headers, bytes);
    }
    this.#done.add(name);
    this.#finished.push(name);
  }

  async #addresses(names: readonly string[]): Promise<Addresses> {
    const { createRunFiles } = await this.client.graphql('CreateRunFiles', CREATE, { ...this.target, files: names });
    const { files = [], uploadHeaders = [] } = (createRunFiles ?? {}) as {
      readonly files?: readonly { readonly name?: string; readonly uploadUrl?: string | null }[];
      readonly uploadHeaders?: readonly string[];
    };
    return {
      urls: new Map(files.flatMap(({ name = '', uploadUrl }) => (uploadUrl ? [[name, uploadUrl]] : []))),
      headers: headersOf(uploadHeaders),
    };
  }
}

function isForbidden(error: unknown): boolean {
  return error instanceof WandbRefusedError && error.status === 403;
}

interface Addresses {
  /** Addresses by file name. A file that the server does not want has none. */
  readonly urls: ReadonlyMap<string, string>;
  readonly headers: Readonly<Record<string, string>>;
}

export interface Media {
  /** The values for an iteration's row. */
  readonly values: Readonly<Record<string, unknown>>;
  readonly files: readonly MediaFile[];
}

export const NO_MEDIA: Media = { values: {}, files: [] };

/**
 * The shown images and tables of an iteration. Raises RunError for an invalid file of episodes.
 * @param most maximum number of episodes of each kind
 */
export function mediaOf(paths: RunPaths, iteration: number, most: number): Media {
  return mergeMedia(
    shownEpisodes(paths, iteration, most).flatMap((shown) => [
      tableOf(paths, shown),
      ...IMAGE_KINDS.map((kind) => imageList(paths, shown, kind)),
    ]),
  );
}

function mergeMedia(all: readonly Media[]): Media {
  const files = new Map(all.flatMap((one) => one.files).map((file) => [file.name, file]));
  return {
    values: Object.assign({}, ...all.map(({ values }) => values)) as Media['values'],
    files: [...files.values()],
  };
}

/** One kind of image of all episodes. Empty if no episode has one. */
function imageList(paths: RunPaths, { title, episodes }: ShownEpisodes, kind: ImageKind): Media {
  const there = episodes.flatMap((episode) => {
    const image = imageOf(paths, episode[kind]);
    return image === null ? [] : [{ episode, image: image }];
  });
  if (there.length === 0) return NO_MEDIA;
  const { width, height } = there[0].image;
  const value = {
    _type: 'images/separated',
    ...{ width, height, format: 'png' },
    count: there.length,
    filenames: there.map(({ image }) => mediaName(image)),
    captions: there.map(({ episode }) => captionOf(episode)),
  };
  return { values: { [`${title}/${kind}`]: value }, files: there.map(({ image }) => fileOf(image)) };
}

function tableOf(paths: RunPaths, shown: ShownEpisodes): Media {
  const { title, iteration } = shown;
  const key = `${title}/table`;
  const { columns, rows } = episodeTable(paths, shown);
  // A cell contains the file name of its image.
  const data = rows.map((row) => row.map((cell) => (isImage(cell) ? mediaName(cell) : cell)));
  const bytes = Buffer.from(JSON.stringify({ columns, data }), 'utf8');
  const digest = sha256(bytes);
  const name = `media/table/${title}_${iteration}_${digest.slice(0, 20)}.table.json`;
  const value = {
    _type: 'table-file',
    path: name,
    sha256: digest,
    size: bytes.length,
    ncols: columns.length,
    nrows: rows.length,
    log_mode: 'IMMUTABLE',
  };
  return { values: { [key]: value }, files: [{ name, read: () => bytes }] };
}

function isImage(cell: Cell): cell is ShownImage {
  return typeof cell === 'object' && cell !== null;
}

function fileOf(image: ShownImage): MediaFile {
  return { name: mediaName(image), read: image.read };
}

/** Equal images have one name and are uploaded once. */
function mediaName({ digest }: ShownImage): string {
  return `media/images/${digest.slice(0, 20)}.png`;
}

/** A file to upload. Its content is null if it no longer exists. */
export interface MediaFile {
  readonly name: string;
  readonly read: () => Uint8Array | null;
}

/** A run on a server. */
export interface UploadTarget {
  readonly entity: string;
  readonly project: string;
  readonly run: string;
}
