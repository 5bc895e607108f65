/** Recorded episodes for people: filtered, or of one prompt over iterations. Records of another version are shown as far as they are understood. */
import { statSync } from 'node:fs';
import { LRUCache } from 'lru-cache';
import { scanLines } from '../core/log/reader.js';
import { Refusal } from '../http/refusal.js';
import { listEpisodeFiles, type EpisodeFile } from '../run/episodes.js';
import { decodeNumber } from '../run/journal.js';
import type { RunPaths } from '../run/paths.js';
import { Slices } from './runs_index.js';
import type { WireEpisode, WireEpisodeFile, WireEpisodes, WireOutcomeKind, WirePrompt } from './wire.js';

export const ORDERS = ['as_recorded', 'best', 'worst', 'advantage', 'disadvantage'] as const;
export type EpisodeOrder = (typeof ORDERS)[number];

export interface EpisodesRequest {
  /** Null for the last file of this kind, or of the other kind if there is none. */
  readonly iteration: number | null;
  readonly heldOut: boolean;
  readonly outcome: WireOutcomeKind | null;
  /** Text that the instruction or the answer has to contain. */
  readonly words: string;
  readonly score: Bounds;
  readonly advantage: Bounds;
  readonly order: EpisodeOrder;
  readonly offset: number;
  readonly limit: number;
}

/** Both included; null for no bound. */
export interface Bounds {
  readonly least: number | null;
  readonly most: number | null;
}

/** Raises Refusal 404 for an iteration that was not recorded. */
export function episodesOf(paths: RunPaths, request: EpisodesRequest): WireEpisodes {
  const files = listEpisodeFiles(paths);
  const shown = chosen(files, request);
  const { episodes, wrong } = shown === null ? { episodes: [], wrong: 0 } : readEpisodeFile(shown.path);
  const matching = sortEpisodes(
    episodes.filter((episode) => matches(episode, request)),
    request.order,
  );
  return {
    judged: isJudged(paths),
    files: files.map(wireFile),
    shown: shown === null ? null : wireFile(shown),
    total: episodes.length,
    matching: matching.length,
    offset: request.offset,
    episodes: matching.slice(request.offset, request.offset + request.limit),
    wrong_lines: wrong,
  };
}

/** Whether answers of a judge are kept for the run. */
function isJudged({ judgements }: RunPaths): boolean {
  // A run that asks no judge has an empty file.
  return (statSync(judgements, { throwIfNoEntry: false })?.size ?? 0) > 0;
}

function wireFile({ iteration, heldOut }: EpisodeFile): WireEpisodeFile {
  return { iteration, held_out: heldOut };
}

function chosen(files: readonly EpisodeFile[], { iteration, heldOut }: EpisodesRequest): EpisodeFile | null {
  const ofKind = files.filter((file) => file.heldOut === heldOut);
  if (iteration === null) return ofKind.at(-1) ?? files.at(-1) ?? null;
  const found = ofKind.find((file) => file.iteration === iteration);
  if (found !== undefined) return found;
  throw new Refusal('not_found', `No ${heldOut ? 'held-out ' : ''}episodes of iteration ${iteration} are recorded.`);
}

function matches(episode: WireEpisode, { outcome, words, score, advantage }: EpisodesRequest): boolean {
  if (outcome !== null && episode.outcome !== outcome) return false;
  if (!isWithin(episode.score, score) || !isWithin(episode.advantage, advantage)) return false;
  const wanted = words.toLowerCase();
  return [episode.instruction, episode.text ?? '', episode.key].some((text) => text.toLowerCase().includes(wanted));
}

function isWithin(value: number | null, { least, most }: Bounds): boolean {
  if (least === null && most === null) return true;
  return value !== null && value >= (least ?? -Infinity) && value <= (most ?? Infinity);
}

type Compare = (a: WireEpisode, b: WireEpisode) => number;

const orders: Readonly<Record<EpisodeOrder, Compare | null>> = {
  as_recorded: null,
  best: (a, b) => compareNumbers(b.score, a.score, -Infinity),
  worst: (a, b) => compareNumbers(a.score, b.score, Infinity),
  advantage: (a, b) => compareNumbers(b.advantage, a.advantage, -Infinity),
  disadvantage: (a, b) => compareNumbers(a.advantage, b.advantage, Infinity),
};

/** Values without a number go last. */
function compareNumbers(a: number | null, b: number | null, missing: number): number {
  const [x, y] = [a ?? missing, b ?? missing];
  return x === y ? 0 : x - y;
}

function sortEpisodes(episodes: WireEpisode[], order: EpisodeOrder): WireEpisode[] {
  const compare = orders[order];
  return compare === null ? episodes : episodes.sort(compare);
}

