/** The judge behind an OpenAI-compatible server. Replays stored judgements, asks for the others, and stores them before it returns them. */
import pLimit, { type LimitFunction } from 'p-limit';
import { Deadline, systemClock, type Clock } from '../../core/clock.js';
import { checkedKey, noKey } from '../../core/http/key.js';
import type { Judgement, JudgementStore, ScoreOptions, UnscoredReason } from '../score/types.js';
import { firstRequest, hashPrompt, hashRequest, toChatRequest, type Variation } from './chat_request.js';
import {
  addTokens,
  cancelledReply,
  checkModel,
  isAlive,
  leaveOutAdvice,
  type ModelAlias,
  type Reply,
} from './completion.js';
import { dialectOf, type LeavableField, type RequestForm } from './dialect.js';
import { imagesShown, type Judge, type JudgeQuery } from './judge.js';
import { excerpt } from './parse.js';
import { canaryQuery } from './readiness.js';
import { defaultTransportPolicy, longestExchangeMs, Transport, type Sent, type TransportPolicy } from './transport.js';

export interface JudgeClientOptions {
  /** Base URLs of equal judges, see `resolveEndpoints`. */
  readonly endpoints: readonly string[];
  readonly model: string;
  readonly store: JudgementStore;
  /** vLLM without `--api-key` accepts any key. */
  readonly apiKey?: string;
  /** Fields that requests leave out. */
  readonly leaveOut?: readonly LeavableField[];
  /** Tokens of the model's context, if its servers report them. */
  readonly context?: number;
  /** Images of its largest question, those of one edit by default. */
  readonly shown?: number;
  /** Other names by which its servers may answer. */
  readonly alias?: ModelAlias;
  /** Requests in flight. */
  readonly concurrency?: number;
  /** Time limit of one question in a slot, over all its requests. By default it cuts none of them short. */
  readonly queryTimeoutMs?: number;
  /** Further requests for a question whose reply gave no scores. */
  readonly maxAskAgain?: number;
  readonly policy?: Partial<TransportPolicy>;
  readonly clock?: Clock;
  /** Uniform in [0, 1), for backoff jitter only. */
  readonly random?: () => number;
}

/** Whether a judge answers at all. `detail` is the reason if it does not. */
export type CanaryResult = { readonly ok: true } | { readonly ok: false; readonly detail: string };

interface PendingQuestion {
  readonly signal: AbortSignal | undefined;
  readonly askAgain: boolean;
  readonly judgement: Promise<Judgement>;
}

/** A reply as scores or a problem. */
interface Answer {
  readonly text: string;
  readonly scores: readonly (number | null)[];
  readonly problem: UnscoredReason | null;
  readonly detail: string;
  /** The request that may get scores. Null if none may. */
  readonly next: Variation | null;
}

/**
 * Factors for the token limit of a reply that was cut off. An answer that had begun gets twice the room, once, since a rambling answer does
 * not improve. Thoughts get four times the room, each time.
 */
const MORE_ROOM = { answer: 2, thoughts: 4 } as const;

/** The share of a context that a reply may take. The prompt with its images needs the rest. */
const REPLY_SHARE = 0.5;

export class JudgeClient implements Judge {
  readonly model: string;
  readonly #transport: Transport;
  readonly #clock: Clock;
  readonly #form: RequestForm;
  readonly #alias: ModelAlias;
  readonly #shown: number;
  /**
   * Questions in preparation or in flight. Twice the number of slots, so that a free slot waits for no hashing or encoding. A larger number
   * would delay the first question, because the images of all of them would be encoded at once.
   */
  readonly #ahead: LimitFunction;
  /** Requests in flight. */
  readonly #slots: LimitFunction;
  /** Encoding uses the thread pool that DNS look-ups share. It must not fill it. */
  readonly #encoding = pLimit(8);
  /** Terms that ask the same question about an item at the same time share its answer. */
  readonly #pending = new Map<string, PendingQuestion>();
  readonly #store: JudgementStore;
  readonly #queryTimeoutMs: number;
  readonly #maxAskAgain: number;
  #context: number;

