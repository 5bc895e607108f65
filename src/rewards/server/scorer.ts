/** Scores the items of requests: every item by every term, each item separately. */
import { availableParallelism } from 'node:os';
import { DataError } from '../../core/errors.js';
import { type Clock, Deadline } from '../../core/clock.js';
import pLimit, { type LimitFunction } from 'p-limit';
import { Semaphore } from '../../core/semaphore.js';
import type { CombinedOutcome, CombinedReward } from '../score/combined.js';
import type { CanaryResult } from '../judge/client.js';
import type { JudgeItem, Outcome, UnscoredReason } from '../score/types.js';

import { toWire, type ReplyItem, type RequestItem } from './wire.js';
import { decodedBytes, readImage } from './images.js';
import type { HttpLimits } from '../../core/http/server.js';

export interface ServerLimits extends HttpLimits {
  /** Pixels of one image. */
  readonly pixels: number;
  /**
   * Bytes of the pixels that are decoded at once. Further items of accepted requests wait. Items so small that `concurrency` of them have
   * half as much come on top of it, and do not wait.
   */
  readonly decodedBytes: number;
  /** Requests to `/score` in flight. Further requests get 429. */
  readonly requests: number;
  /** Items scored at once. Further items of accepted requests wait. */
  readonly concurrency: number;
  /** The time limit for scoring one item, from the moment that it has a slot. */
  readonly scoreTimeoutMs: number;
  /** The time that the judge has to answer when `/health?judge` asks for it. Less than clients wait for that reply. */
  readonly judgeTimeoutMs: number;
}

export const defaultLimits: ServerLimits = {
  bodyBytes: 32 * 1024 * 1024,
  heldBytes: 256 * 1024 * 1024,
  pixels: 2048 * 2048,
  decodedBytes: 192 * 1024 * 1024,
  requests: 256,
  concurrency: 64,
  connections: 4096,
  headersTimeoutMs: 10_000,
  requestTimeoutMs: 60_000,
  bodyWindowMs: 20_000,
  scoreTimeoutMs: 600_000,
  judgeTimeoutMs: 8_000,
  drainTimeoutMs: 30_000,
  timeoutCheckMs: 1_000,
};

/** A reward, and an identity for its terms, weights and settings. */
export interface ServedReward extends Pick<CombinedReward, 'terms' | 'scoreTerms'> {
  readonly digest: string;
  /** Whether the judge of the terms answers. Absent if they ask none. */
  readonly canary?: (signal?: AbortSignal) => Promise<CanaryResult>;
}

/** Metrics of scoring. */
export interface ScorerEvents {
  readonly onItem: (scored: CombinedOutcome, seconds: number) => void;
  /** A term raised an unexpected error: a bug. The client gets no details. */
  readonly onDefect: (error: unknown) => void;
}

/** sharp uses libuv's threads, of which there are four. */
const SHARP_THREADS = 4;
/** Large items that are decoded at once: one processor, and one of sharp's threads, stays free for small items and for the requests themselves. */
const MAX_LARGE_DECODED = Math.max(1, Math.min(SHARP_THREADS, availableParallelism()) - 1);

type Limits = Pick<ServerLimits, 'concurrency' | 'pixels' | 'decodedBytes' | 'scoreTimeoutMs'>;

export class ItemScorer {
  readonly #slots: LimitFunction;
  /** Limits the pixels of large items, and how many are decoded at once. */
  readonly #pixels: Semaphore;
  readonly #decoding = pLimit(MAX_LARGE_DECODED);
  #unnamed = 0;

  constructor(
    readonly reward: ServedReward,
    readonly limits: Limits,
    readonly clock: Clock,
    readonly events: ScorerEvents,
  ) {
    this.#slots = pLimit(limits.concurrency);
    this.#pixels = new Semaphore(limits.decodedBytes);
  }

  /**
   * Resolves when there is room for the item, with its pending reply. The reply never rejects, whatever an item contains and whatever a term
   * does. A caller with many items starts them one after another, so that no one waits for all the items of a large request.
   */
  start(item: RequestItem, signal: AbortSignal): Promise<{ readonly reply: Promise<ReplyItem> }> {
    return new Promise((resolve, reject) => {
      const reply = this.#whenThereIsRoom(item, signal, () => resolve({ reply }));
      reply.catch(reject);
    });
  }

  /** The reply for an item that cannot be read. */
  refuse(key: string, detail: string): ReplyItem {
    const refused = this.#unscored('bad_request', detail);
    this.events.onItem(refused, 0);
    return toReply(key, refused);
  }

