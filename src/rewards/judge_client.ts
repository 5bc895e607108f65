/** The judge behind an OpenAI-compatible server: replays what is stored, asks for the rest, stores before it hands out. */
import { checkedKey, noKey } from './api_key.js';
import type { Dialect, Variation } from './chat_request.js';
import { canShrink, dialectOf, hashPrompt, hashRequest, toChatRequest } from './chat_request.js';
import type { Clock } from './clock.js';
import { systemClock } from './clock.js';
import type { Remedy, Reply } from './completion.js';
import { Deadline } from './deadline.js';
import type { Judge, JudgeQuery } from './judge.js';
import { excerpt } from './parse.js';
import { canaryQuery } from './canary.js';
import { Semaphore } from './semaphore.js';
import type { TransportPolicy } from './transport.js';
import { defaultTransportPolicy, longestExchangeMs, Transport } from './transport.js';
import type { Judgement, JudgementStore, ScoreOptions, UnscoredReason } from './types.js';

export interface JudgeClientOptions {
  /** Base URLs ending in `/v1`, of equal judges; see `resolveEndpoints`. */
  readonly endpoints: readonly string[];
  readonly model: string;
  readonly store: JudgementStore;
  /** vLLM without `--api-key` takes any. */
  readonly apiKey?: string;
  /** The sampling fields that the servers take; by default by their addresses. */
  readonly dialect?: Dialect;
  /** Questions under way at once. */
  readonly concurrency?: number;
  /**
   * The time that one question may take, over all its requests, from the moment that it is first sent. By default as long as the policy's
   * attempts and the further requests can take, so that none of them is cut short.
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

interface Answer {
  readonly text: string;
  readonly scores: readonly number[];
  readonly problem: UnscoredReason | null;
  readonly detail: string;
  readonly remedy: Remedy;
}

export class JudgeClient implements Judge {
  readonly model: string;
  readonly #transport: Transport;
  readonly #dialect: Dialect;
  readonly #slots: Semaphore;
  readonly #store: JudgementStore;
  readonly #clock: Clock;
  readonly #queryTimeoutMs: number;
  readonly #maxAskAgain: number;

  /** Raises ConfigError for a key that cannot be sent. */
  constructor(options: JudgeClientOptions) {
    const concurrency = options.concurrency ?? 64;
    this.model = options.model;
    this.#store = options.store;
    this.#clock = options.clock ?? systemClock;
    this.#slots = new Semaphore(concurrency);
    const policy = { ...defaultTransportPolicy, ...options.policy };
    this.#maxAskAgain = options.maxAskAgain ?? 2;
    this.#queryTimeoutMs = options.queryTimeoutMs ?? longestExchangeMs(policy, policy.maxAttempts + this.#maxAskAgain);
    this.#dialect = options.dialect ?? dialectOf(options.endpoints);
    this.#transport = new Transport({
      endpoints: options.endpoints,
      apiKey: checkedKey(options.apiKey, 'the API key of the judge') ?? noKey,
      connections: concurrency,
      policy,
      clock: this.#clock,
      random: options.random ?? Math.random,
    });
  }

  async ask(query: JudgeQuery, signal?: AbortSignal, options: ScoreOptions = {}): Promise<Judgement> {
    // Hashing takes a slot too: the images of all questions at once would keep the first one waiting.
    return this.#slots.run(async () => {
      const requestHash = hashRequest(query, this.model, this.#dialect);
      const stored = this.#store.find(query.key, requestHash);
      if (stored !== undefined && (stored.problem === null || options.askAgain !== true)) return stored;
      const judgement = await this.#exchange(query, requestHash, signal);
      // Being called off is no answer of the judge's, so it is not replayed either.
      if (judgement.problem !== 'aborted') this.#store.put(judgement);
      return judgement;
    });
  }

  /** One small question with two images, outside the queue, without retries: does the judge answer at all? */
  async canary(signal?: AbortSignal): Promise<CanaryResult> {
    const deadline = new Deadline(this.#clock, this.#queryTimeoutMs, signal);
    try {
      const request = await toChatRequest(canaryQuery, this.model, 0, { dialect: this.#dialect });
      const reply = await this.#transport.probe(request, deadline);
      return reply.kind === 'text' ? { ok: true } : { ok: false, detail: `${reply.problem}: ${reply.detail}` };
    } finally {
      deadline.dispose();
    }
  }

  /** Closes the connections; nothing may be asked afterwards. */
  close(): Promise<void> {
    return this.#transport.close();
  }

  async #exchange(query: JudgeQuery, requestHash: string, signal?: AbortSignal): Promise<Judgement> {
    const started = this.#clock.now();
    const deadline = new Deadline(this.#clock, this.#queryTimeoutMs, signal);
    let attempts = 0;
    let asked = 0;
    let variation: Variation = { dialect: this.#dialect };
    try {
      for (;;) {
        let answer = calledOff;
        if (!deadline.over) {
          const request = await toChatRequest(query, this.model, asked, variation);
          const sent = await this.#transport.send(request, deadline);
          attempts += sent.attempts;
          if (signal?.aborted !== true) answer = readAnswer(sent.reply, query);
        }
        if (answer.remedy === 'shrink' && variation.shrunk !== true && canShrink(query) && !deadline.over) {
          variation = { ...variation, shrunk: true };
          continue;
        }
        if (answer.remedy === 'ask_again' && asked < this.#maxAskAgain && !deadline.over) {
          asked++;
          if (answer.problem === 'truncated') variation = { ...variation, longer: true };
          continue;
        }
        const { text, scores, problem, detail } = answer;
        const latencyMs = Math.round(this.#clock.now() - started);
        const promptHash = hashPrompt(query);
        const question = { key: query.key, requestHash, promptHash, model: this.model };
        const told = { ...question, text, problem, scores, attempts, latencyMs };
        return problem === null ? told : { ...told, detail };
      }
    } finally {
      deadline.dispose();
    }
  }
}

const calledOff: Answer = { text: '', scores: [], problem: 'aborted', detail: 'called off', remedy: 'give_up' };

/** Which problems of a reply's text another seed may mend. */
const worthAskingAgain: ReadonlySet<UnscoredReason> = new Set(['unparsable', 'truncated', 'empty', 'out_of_range']);

function readAnswer(reply: Reply, query: JudgeQuery): Answer {
  if (reply.kind === 'problem') {
    const { problem, detail, remedy } = reply;
    return { text: '', scores: [], problem, detail, remedy };
  }
  const { text, cutOff } = reply;
  const parsed = query.parse(text, cutOff);
  if (parsed.ok) return { text, scores: parsed.scores, problem: null, detail: '', remedy: 'give_up' };
  const truncated = cutOff && (parsed.problem === 'unparsable' || parsed.problem === 'empty');
  const problem = truncated ? 'truncated' : parsed.problem;
  const detail = truncated ? `cut off before its scores: ${excerpt(text)}` : parsed.detail;
  // Probabilities are no sample: another seed brings the same ones.
  const remedy = query.topLogprobs === undefined && worthAskingAgain.has(problem) ? 'ask_again' : 'give_up';
  return { text, scores: [], problem, detail, remedy };
}