/** The episodes of a file, and how many of its lines are invalid; empty if it has just been removed. */
function readEpisodeFile(
  path: string,
  only: (line: string) => boolean = () => true,
): { episodes: WireEpisode[]; wrong: number } {
  const episodes: WireEpisode[] = [];
  let wrong = 0;
  const torn = scanLines(path, (line) => {
    if (line === '' || !only(line)) return;
    const episode = episodeOf(line);
    if (episode === null) wrong++;
    else episodes.push(episode);
  });
  return { episodes, wrong: torn > 0 ? wrong + 1 : wrong };
}

const OUTCOME_KINDS: ReadonlySet<string> = new Set<WireOutcomeKind>(['scored', 'zero_by_rule', 'unscored']);
const IMAGE = /^[0-9a-f]{64}$/;

/** Null for a line that is not an episode. */
function episodeOf(line: string): WireEpisode | null {
  let found: Readonly<Record<string, unknown>> | null;
  try {
    found = objectOf(JSON.parse(line));
  } catch {
    return null;
  }
  const outcome = objectOf(found?.['outcome']);
  const kind = outcome?.['kind'];
  if (found === null || outcome === null || typeof kind !== 'string' || !OUTCOME_KINDS.has(kind)) return null;
  const { key, sample, instruction } = found;
  if (typeof key !== 'string' || typeof sample !== 'string' || typeof instruction !== 'string') return null;
  const reasons = ['reason', 'detail'].flatMap((name) => wordsOf(outcome[name]) ?? []);
  return {
    key,
    sample,
    instruction,
    outcome: kind as WireOutcomeKind,
    score: kind === 'scored' ? finite(outcome['value']) : kind === 'zero_by_rule' ? 0 : null,
    advantage: finite(found['advantage']),
    reason: reasons.length === 0 ? null : reasons.join(': '),
    parts: Object.fromEntries(
      Object.entries(objectOf(outcome['parts']) ?? {}).map(([name, value]) => [name, finite(value)]),
    ),
    finished: found['finished'] !== false,
    thought: wordsOf(found['thought']),
    text: wordsOf(found['text']),
    expected: wordsOf(found['expected']),
    source: imageOf(found['source']),
    edited: imageOf(found['edited']),
    truth: imageOf(found['truth']),
  };
}

function objectOf(value: unknown): Readonly<Record<string, unknown>> | null {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : null;
}

function wordsOf(value: unknown): string | null {
  return typeof value === 'string' && value !== '' ? value : null;
}

function imageOf(value: unknown): string | null {
  return typeof value === 'string' && IMAGE.test(value) ? value : null;
}

function finite(value: unknown): number | null {
  const number = decodeNumber(value);
  return number !== null && Number.isFinite(number) ? number : null;
}

const SLICE_MS = 15;
/** Number of files whose samples are cached. */
const REMEMBERED_FILES = 20_000;
/** Only this many iterations of a prompt are shown, the latest. */
const MOST_ITERATIONS = 60;

/** Which files contain which samples; a file with the same time and size has not changed. */
export class PromptIndex {
  readonly #samples = new LRUCache<string, ReadonlySet<string>>({ max: REMEMBERED_FILES });

  /** The episodes of a prompt over all iterations; stops early if the client goes away. */
  async promptOf(paths: RunPaths, sample: string, instruction: string, gone: AbortSignal): Promise<WirePrompt> {
    const slices = new Slices(SLICE_MS);
    const having: EpisodeFile[] = [];
    for (const file of listEpisodeFiles(paths)) {
      if (this.#samplesOf(file.path).has(sample)) having.push(file);
      if (slices.over) await slices.next();
      if (gone.aborted) break;
    }
    const latest = having.sort((a, b) => a.iteration - b.iteration).slice(-MOST_ITERATIONS);
    const mark = `"sample":${JSON.stringify(sample)}`;
    const iterations = latest.map((file) => ({
      iteration: file.iteration,
      held_out: file.heldOut,
      episodes: readEpisodeFile(file.path, (line) => line.includes(mark)).episodes.filter(
        (episode) => episode.sample === sample && episode.instruction === instruction,
      ),
    }));
    return {
      judged: isJudged(paths),
      sample,
      instruction,
      iterations: iterations.filter(({ episodes }) => episodes.length > 0),
    };
  }

  #samplesOf(path: string): ReadonlySet<string> {
    const found = statSync(path, { throwIfNoEntry: false });
    const key = `${path} ${found?.ino} ${found?.size} ${found?.mtimeMs}`;
    const known = this.#samples.get(key);
    if (known !== undefined) return known;
    const samples = new Set<string>();
    scanLines(path, (line) => {
      for (const [, text] of line.matchAll(/"sample":("(?:[^"\\]|\\.)*")/g)) {
        const sample = text === undefined ? null : sampleOf(text);
        if (sample !== null) samples.add(sample);
      }
    });
    this.#samples.set(key, samples);
    return samples;
  }
}

/** Null for an invalid quoted text: a line that was written differently is left out, as elsewhere. */
function sampleOf(quoted: string): string | null {
  try {
    return JSON.parse(quoted) as string;
  } catch {
    return null;
  }
}
