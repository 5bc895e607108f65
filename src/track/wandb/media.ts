/**
 * What W&B shows of a run's episodes: tables and lists of images, as files of the run and as the values in its history that refer to
 * them.
 */
import { sha256 } from '../../core/image.js';
import type { RunPaths } from '../../run/paths.js';
import {
  captionOf,
  episodeTable,
  PICTURES,
  pictureOf,
  shownEpisodes,
  type Cell,
  type PictureKind,
  type ShownEpisodes,
  type ShownPicture,
} from '../shown_episodes.js';
import type { MediaFile } from './upload_types.js';

export interface Media {
  /** The values for an iteration's row. */
  readonly values: Readonly<Record<string, unknown>>;
  readonly files: readonly MediaFile[];
}

export const NO_MEDIA: Media = { values: {}, files: [] };

/**
 * What is shown of an iteration. Raises RunError for an invalid file of episodes.
 * @param most how many episodes of each kind.
 */
export function mediaOf(paths: RunPaths, iteration: number, most: number): Media {
  return mergeMedia(
    shownEpisodes(paths, iteration, most).flatMap((shown) => [
      tableOf(paths, shown),
      ...PICTURES.map((kind) => pictureList(paths, shown, kind)),
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

/** One kind of picture of all episodes; empty if none has one. */
function pictureList(paths: RunPaths, { title, episodes }: ShownEpisodes, kind: PictureKind): Media {
  const there = episodes.flatMap((episode) => {
    const picture = pictureOf(paths, episode[kind]);
    return picture === null ? [] : [{ episode, picture }];
  });
  if (there.length === 0) return NO_MEDIA;
  const { width, height } = there[0].picture;
  const value = {
    _type: 'images/separated',
    ...{ width, height, format: 'png' },
    count: there.length,
    filenames: there.map(({ picture }) => mediaName(picture)),
    captions: there.map(({ episode }) => captionOf(episode)),
  };
  return { values: { [`${title}/${kind}`]: value }, files: there.map(({ picture }) => fileOf(picture)) };
}

function tableOf(paths: RunPaths, shown: ShownEpisodes): Media {
  const { title, iteration } = shown;
  const key = `${title}/table`;
  const { columns, rows } = episodeTable(paths, shown);
  // A cell names the file of its picture.
  const data = rows.map((row) => row.map((cell) => (isPicture(cell) ? mediaName(cell) : cell)));
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

function isPicture(cell: Cell): cell is ShownPicture {
  return typeof cell === 'object' && cell !== null;
}

function fileOf(picture: ShownPicture): MediaFile {
  return { name: mediaName(picture), read: picture.read };
}

/** Equal pictures have one name, and are uploaded once. */
function mediaName({ digest }: ShownPicture): string {
  return `media/images/${digest.slice(0, 20)}.png`;
}