  /** Raises ConfigError for a key that cannot be sent. */
  constructor(options: JudgeClientOptions) {
    const { concurrency = 64, maxAskAgain = 2 } = options;
    const policy = { ...defaultTransportPolicy, ...options.policy };
    this.model = options.model;
    this.#store = options.store;
    this.#ahead = pLimit(2 * concurrency);
    this.#slots = pLimit(concurrency);
    this.#maxAskAgain = maxAskAgain;
    this.#queryTimeoutMs = options.queryTimeoutMs ?? longestExchangeMs(policy, policy.maxAttempts + maxAskAgain);
    this.#form = { dialect: dialectOf(options.endpoints), leaveOut: options.leaveOut ?? [] };
    this.#context = options.context ?? Infinity;
    this.#alias = options.alias ?? false;
    this.#shown = options.shown ?? imagesShown.edit;
    this.#clock = options.clock ?? systemClock;
    this.#transport = new Transport({
      endpoints: options.endpoints,
      apiKey: checkedKey(options.apiKey, 'the API key of the judge') ?? noKey,
      // One more than there are slots, to check a judge that keeps all of them waiting.
      connections: concurrency + 1,
      policy,
      clock: this.#clock,
      random: options.random ?? Math.random,
    });
  }

  async ask(query: JudgeQuery, signal?: AbortSignal, { askAgain = false }: ScoreOptions = {}): Promise<Judgement> {
    return this.#ahead(() => {
      const requestHash = hashRequest(query, this.model, this.#form);
      const name = `${query.key} ${requestHash}`;
      const same = this.#pending.get(name);
      if (same?.signal === signal && same?.askAgain === askAgain) return same.judgement;
      const judgement = this.#judgement(query, requestHash, askAgain, signal);
      const question: PendingQuestion = { signal, askAgain, judgement };
      this.#pending.set(name, question);
      return judgement.finally(() => {
        if (this.#pending.get(name) === question) this.#pending.delete(name);
      });
    });
  }

  /** Sets the tokens of the model's context, if a listing reports them. */
  setContext(context: number | null): void {
    this.#context = context ?? Infinity;
  }

  /** One small question of the usual kind, outside the queue and without retries. A judge passes even if it only thinks. */
  async canary(signal?: AbortSignal): Promise<CanaryResult> {
    const deadline = new Deadline(this.#clock, this.#queryTimeoutMs, signal);
    const request = await toChatRequest(canaryQuery(this.#shown), this.model, this.#form);
    const reply = await this.#transport.probe(request, deadline).finally(() => deadline.dispose());
    const checked = checkModel(reply, this.model, this.#alias);
    return isAlive(checked) ? { ok: true } : { ok: false, detail: `${checked.problem}: ${checked.detail}` };
  }

  /** Closes the connections. The client must not be used afterwards. */
  close(): Promise<void> {
    return this.#transport.close();
  }

  async #judgement(
    query: JudgeQuery,
    requestHash: string,
    askAgain: boolean,
    signal: AbortSignal | undefined,
  ): Promise<Judgement> {
    const { key } = query;
    const stored = this.#store.find(key, requestHash);
    if (stored !== undefined && (stored.problem === null || !askAgain)) return stored;
    const { calls } = this.#store;
    if (calls?.begin() === false) {
      // This is not the judge's answer, so it is not stored.
      const detail = 'not asked: the limit of requests is reached';
      const nothing = { text: '', scores: [], attempts: 0, latencyMs: 0 };
      return { key, requestHash, model: this.model, problem: 'aborted', detail, ...nothing };
    }
    const judgement = await this.#exchange(query, requestHash, signal);
    // Do not store canceled requests.
    if (judgement.problem !== 'aborted') this.#store.put(judgement);
    calls?.end(judgement.attempts);
    return judgement;
  }

  async #exchange(query: JudgeQuery, requestHash: string, signal?: AbortSignal): Promise<Judgement> {
    let [tookMs, attempts] = [0, 0];
    let tokens: Sent['tokens'] = null;
    let variation: Variation = firstRequest;
    for (let again = 0; ; again++) {
      const sent = await this.#send(query, variation, this.#queryTimeoutMs - tookMs, signal);
      attempts += sent.attempts;
      tokens = addTokens(tokens, sent.tokens);
      tookMs += sent.tookMs;
      const answer = this.#read(checkModel(sent.reply, this.model, this.#alias), query, variation);
      if (answer.next !== null && again < this.#maxAskAgain && !sent.over) {
        variation = answer.next;
        continue;
      }
      const { text, scores, problem, detail } = answer;
      return {
        key: query.key,
        requestHash,
        promptHash: hashPrompt(query),
        model: sent.reply.model ?? this.model,
        text,
        problem,
        scores,
        attempts,
        latencyMs: Math.round(tookMs),
        ...(tokens === null ? {} : { tokens }),
        ...(problem === null ? {} : { detail }),
      };
    }
  }

  /** One request for a query in a slot, with its retries. `tookMs` and `withinMs` count from there. */
  async #send(
    query: JudgeQuery,
    variation: Variation,
    withinMs: number,
    signal?: AbortSignal,
  ): Promise<Sent & { readonly tookMs: number; readonly over: boolean }> {
    const cancelled = { reply: cancelledReply, attempts: 0, tokens: null, tookMs: 0, over: true };
    if (signal?.aborted === true) return cancelled;
    // Encode before taking a slot.
    const request = await this.#encoding(() => toChatRequest(query, this.model, this.#form, variation));
    return this.#slots(async () => {
      const started = this.#clock.now();
      const deadline = new Deadline(this.#clock, withinMs, signal);
      try {
        if (deadline.over) return cancelled;
        const sent = await this.#transport.send(request, deadline);
        const reply = signal?.aborted === true ? cancelledReply : sent.reply;
        return { ...sent, reply, tookMs: this.#clock.now() - started, over: deadline.over };
      } finally {
        deadline.dispose();
      }
    });
  }

  #read(reply: Reply, query: JudgeQuery, before: Variation): Answer {
    if (reply.kind === 'problem') {
      const { problem, remedy, cause } = reply;
      const detail = typeof cause === 'object' ? `${reply.detail}; ${leaveOutAdvice(cause)}` : reply.detail;
      const next =
        remedy !== 'ask_again' ? null : this.#after(problem === 'truncated' ? 'thoughts' : null, before, query);
      return { text: '', scores: [], problem, detail, next };
    }
    const { text, cutOff } = reply;
    const parsed = query.parse(text, cutOff);
    if (parsed.ok) return { text, scores: parsed.scores, problem: null, detail: '', next: null };
    const truncated = cutOff && CUT_SHORT.has(parsed.problem);
    const problem = truncated ? 'truncated' : parsed.problem;
    const lacks = !truncated ? null : parsed.problem === 'unparsable' ? 'answer' : 'thoughts';
    const isBlank = truncated && isMostlyBlank(text);
    // Probabilities are no sample, so another seed gives the same ones.
    const isFinal = query.topLogprobs !== undefined || !MENDABLE.has(problem);
    const next = isFinal ? null : isBlank ? { ...another(before), formless: true } : this.#after(lacks, before, query);
    const detail = isBlank
      ? `its reply is white space up to the token limit: ${excerpt(text)}; serve the judge with compact JSON (scripts/serve_judge.sh does)`
      : truncated
        ? `cut off before its scores: ${excerpt(text)}`
        : parsed.detail;
    return { text, scores: [], problem, detail, next };
  }

  /** The next request for a question: with more room if the reply lacked it, else another sample. */
  #after(lacks: keyof typeof MORE_ROOM | null, before: Variation, { maxCompletionTokens }: JudgeQuery): Variation {
    if (lacks === null) return another(before);
    const limit = Math.max(1, (REPLY_SHARE * this.#context) / maxCompletionTokens);
    const wanted = lacks === 'thoughts' ? MORE_ROOM.thoughts * before.room : Math.max(MORE_ROOM.answer, before.room);
    const room = Math.min(limit, wanted);
    // With more room, the same sampling continues where it was cut off.
    return room > before.room ? { ...before, room } : another(before);
  }
}

function another(before: Variation): Variation {
  return { ...before, sample: before.sample + 1 };
}

/** Problems of a text that another seed may fix. */
const MENDABLE: ReadonlySet<UnscoredReason> = new Set(['unparsable', 'truncated', 'empty', 'out_of_range']);

/** Problems of a text that was cut off before its scores. */
const CUT_SHORT: ReadonlySet<UnscoredReason> = new Set(['unparsable', 'empty', 'truncated']);

function isMostlyBlank(text: string): boolean {
  return text.replace(/\s+/g, '').length < text.length / 2;
}
