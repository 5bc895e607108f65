/** The judge behind an OpenAI-compatible server: replays what is stored, asks for the rest, stores before it hands out. */
import { checkedKey, noKey } from '../../core/http/key.js';
import { firstRequest, hashPrompt, hashRequest, toChatRequest, type Variation } from './chat_request.js';
import { Deadline, systemClock, type Clock } from '../../core/clock.js';
import {
  checkModel,
  isAlive,
  leaveOutAdvice,
  type ModelAlias,
  type Remedy,
  type Reply,
  addTokens,
  cancelledReply,
} from './completion.js';
import { imagesShown, type Judge, type JudgeQuery } from './judge.js';
import { excerpt } from './parse.js';
import { canaryQuery } from './readiness.js';
import pLimit, { type LimitFunction } from 'p-limit';
import { dialectOf, type LeavableField, type RequestForm } from './dialect.js';
import { defaultTransportPolicy, longestExchangeMs, Transport, type Sent, type TransportPolicy } from './transport.js';
import type { Judgement, JudgementStore, ScoreOptions, Tokens, UnscoredReason } from '../score/types.js';

export interface JudgeClientOptions {
  /** Base URLs, of equal judges; see `resolveEndpoints`. */
  readonly endpoints: readonly string[];
  readonly model: string;
  readonly store: JudgementStore;
  /** vLLM without `--api-key` takes any. */
  readonly apiKey?: string;
  /** Fields that requests leave out; none by default. */
  readonly leaveOut?: readonly LeavableField[];
  /** Tokens of the model's context; absent where its servers do not say. */
  readonly context?: number;
  /** What it is asked about; `images` where it is absent. */
  readonly shown?: number;
  /** Other names of the model that its servers may answer by; none by default. */
  readonly alias?: ModelAlias;
  /** Requests under way at once. */
  readonly concurrency?: number;
  /**
   * The time for which one question may have a slot, over all its requests. By default as long as the policy's attempts and the further
   * requests can take, so that none of them is cut short.
   */
  readonly queryTimeoutMs?: number;
  /** Further requests for a question whose reply gave no scores. */
  readonly maxAskAgain?: number;
  readonly policy?: Partial<TransportPolicy>;
  readonly clock?: Clock;
  /** Uniform in [0, 1), for backoff jitter only. */
  readonly random?: () => number;
}

/** Whether a judge answers at all; `detail` says why not. */
export type CanaryResult = { readonly ok: true } | { readonly ok: false; readonly detail: string };

interface SharedQuestion {
  readonly signal: AbortSignal | undefined;
  readonly askAgain: boolean;
  readonly answer: Promise<Judgement>;
}

interface Answer {
  readonly text: string;
  readonly scores: readonly number[];
  readonly problem: UnscoredReason | null;
  readonly detail: string;
  readonly remedy: Remedy;
  /** What a reply that was cut off lacked: room for the rest of its answer, or for its thoughts; null where room mends nothing. */
  readonly lacks: 'rest' | 'thoughts' | null;
  /** Whether it was cut off within white space, which a JSON grammar lets a judge write without end. */
  readonly idle: boolean;
}

/**
 * By how much more a judge may say that was cut off: twice as much where its answer had begun, once, since one that rambles on does not
 * get better by it; four times as much, each time, where it was still thinking.
 */
const moreRoom = { rest: 2, thoughts: 4 } as const;

/** The share of a context that a reply may have: the prompt with its images needs the rest. */
const replyShare = 0.5;

export class JudgeClient implements Judge {
  readonly model: string;
  readonly #transport: Transport;
  readonly #clock: Clock;
  readonly #form: RequestForm;
  readonly #alias: ModelAlias;
  readonly #shown: number;
  /**
   * Questions being asked: as many again as there are slots are hashed and encoded while the judge works, so that a free slot waits for
   * neither, and no more, since the images of all questions at once would keep the first one waiting.
   */
  readonly #ahead: LimitFunction;
  /** Requests under way. */
  readonly #slots: LimitFunction;
  /** Compressing waits in a queue that the whole process shares with its look-ups of names: it must not fill it. */
  readonly #encoding = pLimit(8);
  /** Terms that ask the same question about an item at the same time share its answer. */
  readonly #underWay = new Map<string, SharedQuestion>();
  readonly #store: JudgementStore;
  readonly #queryTimeoutMs: number;
  readonly #maxAskAgain: number;
  #context: number;

