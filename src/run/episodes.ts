/** `episodes/NNNNNN.jsonl`: one line per episode of an iteration. `episodes/validation_NNNNNN.jsonl`: one per episode of a held-out evaluation. */
import { existsSync, readdirSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { z } from 'zod';
import { RunError } from '../core/errors.js';
import { diskError, makeFolder, writeFileAtomic } from '../core/files.js';
import { encodePng, sha256, type RgbImage } from '../core/images/image.js';
import type { Outcome } from '../rewards/score/types.js';
import { encodeLine, readLines } from './journal.js';
import { parseIterationName, type RunPaths } from './paths.js';

/** Writes all episodes of an iteration. The file appears complete or not at all. */
export function writeEpisodes(paths: RunPaths, iteration: number, episodes: readonly object[]): void {
  writeLines(paths.episodes(iteration), iteration, episodes);
}

/** The images of an episode as PNG files. Null if there is none. */
export interface EpisodeImages {
  readonly source: Uint8Array | null;
  readonly edited: Uint8Array | null;
  readonly truth: Uint8Array | null;
}

/** Stores the images and returns their names for an episode's line. */
export function storeImages(paths: RunPaths, { source, edited, truth }: EpisodeImages): object {
  const store = (png: Uint8Array | null): string | null => (png === null ? null : storePng(paths, png));
  return { source: store(source), edited: store(edited), truth: store(truth) };
}

/** Writes the episodes of a held-out evaluation after an iteration. */
export function writeHeldOutEpisodes(paths: RunPaths, iteration: number, episodes: readonly object[]): void {
  writeLines(paths.heldOutEpisodes(iteration), iteration, episodes);
}

function writeLines(path: string, iteration: number, episodes: readonly object[]): void {
  writeFileAtomic(path, episodes.map((episode) => `${encodeLine({ iteration, ...episode }).line}\n`).join(''));
}

/** Reads the episodes of an iteration. Null if they were not recorded. */
export function readEpisodes(paths: RunPaths, iteration: number): Record<string, unknown>[] | null {
  const path = paths.episodes(iteration);
  return existsSync(path) ? readLines(path) : null;
}

/** The fields of an episode's record that rescoring needs. */
export interface RecordedEpisode {
  readonly key: string;
  /** The sample's id in its dataset. */
  readonly sample: string;
  /** Index of the training dataset in the list, and of the sample in it. Absent if the key identifies the sample. */
  readonly place?: readonly [source: number, index: number];
  readonly instruction: string;
  readonly finished: boolean;
  /** The answer, if it is tokens. */
  readonly tokens?: readonly number[];
  /** The answer, if it is latents: float16 numbers in base64. */
  readonly latents?: string;
  /** SHA-256 of the hidden states from which a server rendered the image, if any. */
  readonly states?: string;
  /** SHA-256 of the hidden states of an empty instruction, if guidance used them. */
  readonly blank_states?: string;
  /** The text of the answer, if it has any. */
  readonly text?: string;
  /** The part of the text that rewards read, if it is not all of it. */
  readonly answer?: string;
  readonly outcome: Outcome;
  /** Names of images in media/. Null for an answer that is not an image, undefined if images were not kept. */
  readonly source?: string | null;
  readonly edited?: string | null;
  /** Number of input images in addition to the edited one. Absent for none. */
  readonly beside?: number;
}

/** The field of a line that identifies the sample. Empty for null. */
export function placeRecord(place: { readonly source: number; readonly index: number } | null): object {
  return place === null ? {} : { place: [place.source, place.index] };
}

const imageName = z
  .string()
  .regex(/^[0-9a-f]{64}$/)
  .nullable()
  .optional();
const numbers = z.record(z.string(), z.number());
const episode = z.object({
  key: z.string(),
  sample: z.string(),
  place: z.tuple([z.int().min(0), z.int().min(0)]).optional(),
  instruction: z.string(),
  finished: z.boolean(),
  tokens: z.array(z.int().min(0)).optional(),
  latents: z.base64().optional(),
  states: z.string().optional(),
  blank_states: z.string().optional(),
  text: z.string().optional(),
  answer: z.string().optional(),
  outcome: z.discriminatedUnion('kind', [
    z.looseObject({ kind: z.literal('scored'), value: z.number(), normalised: z.number(), parts: numbers }),
    z.looseObject({ kind: z.literal('zero_by_rule'), reason: z.string(), parts: numbers }),
    z.looseObject({ kind: z.literal('unscored'), reason: z.string(), detail: z.string(), parts: numbers }),
  ]),
  source: imageName,
  edited: imageName,
  beside: z.int().min(1).optional(),
});

/** A file of recorded episodes. */
export interface EpisodeFile {
  readonly iteration: number;
  readonly heldOut: boolean;
  readonly path: string;
}

/** A run's episode files: training first, each kind in the order of iterations. */
export function listEpisodeFiles(paths: RunPaths): EpisodeFile[] {
  if (!existsSync(paths.episodesDir)) return [];
  const files = readdirSync(paths.episodesDir).flatMap((name): EpisodeFile[] => {
    const [, validation, digits] = /^(validation_)?(\d+)\.jsonl$/.exec(name) ?? [];
    const iteration = parseIterationName(digits ?? '');
    if (iteration === null) return [];
    const heldOut = validation !== undefined;
    return [{ iteration, heldOut, path: heldOut ? paths.heldOutEpisodes(iteration) : paths.episodes(iteration) }];
  });
  return files.sort((a, b) => Number(a.heldOut) - Number(b.heldOut) || a.iteration - b.iteration);
}

/** Reads a file of episodes. Raises RunError for an invalid line. */
export function readRecordedEpisodes(path: string): RecordedEpisode[] {
  return readLines(path).map((line, index) => {
    const parsed = episode.safeParse(line);
    if (parsed.success) return parsed.data as RecordedEpisode;
    const [{ path: field, message }] = parsed.error.issues;
    throw new RunError(`invalid episode: ${field.join('.')}: ${message}`, {
      where: `${path}:${index + 1}`,
      next: 'Another version of editrl wrote this file, or it was edited.',
    });
  });
}

export interface HeldOutKeyParts {
  readonly iteration: number;
  /** The validation set's name, which may contain slashes. */
  readonly set: string;
  /** The sampling mode, such as `sampled` or `greedy`. */
  readonly sampling: string;
  /** Index of the prompt within its set. */
  readonly prompt: number;
}

export function heldOutKey({ iteration, set, sampling, prompt }: HeldOutKeyParts): string {
  return `validation/${iteration}/${set}/${sampling}/${prompt}`;
}

const FORM = /^validation\/(\d+)\/(.+)\/([^/]+)\/(\d+)$/;

/** Parses the key of a held-out episode. Null for any other key. */
export function parseHeldOutKey(key: unknown): HeldOutKeyParts | null {
  const found = typeof key === 'string' ? FORM.exec(key) : null;
  if (found === null) return null;
  const [, iteration, set, sampling, prompt] = found;
  return { iteration: Number(iteration), set, sampling, prompt: Number(prompt) };
}

/** Stores an image as PNG and returns the SHA-256 of the file, which is its name. Raises RunError for a disk error. */
export async function storeImage(paths: RunPaths, image: RgbImage): Promise<string> {
  return storePng(paths, await encodePng(image));
}

/** Stores a finished PNG file and returns its name. */
export function storePng(paths: RunPaths, png: Uint8Array): string {
  const name = sha256(png);
  const path = paths.media(name);
  // Compares the size, because a file may be empty after a power failure.
  if (statSync(path, { throwIfNoEntry: false })?.size === png.length) return name;
  const temporary = `${path}.${process.pid}.tmp`;
  try {
    makeFolder(paths.mediaDir);
    writeFileSync(temporary, png);
    renameSync(temporary, path);
  } catch (cause) {
    rmSync(temporary, { force: true });
    throw diskError(path, cause);
  }
  return name;
}
