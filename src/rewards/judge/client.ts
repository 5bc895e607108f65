/** The judge behind an OpenAI-compatible server: replays what is stored, asks for the rest, stores before it hands out. */
import { checkedKey, noKey } from '../../http/key.js';
import type { Dialect, Variation } from './chat_request.js';
import { canShrink, dialectOf, hashPrompt, hashRequest } from './chat_request.js';
import type { Clock } from '../../core/clock.js';
import type { Remedy, Reply } from './completion.js';
import type { Judge, JudgeQuery } from './judge.js';
import { excerpt } from './parse.js';
import { canaryQuery } from './canary.js';
import pLimit, { type LimitFunction } from 'p-limit';
import { LocalSender, type OpenSender, type Sender } from './sender.js';
import type { TransportPolicy } from './transport.js';
import { defaultTransportPolicy, longestExchangeMs } from './transport.js';
import type { Judgement, JudgementStore, ScoreOptions, UnscoredReason } from '../score/types.js';

export interface JudgeClientOptions {
  /** Base URLs ending in `/v1`, of equal judges; see `resolveEndpoints`. */
  readonly endpoints: readonly string[];
  readonly model: string;
  readonly store: JudgementStore;
  /** vLLM without `--api-key` takes any. */
  readonly apiKey?: string;
  /** The sampling fields that the servers take; by default by their addresses. */
  readonly dialect?: Dialect;
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
  /** Where requests are made; from this thread by default. */
  readonly openSender?: OpenSender;
  /** Of the default sender. */
  readonly clock?: Clock;
  /** Uniform in [0, 1), for backoff jitter only; of the default sender. */
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
  readonly #sender: Sender;
  readonly #dialect: Dialect;
  /**
   * Questions being asked: as many again as there are slots are hashed and encoded while the judge works, so that a free slot waits for
   * neither, and no more, since the images of all questions at once would keep the first one waiting.
   */
  readonly #ahead: LimitFunction;
  readonly #store: JudgementStore;
  readonly #queryTimeoutMs: number;
  readonly #maxAskAgain: number;

  /** Raises ConfigError for a key that cannot be sent. */
  constructor(options: JudgeClientOptions) {
    const concurrency = options.concurrency ?? 64;
    this.model = options.model;
    this.#store = options.store;
    this.#ahead = pLimit(2 * concurrency);
    const policy = { ...defaultTransportPolicy, ...options.policy };
    this.#maxAskAgain = options.maxAskAgain ?? 2;
    this.#queryTimeoutMs = options.queryTimeoutMs ?? longestExchangeMs(policy, policy.maxAttempts + this.#maxAskAgain);
    this.#dialect = options.dialect ?? dialectOf(options.endpoints);
    const { clock, random } = options;
    const open: OpenSender = options.openSender ?? ((asked) => new LocalSender(asked, { clock, random }));
    this.#sender = open({
      endpoints: options.endpoints,
      model: this.model,
      apiKey: checkedKey(options.apiKey, 'the API key of the judge') ?? noKey,
      dialect: this.#dialect,
      concurrency,
      policy,
    });
  }

  async ask(query: JudgeQuery, signal?: AbortSignal, options: ScoreOptions = {}): Promise<Judgement> {
    return this.#ahead(async () => {
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
    const reply = await this.#sender.probe(canaryQuery, this.#queryTimeoutMs, signal);
    return reply.kind === 'text' ? { ok: true } : { ok: false, detail: `${reply.problem}: ${reply.detail}` };
  }

  /** Closes the connections; nothing may be asked afterwards. */
  close(): Promise<void> {
    return this.#sender.close();
  }

  async #exchange(query: JudgeQuery, requestHash: string, signal?: AbortSignal): Promise<Judgement> {
    let tookMs = 0;
    let attempts = 0;
    let asked = 0;
    let variation: Variation = {};
    for (;;) {
      const sending = { asked, variation, withinMs: this.#queryTimeoutMs - tookMs };
      const sent = await this.#sender.send(query, sending, signal);
      attempts += sent.attempts;
      tookMs += sent.tookMs;
      const answer = readAnswer(sent.reply, query);
      if (answer.remedy === 'shrink' && variation.shrunk !== true && canShrink(query) && !sent.over) {
        variation = { ...variation, shrunk: true };
        continue;
      }
      if (answer.remedy === 'ask_again' && asked < this.#maxAskAgain && !sent.over) {
        asked++;
        if (answer.problem === 'truncated') variation = { ...variation, longer: true };
        continue;
      }
      const { text, scores, problem, detail } = answer;
      const latencyMs = Math.round(tookMs);
      const promptHash = hashPrompt(query);
      const question = { key: query.key, requestHash, promptHash, model: this.model };
      const told = { ...question, text, problem, scores, attempts, latencyMs };
      return problem === null ? told : { ...told, detail };
    }
  }
}

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