  /** Raises ConfigError for a key that cannot be sent. */
  constructor(options: JudgeClientOptions) {
    const concurrency = options.concurrency ?? 64;
    this.model = options.model;
    this.#store = options.store;
    this.#ahead = pLimit(2 * concurrency);
    this.#slots = pLimit(concurrency);
    const policy = { ...defaultTransportPolicy, ...options.policy };
    this.#maxAskAgain = options.maxAskAgain ?? 2;
    this.#queryTimeoutMs = options.queryTimeoutMs ?? longestExchangeMs(policy, policy.maxAttempts + this.#maxAskAgain);
    this.#form = { dialect: dialectOf(options.endpoints), leaveOut: options.leaveOut ?? [] };
    this.#context = options.context ?? Infinity;
    this.#alias = options.alias ?? false;
    this.#shown = options.shown ?? imagesShown.edit;
    this.#clock = options.clock ?? systemClock;
    this.#transport = new Transport({
      endpoints: options.endpoints,
      apiKey: checkedKey(options.apiKey, 'the API key of the judge') ?? noKey,
      // One more than there are slots, for a look at a judge that keeps all of them waiting.
      connections: concurrency + 1,
      policy,
      clock: this.#clock,
      random: options.random ?? Math.random,
    });
  }

  async ask(query: JudgeQuery, signal?: AbortSignal, options: ScoreOptions = {}): Promise<Judgement> {
    return this.#ahead(() => {
      const requestHash = hashRequest(query, this.model, this.#form);
      const askAgain = options.askAgain === true;
      const name = `${query.key} ${requestHash}`;
      const same = this.#underWay.get(name);
      if (same?.signal === signal && same?.askAgain === askAgain) return same.answer;
      const answer = this.#answer(query, requestHash, askAgain, signal);
      const asked: SharedQuestion = { signal, askAgain, answer };
      this.#underWay.set(name, asked);
      return answer.finally(() => {
        if (this.#underWay.get(name) === asked) this.#underWay.delete(name);
      });
    });
  }

  async #answer(
    query: JudgeQuery,
    requestHash: string,
    askAgain: boolean,
    signal: AbortSignal | undefined,
  ): Promise<Judgement> {
    const stored = this.#store.find(query.key, requestHash);
    if (stored !== undefined && (stored.problem === null || !askAgain)) return stored;
    const { calls } = this.#store;
    if (calls?.begin() === false) return notAsked(query.key, requestHash, this.model);
    const judgement = await this.#exchange(query, requestHash, signal);
    // A question that was called off has no answer, so it is not replayed either.
    if (judgement.problem !== 'aborted') this.#store.put(judgement);
    calls?.end(judgement.attempts);
    return judgement;
  }

  /** Sets the tokens of the model's context, where a listing says them. */
  learnContext(context: number | null): void {
    this.#context = context ?? Infinity;
  }

  /** One small question of the kind that it is asked, outside the queue, without retries: does the judge answer at all, if only with thoughts? */
  async canary(signal?: AbortSignal): Promise<CanaryResult> {
    const deadline = new Deadline(this.#clock, this.#queryTimeoutMs, signal);
    const request = await toChatRequest(canaryQuery(this.#shown), this.model, this.#form);
    const reply = await this.#transport.probe(request, deadline).finally(() => deadline.dispose());
    const checked = checkModel(reply, this.model, this.#alias);
    if (isAlive(checked)) return { ok: true };
    return { ok: false, detail: `${checked.problem}: ${checked.detail}` };
  }

  /** Closes the connections; nothing may be asked afterwards. */
  close(): Promise<void> {
    return this.#transport.close();
  }

  async #exchange(query: JudgeQuery, requestHash: string, signal?: AbortSignal): Promise<Judgement> {
    let tookMs = 0;
    let attempts = 0;
    let tokens: Tokens | null = null;
    let variation: Variation = firstRequest;
    for (let again = 0; ; again++) {
      const sent = await this.#send(query, variation, this.#queryTimeoutMs - tookMs, signal);
      attempts += sent.attempts;
      tokens = addTokens(tokens, sent.tokens);
      tookMs += sent.tookMs;
      const answer = readAnswer(checkModel(sent.reply, this.model, this.#alias), query);
      if (answer.remedy === 'ask_again' && again < this.#maxAskAgain && !sent.over) {
        variation = this.#after(answer, variation, query);
        continue;
      }
      const { text, scores, problem, detail } = answer;
      const latencyMs = Math.round(tookMs);
      const promptHash = hashPrompt(query);
      const question = { key: query.key, requestHash, promptHash, model: sent.reply.model ?? this.model };
      const counted = tokens === null ? {} : { tokens };
      const told = { ...question, text, problem, scores, attempts, latencyMs, ...counted };
      return problem === null ? told : { ...told, detail };
    }
  }

  /** One request for a query, with its retries, in a slot. `tookMs` and `withinMs` count from there. */
  async #send(
    query: JudgeQuery,
    variation: Variation,
    withinMs: number,
    signal?: AbortSignal,
  ): Promise<Sent & { readonly tookMs: number; readonly over: boolean }> {
    const cancelled = { reply: cancelledReply, attempts: 0, tokens: null, tookMs: 0, over: true };
    if (signal?.aborted === true) return cancelled;
    // A slot waits for no picture.
    const request = await this.#encoding(() => toChatRequest(query, this.model, this.#form, variation));
    return this.#slots(async () => {
      const started = this.#clock.now();
      const deadline = new Deadline(this.#clock, withinMs, signal);
      try {
        if (deadline.over) return cancelled;
        const sent = await this.#transport.send(request, deadline);
        const tookMs = this.#clock.now() - started;
        const reply = signal?.aborted === true ? cancelledReply : sent.reply;
        // Nothing more is asked when its time is over or it was called off.
        return { ...sent, reply, tookMs, over: deadline.over };
      } finally {
        deadline.dispose();
      }
    });
  }

  /** How a question is asked again: with more room where that mends it, else as another sample. */
  #after({ lacks, idle }: Answer, before: Variation, query: JudgeQuery): Variation {
    const another = { ...before, sample: before.sample + 1 };
    if (idle) return { ...another, formless: true };
    if (lacks === null) return another;
    const most = Math.max(1, (replyShare * this.#context) / query.maxCompletionTokens);
    const wanted = lacks === 'thoughts' ? moreRoom.thoughts * before.room : Math.max(moreRoom.rest, before.room);
    const room = Math.min(most, wanted);
    // With more room the same sampling goes on where it was cut off.
    return room > before.room ? { ...before, room } : another;
  }
}

/** In place of an answer, where a limit to the requests lets no more be asked. Not an answer of the judge's, so it is not stored. */
function notAsked(key: string, requestHash: string, model: string): Judgement {
  const detail = 'not asked: the limit of requests is reached';
  return { key, requestHash, model, text: '', problem: 'aborted', detail, scores: [], attempts: 0, latencyMs: 0 };
}

/** Which problems of a reply's text another seed may mend. */
const worthAskingAgain: ReadonlySet<UnscoredReason> = new Set(['unparsable', 'truncated', 'empty', 'out_of_range']);

function readAnswer(reply: Reply, query: JudgeQuery): Answer {
  if (reply.kind === 'problem') {
    const { problem, remedy, cause } = reply;
    const detail = typeof cause === 'object' ? `${reply.detail}; ${leaveOutAdvice(cause)}` : reply.detail;
    const lacks = problem === 'truncated' ? 'thoughts' : null;
    return { text: '', scores: [], problem, detail, remedy, lacks, idle: false };
  }
  const { text, cutOff } = reply;
  const parsed = query.parse(text, cutOff);
  if (parsed.ok) {
    return { text, scores: parsed.scores, problem: null, detail: '', remedy: 'give_up', lacks: null, idle: false };
  }
  const truncated = cutOff && cutShort.has(parsed.problem);
  const problem = truncated ? 'truncated' : parsed.problem;
  const idle = truncated && isMostlyBlank(text);
  const detail = idle
    ? `its reply is white space up to the token limit: ${excerpt(text)}; serve the judge with compact JSON (scripts/serve_judge.sh does)`
    : truncated
      ? `cut off before its scores: ${excerpt(text)}`
      : parsed.detail;
  // Probabilities are no sample: another seed brings the same ones.
  const remedy = query.topLogprobs === undefined && worthAskingAgain.has(problem) ? 'ask_again' : 'give_up';
  const lacks = !truncated ? null : parsed.problem === 'unparsable' ? 'rest' : 'thoughts';
  return { text, scores: [], problem, detail, remedy, lacks, idle };
}

/** What a text is that was cut off before its scores. */
const cutShort: ReadonlySet<UnscoredReason> = new Set(['unparsable', 'empty', 'truncated']);

function isMostlyBlank(text: string): boolean {
  return text.replace(/\s+/g, '').length < text.length / 2;
}
