/**
 * Episodes for tracking pages: some of each iteration that keeps images and of each held-out evaluation, as a table
 * with images.
 */
import { closeSync, existsSync, readSync } from 'node:fs';
import { openPlain, readPlain } from '../../core/plain_file.js';
import { printable } from '../../core/errors.js';
import { withLog } from '../../core/log.js';
import { parseHeldOutKey } from '../episodes.js';
import { readLines } from '../journal.js';
import type { RunPaths } from '../paths.js';

/** Longer texts are cut. The run directory has the whole text. */
const MAX_TEXT = 2000;
const MAX_CAPTION = 300;

/** The kinds of images that an episode may have. */
export const IMAGE_KINDS = ['source', 'edited', 'truth'] as const;
export type ImageKind = (typeof IMAGE_KINDS)[number];

export type Episode = Readonly<Record<string, unknown>>;

/** Episodes of one kind and iteration. */
export interface ShownEpisodes {
  readonly title: 'episodes' | 'validation';
  readonly iteration: number;
  /** At least one. */
  readonly episodes: readonly Episode[];
}

/** An image in `media/`. */
export interface ShownImage {
  /** SHA-256 of its file. */
  readonly digest: string;
  readonly width: number;
  readonly height: number;
  /** Reads its PNG file. Null if it no longer exists. */
  readonly read: () => Uint8Array | null;
}

export type Cell = string | number | null | ShownImage;

/** Replaces an image that an episode names but that no longer exists. */
export const GONE = 'image not available';

/**
 * Episodes of an iteration: the training episodes if their images were kept, and the held-out evaluation, at most
 * `most` of each. Raises RunError for an invalid file of episodes.
 */
export function shownEpisodes(paths: RunPaths, iteration: number, most: number): ShownEpisodes[] {
  if (most === 0) return [];
  const training = keepsImages(paths.episodes(iteration)) ? spread(paths.episodes(iteration), most) : [];
  const heldOut = spread(paths.heldOutEpisodes(iteration), most);
  const all = [
    { title: 'episodes', iteration, episodes: training },
    { title: 'validation', iteration, episodes: heldOut },
  ] as const;
  return all.filter(({ episodes }) => episodes.length > 0);
}

/**
 * Whether the first episode of a file names an image. Most iterations keep no images, and their files are then not
 * read.
 */
function keepsImages(path: string): boolean {
  const [first] = withLog(path, [], (log) => log.piece(0, 1));
  return first !== undefined && IMAGE_KINDS.some((kind) => first.text.includes(`"${kind}":`));
}

/** At most `most` episodes, evenly spread over a file. Empty without a file. */
function spread(path: string, most: number): Episode[] {
  if (!existsSync(path)) return [];
  const all = readLines(path);
  const shown = Math.min(most, all.length);
  return Array.from({ length: shown }, (_, i) => all[Math.floor((i * all.length) / shown)]);
}

/** Columns, and one row per episode. Leaves out reward parts, labels and images if no episode has them. */
export function episodeTable(
  paths: RunPaths,
  { iteration, episodes }: ShownEpisodes,
): { readonly columns: readonly string[]; readonly rows: readonly (readonly Cell[])[] } {
  const parts = [...new Set(episodes.flatMap((episode) => Object.keys(partsOf(episode))))];
  const kinds = IMAGE_KINDS.filter((kind) => episodes.some((episode) => typeof episode[kind] === 'string'));
  const isLabeled = episodes.some(({ expected }) => typeof expected === 'string');
  const columns: Readonly<Record<string, (episode: Episode) => Cell>> = {
    iteration: () => iteration,
    sample: ({ sample }) => words(sample),
    sampling: ({ key }) => parseHeldOutKey(key)?.sampling ?? 'sampled',
    instruction: ({ instruction }) => words(instruction),
    answer: ({ answer, text }) => words(answer ?? text),
    ...(isLabeled ? { expected: ({ expected }: Episode) => words(expected) } : {}),
    outcome: (episode) => {
      const { kind, reason } = outcomeOf(episode);
      return kind === 'scored' ? 'scored' : `${words(kind)}: ${words(reason)}`;
    },
    reward: (episode) => {
      const { kind, value } = outcomeOf(episode);
      return number(kind === 'zero_by_rule' ? 0 : value);
    },
    advantage: ({ advantage }) => number(advantage),
    ...Object.fromEntries(parts.map((part) => [part, (episode: Episode) => number(partsOf(episode)[part])])),
    ...Object.fromEntries(
      kinds.map((kind) => [
        kind,
        (episode: Episode) => (typeof episode[kind] === 'string' ? (imageOf(paths, episode[kind]) ?? GONE) : null),
      ]),
    ),
  };
  return {
    columns: Object.keys(columns),
    rows: episodes.map((episode) => Object.values(columns).map((cell) => cell(episode))),
  };
}

/** Null unless `digest` names an existing PNG. Nothing else may become a path. */
export function imageOf(paths: RunPaths, digest: unknown): ShownImage | null {
  if (typeof digest !== 'string' || !/^[0-9a-f]{64}$/.test(digest)) return null;
  const path = paths.media(digest);
  const size = sizeOfPng(path);
  return size === null ? null : { digest, ...size, read: () => readPlain(path) };
}

/** The caption of an image: outcome and instruction. */
export function captionOf(episode: Episode): string {
  const { kind, value } = outcomeOf(episode);
  const score = kind === 'scored' && typeof value === 'number' ? value.toFixed(2) : words(kind);
  return `${score}  ${words(episode['instruction']) ?? ''}`.slice(0, MAX_CAPTION);
}

/** The size in its header. Null if it is missing or not a PNG. */
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
  return text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}…` : text;
}

function number(value: unknown): number | string | null {
  return typeof value === 'number' || typeof value === 'string' ? value : null;
}
