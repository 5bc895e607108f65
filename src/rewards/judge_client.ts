/** The judge behind an OpenAI-compatible server: replays what is stored, asks for the rest, stores before it hands out. */
import { hashRequest, toChatRequest } from './chat_request.js';
import type { Clock } from './clock.js';
import { systemClock } from './clock.js';
import type { Reply } from './completion.js';
import { Deadline } from './deadline.js';
import type { Judge, JudgeQuery } from './judge.js';
import { excerpt } from './parse.js';
import { canaryQuery } from './canary.js';
import { Semaphore } from './semaphore.js';
import type { TransportPolicy } from './transport.js';
import { defaultTransportPolicy, Transport } from './transport.js';
import type { Judgement, JudgementStore, ScoreOptions, UnscoredReason } from './types.js';

export interface JudgeClientOptions {
  /** Base URLs ending in `/v1`, of equal judges; see `resolveEndpoints`. */
  readonly endpoints: readonly string[];
  readonly model: string;
  readonly store: JudgementStore;
  /** vLLM without `--api-key` takes any. */
  readonly apiKey?: string;
  /** Questions under way at once. */
  readonly concurrency?: number;
  /** The time that one question may take, over all its requests, from the moment that it is first sent. */
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
  readonly askAgain: boolean;
}

export class JudgeClient implements Judge {
  readonly model: string;
  readonly #transport: Transport;
  readonly #slots: Semaphore;
  readonly #store: JudgementStore;
  readonly #clock: Clock;
  readonly #queryTimeoutMs: number;
  readonly #maxAskAgain: number;

  constructor(options: JudgeClientOptions) {
    const concurrency = options.concurrency ?? 64;
    this.model = options.model;
    this.#store = options.store;
    this.#clock = options.clock ?? systemClock;
    this.#slots = new Semaphore(concurrency);
    this.#queryTimeoutMs = options.queryTimeoutMs ?? 300_000;
    this.#maxAskAgain = options.maxAskAgain ?? 2;
    this.#transport = new Transport({
      endpoints: options.endpoints,
      apiKey: options.apiKey ?? 'none',
      connections: concurrency,
      policy: { ...defaultTransportPolicy, ...options.policy },
      clock: this.#clock,
      random: options.random ?? Math.random,
    });
  }

  async ask(query: JudgeQuery, signal?: AbortSignal, options: ScoreOptions = {}): Promise<Judgement> {
    const requestHash = hashRequest(query, this.model);
    const stored = this.#store.find(query.key, requestHash);
    if (stored !== undefined && (stored.problem === null || options.askAgain !== true)) return stored;
    return this.#slots.run(async () => {
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
      const reply = await this.#transport.probe(await toChatRequest(canaryQuery, this.model, 0), deadline);
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
    try {
      for (let asked = 0; ; asked++) {
        const sent = deadline.over
          ? null
          : await this.#transport.send(await toChatRequest(query, this.model, asked), deadline);
        attempts += sent?.attempts ?? 0;
        const answer = signal?.aborted === true || sent === null ? calledOff : readAnswer(sent.reply, query);
        if (answer.askAgain && asked < this.#maxAskAgain && !deadline.over) continue;
        return {
          key: query.key,
          requestHash,
          model: this.model,
          text: answer.text,
          problem: answer.problem,
          ...(answer.problem === null ? {} : { detail: answer.detail }),
          scores: answer.scores,
          attempts,
          latencyMs: Math.round(this.#clock.now() - started),
        };
      }
    } finally {
      deadline.dispose();
    }
  }
}

const calledOff: Answer = { text: '', scores: [], problem: 'aborted', detail: 'called off', askAgain: false };

/** Which problems of a reply's text another seed may mend. */
const worthAskingAgain: ReadonlySet<UnscoredReason> = new Set(['unparsable', 'truncated', 'empty', 'out_of_range']);

function readAnswer(reply: Reply, query: JudgeQuery): Answer {
  if (reply.kind === 'problem') {
    const { problem, detail, remedy } = reply;
    return { text: '', scores: [], problem, detail, askAgain: remedy === 'ask_again' };
  }
  const parsed = query.parse(reply.text);
  if (parsed.ok) return { text: reply.text, scores: parsed.scores, problem: null, detail: '', askAgain: false };
  const cutOff = reply.cutOff && (parsed.problem === 'unparsable' || parsed.problem === 'empty');
  const problem = cutOff ? 'truncated' : parsed.problem;
  const detail = cutOff ? `cut off before its scores: ${excerpt(reply.text)}` : parsed.detail;
  return { text: reply.text, scores: [], problem, detail, askAgain: worthAskingAgain.has(problem) };
}