  /**
   * All images of an item at once, because an item that kept some and waited for the others would block all other items. Small items
   * wait for neither room nor a turn to decode. Those with a slot take half as much memory as the large items may, and little time.
   */
  async #whenThereIsRoom(item: RequestItem, signal: AbortSignal, onRoom: () => void): Promise<ReplyItem> {
    const { pixels, decodedBytes: room, concurrency } = this.limits;
    let bytes = 0;
    for (const text of [item.source, item.image, item.truth, item.mask]) {
      if (typeof text === 'string' && !signal.aborted) bytes += await decodedBytes(text, pixels);
    }
    const read = (): Promise<JudgeItem> => this.#judgeItem(item);
    const score = (readInTurn: typeof read): Promise<ReplyItem> =>
      this.#slots(() => {
        onRoom();
        return this.#scoreOne(item, readInTurn, signal);
      });
    if (bytes <= room / (2 * concurrency)) return score(read);
    return this.#pixels.run(() => score(() => this.#decoding(read)), bytes);
  }

  async #scoreOne(item: RequestItem, read: () => Promise<JudgeItem>, signal: AbortSignal): Promise<ReplyItem> {
    const started = this.clock.now();
    const scored = await this.#outcomes(read, signal);
    const sound = {
      outcome: finite(scored.outcome),
      terms: scored.terms.map((term) => ({ ...term, outcome: finite(term.outcome) })),
    };
    this.events.onItem(sound, (this.clock.now() - started) / 1000);
    return toReply(item.key ?? null, sound);
  }

  async #outcomes(read: () => Promise<JudgeItem>, signal: AbortSignal): Promise<CombinedOutcome> {
    if (signal.aborted) return this.#unscored('aborted', goneAway);
    const deadline = new Deadline(this.clock, this.limits.scoreTimeoutMs, signal);
    try {
      return await this.#bounded(await read(), deadline, signal);
    } catch (error) {
      if (error instanceof DataError) return this.#unscored('bad_request', messageOf(error));
      this.events.onDefect(error);
      return this.#unscored('server_error', 'a term failed; see the log of the server');
    } finally {
      deadline.dispose();
    }
  }

  async #judgeItem(item: RequestItem): Promise<JudgeItem> {
    const read = (text: string | null | undefined, field: string) =>
      text === null || text === undefined ? null : readImage(text, field, this.limits.pixels);
    // One after the other: decoding an item's images at once would occupy all of sharp's threads.
    const source = await read(item.source, 'source');
    const edited = await read(item.image, 'image');
    const truth = await read(item.truth, 'truth');
    const mask = await read(item.mask, 'mask');
    return {
      // Terms identify items by their keys, and two clients may use the same key.
      key: `request-${this.#unnamed++}`,
      instruction: item.instruction ?? item.prompt ?? '',
      source,
      edited,
      truth,
      ...(mask === null ? {} : { mask }),
      ...(item.answer === undefined ? {} : { answer: item.answer }),
      ...(item.expected === undefined ? {} : { expected: item.expected }),
      finished: item.finished ?? true,
    };
  }

  /** The reward's outcome, or a timeout: a term that ignores its signal blocks no one. */
  #bounded(item: JudgeItem, deadline: Deadline, signal: AbortSignal): Promise<CombinedOutcome> {
    const late = new Promise<CombinedOutcome>((resolve) => {
      deadline.onOver(() =>
        resolve(
          signal.aborted
            ? this.#unscored('aborted', goneAway)
            : this.#unscored('timeout', `not scored within ${this.limits.scoreTimeoutMs / 1000} s`),
        ),
      );
    });
    return Promise.race([this.reward.scoreTerms(item, deadline.signal), late]);
  }

  #unscored(reason: UnscoredReason, detail: string): CombinedOutcome {
    const outcome: Outcome = { kind: 'unscored', reason, detail, parts: {} };
    return { outcome, terms: this.reward.terms.map((term) => ({ ...term, outcome })) };
  }
}

function toReply(key: string | null, scored: CombinedOutcome): ReplyItem {
  return {
    key,
    outcome: toWire(scored.outcome),
    terms: Object.fromEntries(scored.terms.map(({ name, weight, outcome }) => [name, { weight, ...toWire(outcome) }])),
    ...clientScores(scored),
  };
}

const goneAway = 'the client disconnected';

function messageOf(error: DataError): string {
  return error.where === undefined ? error.message : `${error.where}: ${error.message}`;
}

/** JSON has no NaN. A value that is not a number, or is outside the scale, is not a score. */
function finite(outcome: Outcome): Outcome {
  if (outcome.kind !== 'scored') return outcome;
  const { value, normalised, parts } = outcome;
  const sound = Number.isFinite(value) && normalised >= 0 && normalised <= 1;
  if (sound && Object.values(parts).every(Number.isFinite)) return outcome;
  const detail = `value ${value}, normalised ${normalised}`;
  const sane = Object.fromEntries(Object.entries(parts).filter(([, part]) => Number.isFinite(part)));
  return { kind: 'unscored', reason: 'out_of_range', detail, parts: sane };
}

export interface ClientScores {
  readonly vlm_score?: number | null;
  readonly ocr_confidence?: number | null;
  readonly combined_score?: number | null;
}

/** The terms that give each number. The first that exists counts. */
const origins = {
  vlm_score: ['align_quality', 'logit_expectation', 'viescore', 'ground_score'],
  ocr_confidence: ['ocr_confidence', 'ocr'],
} as const;

/** The numbers of the existing terms: null if unscored, left out if no term gives them. */
export function clientScores({ outcome: whole, terms }: CombinedOutcome): ClientScores {
  const scores: Record<string, number | null> = {};
  for (const [name, places] of Object.entries(origins)) {
    const found = places.flatMap((place) => terms.find((given) => given.name === place) ?? []).at(0);
    if (found !== undefined) scores[name] = numberOf(found.outcome);
  }
  return Object.keys(scores).length === 0 ? {} : { ...scores, combined_score: numberOf(whole) };
}

const byRule = 0;

function numberOf(outcome: Outcome): number | null {
  if (outcome.kind === 'scored') return outcome.normalised;
  return outcome.kind === 'zero_by_rule' ? byRule : null;
}
