/** What W&B shows of a run's episodes: a table and lists of images, as files of the run and as the values in its history that refer to them. */
import { closeSync, existsSync, readSync } from 'node:fs';
import { openPlain, readPlain } from '../../core/plain_file.js';
import { printable } from '../../core/errors.js';
import { sha256 } from '../../core/image.js';
import { withLog } from '../../core/log/reader.js';
import { readLines } from '../../run/journal.js';
import type { RunPaths } from '../../run/paths.js';

/** A file to upload, and its content; null if it is gone. */
export interface MediaFile {
  readonly name: string;
  readonly read: () => Uint8Array | null;
}

export interface Media {
  /** The values for an iteration's row. */
  readonly values: Readonly<Record<string, unknown>>;
  readonly files: readonly MediaFile[];
}

export const NO_MEDIA: Media = { values: {}, files: [] };

/** Longer texts are cut: a table is for looking at, and the run directory has the whole text. */
const LONGEST_TEXT = 2000;
const LONGEST_CAPTION = 300;
const PICTURES = ['source', 'edited', 'truth'] as const;
type Picture = (typeof PICTURES)[number];

type Episode = Readonly<Record<string, unknown>>;

/**
 * What is shown of an iteration: its episodes if their images were kept, and its held-out evaluation. Raises RunError for an invalid file of
 * episodes.
 */
export function mediaOf(paths: RunPaths, iteration: number, most: number): Media {
  if (most === 0) return NO_MEDIA;
  const training = keepsPictures(paths.episodes(iteration)) ? shownOf(paths.episodes(iteration), most) : [];
  const heldOut = shownOf(paths.heldOutEpisodes(iteration), most);
  return joined([
    training.length > 0 ? show(paths, 'episodes', iteration, training) : NO_MEDIA,
    heldOut.length > 0 ? show(paths, 'validation', iteration, heldOut) : NO_MEDIA,
  ]);
}

/** Whether the first episode of a file names a picture: most iterations keep none, and their files are not read. */
function keepsPictures(path: string): boolean {
  const [first] = withLog(path, [], (log) => log.piece(0, 1));
  return first !== undefined && PICTURES.some((kind) => first.text.includes(`"${kind}":`));
}

/** At most `most` episodes of a file, spread over it; none if there is no file. */
function shownOf(path: string, most: number): Episode[] {
  if (!existsSync(path)) return [];
  const all = readLines(path);
  const shown = Math.min(most, all.length);
  return Array.from({ length: shown }, (_, i) => all[Math.floor((i * all.length) / shown)]);
}

function show(paths: RunPaths, title: string, iteration: number, episodes: readonly Episode[]): Media {
  const pictures = PICTURES.map((kind) => pictureList(paths, title, kind, episodes));
  return joined([tableOf(paths, title, iteration, episodes), ...pictures]);
}

function joined(all: readonly Media[]): Media {
  const files = new Map(all.flatMap((one) => one.files).map((file) => [file.name, file]));
  return {
    values: Object.assign({}, ...all.map(({ values }) => values)) as Media['values'],
    files: [...files.values()],
  };
}

/** One kind of picture of all episodes; empty if none has one. */
function pictureList(paths: RunPaths, title: string, kind: Picture, episodes: readonly Episode[]): Media {
  const there = episodes.flatMap((episode) => {
    const path = pathOf(paths, episode[kind]);
    const size = path === null ? null : sizeOfPng(path);
    return path === null || size === null ? [] : [{ episode, path, size, name: mediaName(episode[kind]) }];
  });
  if (there.length === 0) return NO_MEDIA;
  const value = {
    _type: 'images/separated',
    ...there[0].size,
    format: 'png',
    count: there.length,
    filenames: there.map(({ name }) => name),
    captions: there.map(({ episode }) => captionOf(episode)),
  };
  const files = there.map(({ name, path }) => ({ name, read: () => readPlain(path) }));
  return { values: { [`${title}/${kind}`]: value }, files };
}

