/** Reads recorded episodes for the page. Records of another version are shown as far as possible. */
import { statSync } from 'node:fs';
import { RunError } from '../core/errors.js';
import { scanLines } from '../core/log.js';
import { readPlain } from '../core/plain_file.js';
import { badRequest, Refusal } from '../core/http/refusal.js';
import type { Reply } from '../core/http/body.js';
import { judgementForm } from '../rewards/score/types.js';
import { listEpisodeFiles, type EpisodeFile } from '../run/episodes.js';
import { decodeNumber } from '../run/journal.js';
import type { RunPaths } from '../run/paths.js';
import { GUARD_HEADERS } from './page_files.js';
import type { WireEpisode, WireEpisodeFile, WireEpisodes, WireJudgement, WireOutcomeKind } from './wire.js';

export const ORDERS = ['as_recorded', 'best', 'worst', 'advantage', 'disadvantage'] as const;
export type EpisodeOrder = (typeof ORDERS)[number];

export interface EpisodesRequest {
  /** Null for the latest file of this kind, or of the other kind if there is none. */
  readonly iteration: number | null;
  readonly heldOut: boolean;
  readonly outcome: WireOutcomeKind | null;
  /** Text that the instruction or the answer must contain. */
  readonly words: string;
  readonly order: EpisodeOrder;
  readonly offset: number;
  readonly limit: number;
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

/** Whether the run has recorded judgements. */
function isJudged({ judgements }: RunPaths): boolean {
  // A run without a judge has an empty file.
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
  throw new Refusal('not_found', `No ${heldOut ? 'held-out ' : ''}episodes are recorded for iteration ${iteration}.`);
}

function matches(episode: WireEpisode, { outcome, words }: EpisodesRequest): boolean {
  if (outcome !== null && episode.outcome !== outcome) return false;
  const wanted = words.toLowerCase();
  return [episode.instruction, episode.text ?? '', episode.key].some((text) => text.toLowerCase().includes(wanted));
}

type Compare = (a: WireEpisode, b: WireEpisode) => number;

const orders: Readonly<Record<EpisodeOrder, Compare | null>> = {
  as_recorded: null,
  best: (a, b) => compareNumbers(b.score, a.score, -Infinity),
  worst: (a, b) => compareNumbers(a.score, b.score, Infinity),
  advantage: (a, b) => compareNumbers(b.advantage, a.advantage, -Infinity),
  disadvantage: (a, b) => compareNumbers(a.advantage, b.advantage, Infinity),
};

/** Missing values go last. */
function compareNumbers(a: number | null, b: number | null, missing: number): number {
  const [x, y] = [a ?? missing, b ?? missing];
  return x === y ? 0 : x - y;
}

function sortEpisodes(episodes: WireEpisode[], order: EpisodeOrder): WireEpisode[] {
  const compare = orders[order];
  return compare === null ? episodes : episodes.sort(compare);
}

/** The episodes of a file and the number of invalid lines. Empty if the file was just removed. */
function readEpisodeFile(path: string): { episodes: WireEpisode[]; wrong: number } {
  const episodes: WireEpisode[] = [];
  let wrong = 0;
  const torn = scanLines(path, (line) => {
    if (line === '') return;
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

/** A whole number from a query. Raises Refusal 400. */
export function integerParameter(query: URLSearchParams, name: string, otherwise: number, most: number): number {
  const text = query.get(name);
  if (text === null) return otherwise;
  const value = Number(text);
  if (/^\d+$/.test(text) && value <= most) return value;
  throw badRequest(`${name} is '${text.slice(0, 50)}'; allowed: a whole number from 0 to ${most}.`, name);
}

/** One of the given words. Null if the parameter is absent. */
function choiceParameter<W extends string>(query: URLSearchParams, name: string, words: readonly W[]): W | null {
  const text = query.get(name);
  if (text === null || text === '') return null;
  const found = words.find((word) => word === text);
  if (found !== undefined) return found;
  throw badRequest(`${name} is '${text.slice(0, 50)}'; allowed: ${words.join(', ')}.`, name);
}

const OUTCOMES: readonly WireOutcomeKind[] = ['scored', 'zero_by_rule', 'unscored'];
const MAX_EPISODES = 200;

export function episodesRequest(query: URLSearchParams): EpisodesRequest {
  return {
    iteration: query.get('iteration') === null ? null : integerParameter(query, 'iteration', 0, 1e12),
    heldOut: query.get('held_out') === 'true',
    outcome: choiceParameter(query, 'outcome', OUTCOMES),
    words: query.get('words') ?? '',
    order: choiceParameter(query, 'order', ORDERS) ?? 'as_recorded',
    offset: integerParameter(query, 'offset', 0, 1e9),
    limit: integerParameter(query, 'limit', 24, MAX_EPISODES),
  };
}

/** The judge's latest answer to every question about an episode. */
export function judgementsOf(paths: RunPaths, episodeKey: string): WireJudgement[] {
  const start = `{"key":${JSON.stringify(`${episodeKey}/`).slice(0, -1)}`;
  const found = new Map<string, WireJudgement>();
  scanLines(paths.judgements, (line) => {
    const judgement = line.startsWith(start) ? judgementOfLine(line) : null;
    if (judgement === null) return;
    const question = judgement.question.slice(episodeKey.length + 1);
    found.set(question, { ...judgement, question });
  });
  return [...found.values()];
}

/** Null for a line that is not a judgement. */
function judgementOfLine(line: string): WireJudgement | null {
  try {
    const { key, model, text, problem, scores, attempts, latencyMs } = judgementForm.read(line);
    return { question: key, model, text, problem, scores, attempts, latency_ms: latencyMs };
  } catch (error) {
    if (error instanceof SyntaxError) return null;
    throw error;
  }
}

const PNG = Buffer.from('89504e470d0a1a0a', 'hex');
const CONTACT_SHEET = 'contact_sheet';

/**
 * The image with this name: a file in media/, which never changes, or the contact sheet. Raises Refusal 404 for a missing file, and for a file that is
 * not a PNG, because other content must not be served.
 */
export function imageReply(paths: RunPaths, name: string): Reply {
  const sheet = name === CONTACT_SHEET;
  if (!sheet && !/^[0-9a-f]{64}$/.test(name)) throw new Refusal('not_found', 'No image has this name.');
  const body = readPng(sheet ? paths.contactSheet : paths.media(name));
  if (body === null) throw new Refusal('not_found', 'The image is missing or not a PNG file.');
  const kept = sheet ? 'no-store' : 'private, max-age=31536000, immutable';
  return { status: 200, type: 'image/png', body, headers: { ...GUARD_HEADERS, 'cache-control': kept } };
}

function readPng(path: string): Buffer | null {
  try {
    const bytes = readPlain(path);
    return bytes !== null && bytes.subarray(0, PNG.length).equals(PNG) ? bytes : null;
  } catch (error) {
    if (error instanceof RunError) return null;
    throw error;
  }
}
