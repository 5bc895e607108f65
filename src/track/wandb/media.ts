/**
 * What W&B shows of a run's episodes: tables and lists of images, as files of the run, as artifacts, and as the values in its history that refer to
 * them.
 */
import { sha256 } from '../../core/image.js';
import type { RunPaths } from '../../run/paths.js';
import {
  captionOf,
  episodeTable,
  GONE,
  PICTURES,
  pictureOf,
  shownEpisodes,
  type Cell,
  type PictureKind,
  type ShownEpisodes,
  type ShownPicture,
} from '../shown_episodes.js';
import { artifactPaths, clientIdOf, tableFile, type TableArtifact } from './artifacts.js';
import type { MediaFile } from './upload_types.js';

export interface Media {
  /** The values for an iteration's row. */
  readonly values: Readonly<Record<string, unknown>>;
  readonly files: readonly MediaFile[];
  /** Its tables with their pictures. */
  readonly artifacts: readonly TableArtifact[];
}

export const NO_MEDIA: Media = { values: {}, files: [], artifacts: [] };

/**
 * What is shown of an iteration. Raises RunError for an invalid file of episodes.
 * @param most how many episodes of each kind.
 * @param owner what tells the run's artifacts from those of other runs.
 */
export function mediaOf(paths: RunPaths, iteration: number, most: number, owner: readonly string[]): Media {
  return mergeMedia(
    shownEpisodes(paths, iteration, most).flatMap((shown) => [
      tableOf(paths, shown, owner),
      ...PICTURES.map((kind) => pictureList(paths, shown, kind)),
    ]),
  );
}

function mergeMedia(all: readonly Media[]): Media {
  const files = new Map(all.flatMap((one) => one.files).map((file) => [file.name, file]));
  return {
    values: Object.assign({}, ...all.map(({ values }) => values)) as Media['values'],
    files: [...files.values()],
    artifacts: all.flatMap((one) => one.artifacts),
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
  return { values: { [`${title}/${kind}`]: value }, files: there.map(({ picture }) => fileOf(picture)), artifacts: [] };
}

function tableOf(paths: RunPaths, shown: ShownEpisodes, owner: readonly string[]): Media {
  const { title, iteration } = shown;
  const key = `${title}/table`;
  const { columns, rows } = episodeTable(paths, shown);
  // Only an artifact has pictures in its cells.
  const data = rows.map((row) => row.map((cell) => (isPicture(cell) ? mediaName(cell) : cell)));
  const bytes = Buffer.from(JSON.stringify({ columns, data }), 'utf8');
  const digest = sha256(bytes);
  const name = `media/table/${title}_${iteration}_${digest.slice(0, 20)}.table.json`;
  const clientId = clientIdOf([...owner, key, digest]);
  const value = {
    _type: 'table-file',
    path: name,
    sha256: digest,
    size: bytes.length,
    ncols: columns.length,
    nrows: rows.length,
    log_mode: 'IMMUTABLE',
    ...artifactPaths({ key, clientId }),
  };
  const table = { name: tableFile(key), read: () => Buffer.from(JSON.stringify(artifactTable(columns, rows)), 'utf8') };
  const pictures = new Map(
    rows
      .flat()
      .filter(isPicture)
      .map((picture) => [picture.digest, fileOf(picture)]),
  );
  return {
    values: { [key]: value },
    files: [{ name, read: () => bytes }],
    artifacts: [{ key, clientId, files: [table, ...pictures.values()] }],
  };
}

/** A table as the SDK writes it into an artifact, with the types of its columns. */
function artifactTable(columns: readonly string[], rows: readonly (readonly Cell[])[]): object {
  const types = Object.fromEntries(columns.map((column, i) => [column, typeOfColumn(rows.map((row) => row[i]))]));
  return {
    _type: 'table',
    column_types: { wb_type: 'typedDict', params: { type_map: types } },
    columns,
    data: rows.map((row) => row.map((cell) => (isPicture(cell) ? imageOf(cell) : cell === GONE ? null : cell))),
    log_mode: 'IMMUTABLE',
    ncols: columns.length,
    nrows: rows.length,
  };
}

const NONE = { wb_type: 'none' };
const constant = (val: unknown, is_set: boolean): object => ({ wb_type: 'const', params: { val, is_set } });
const IMAGE = {
  wb_type: 'image-file',
  params: {
    box_layers: constant({}, false),
    box_score_keys: constant([], true),
    mask_layers: constant({}, false),
    class_map: constant({}, false),
    box_class_maps: constant({}, false),
    mask_class_maps: constant({}, false),
  },
};

function typeOfColumn(cells: readonly Cell[]): object {
  const there = cells.filter((cell) => cell !== null && cell !== GONE);
  const kinds = [...new Set(there.map((cell) => (isPicture(cell) ? 'picture' : typeof cell)))].sort();
  const named = kinds.map((kind) => (kind === 'picture' ? IMAGE : { wb_type: kind }));
  return { wb_type: 'union', params: { allowed_types: [NONE, ...named] } };
}

function imageOf(picture: ShownPicture): object {
  const { digest, width, height } = picture;
  return { _type: 'image-file', format: 'png', path: mediaName(picture), sha256: digest, width, height };
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