function tableOf(paths: RunPaths, title: string, iteration: number, episodes: readonly Episode[]): Media {
  const parts = [...new Set(episodes.flatMap((episode) => Object.keys(partsOf(episode))))];
  const pictures = PICTURES.filter((kind) => episodes.some((episode) => typeof episode[kind] === 'string'));
  const columns = [
    'iteration',
    'sample',
    'instruction',
    'answer',
    'outcome',
    'reward',
    'advantage',
    ...parts,
    ...pictures,
  ];
  const data = episodes.map((episode) => {
    const { kind, value, reason } = outcomeOf(episode);
    const scores = partsOf(episode);
    return [
      iteration,
      words(episode['sample']),
      words(episode['instruction']),
      words(episode['answer'] ?? episode['text']),
      kind === 'scored' ? 'scored' : `${words(kind)}: ${words(reason)}`,
      number(kind === 'zero_by_rule' ? 0 : value),
      number(episode['advantage']),
      ...parts.map((part) => number(scores[part])),
      ...pictures.map((each) => {
        if (typeof episode[each] !== 'string') return null;
        const path = pathOf(paths, episode[each]);
        return path !== null && existsSync(path) ? mediaName(episode[each]) : 'the image is gone';
      }),
    ];
  });
  const bytes = Buffer.from(JSON.stringify({ columns, data }), 'utf8');
  const digest = sha256(bytes);
  const name = `media/table/${title}_${iteration}_${digest.slice(0, 20)}.table.json`;
  const value = {
    _type: 'table-file',
    path: name,
    sha256: digest,
    size: bytes.length,
    ncols: columns.length,
    nrows: data.length,
    log_mode: 'IMMUTABLE',
  };
  return { values: { [`${title}/table`]: value }, files: [{ name, read: () => bytes }] };
}

/** Equal pictures have one name, and are uploaded once. */
function mediaName(digest: unknown): string {
  return `media/images/${String(digest).slice(0, 20)}.png`;
}

/** Null for anything that is not a picture's name: nothing else may become a path. */
function pathOf(paths: RunPaths, digest: unknown): string | null {
  return typeof digest === 'string' && /^[0-9a-f]{64}$/.test(digest) ? paths.media(digest) : null;
}

/** The size in its header; null if it is gone or not a PNG. */
function sizeOfPng(path: string): { readonly width: number; readonly height: number } | null {
  const file = openPlain(path);
  if (file === null) return null;
  const header = Buffer.alloc(24);
  try {
    if (readSync(file, header, 0, 24, 0) < 24 || header.toString('latin1', 1, 4) !== 'PNG') return null;
  } finally {
    closeSync(file);
  }
  return { width: header.readUInt32BE(16), height: header.readUInt32BE(20) };
}

function captionOf(episode: Episode): string {
  const { kind, value } = outcomeOf(episode);
  const score = kind === 'scored' && typeof value === 'number' ? value.toFixed(2) : words(kind);
  return `${score}  ${words(episode['instruction']) ?? ''}`.slice(0, LONGEST_CAPTION);
}

function outcomeOf({ outcome }: Episode): Readonly<Record<string, unknown>> {
  return typeof outcome === 'object' && outcome !== null ? (outcome as Record<string, unknown>) : {};
}

function partsOf(episode: Episode): Readonly<Record<string, unknown>> {
  const { parts } = outcomeOf(episode);
  return typeof parts === 'object' && parts !== null ? (parts as Record<string, unknown>) : {};
}

function words(value: unknown): string | null {
  if (value === undefined || value === null) return null;
  const text = printable(typeof value === 'string' ? value : JSON.stringify(value));
  return text.length > LONGEST_TEXT ? `${text.slice(0, LONGEST_TEXT)}…` : text;
}

function number(value: unknown): number | string | null {
  return typeof value === 'number' || typeof value === 'string' ? value : null;
}
