/** The judge behind an OpenAI-compatible server: replays what is stored, asks for the rest, stores before it hands out. */
import { checkedKey, noKey } from '../../http/key.js';
import type { Variation } from './chat_request.js';
import { canShrink, hashPrompt, hashRequest } from './chat_request.js';
import type { Clock } from '../../core/clock.js';
import { checkModel, isAlive, type ModelAlias, type Remedy, type Reply } from './completion.js';
import { imagesShown, type Judge, type JudgeQuery } from './judge.js';
import { excerpt } from './parse.js';
import { canaryQuery } from './canary.js';
import pLimit, { type LimitFunction } from 'p-limit';
import { LocalSender, type OpenSender, type Sender } from './sender.js';
import {
  commonTraits,
  describeTraits,
  dialectOf,
  mostTraitChanges,
  startingTraits,
  withoutRefusedFields,
  type Dialect,
  type Traits,
} from './traits.js';
import type { TransportPolicy } from './transport.js';
import { defaultTransportPolicy, longestExchangeMs } from './transport.js';
import { addTokens } from './usage.js';
import type { Judgement, JudgementStore, ScoreOptions, Tokens, UnscoredReason } from '../score/types.js';

export interface JudgeClientOptions {
  /** Base URLs, of equal judges; see `resolveEndpoints`. */
  readonly endpoints: readonly string[];
  readonly model: string;
  readonly store: JudgementStore;
  /** vLLM without `--api-key` takes any. */
  readonly apiKey?: string;
  /** What the servers were found to take; by default what their addresses say. What they refuse is learned in any case. */
  readonly traits?: Traits;
  /** What it is asked about; `images` where it is absent. */
  readonly shown?: number;
  /** Other names of the model that its servers may answer by; none by default. */
  readonly alias?: ModelAlias;
  /** Told in one line when the judge turns out to refuse what it was sent. */
  readonly onNote?: (note: string) => void;
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
  /** Clock of the default sender. */
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
  /** Whether the reply ended before the answer began: the judge was still thinking. */
  readonly unbegun: boolean;
}

/**
 * By how much more a judge may say that was cut off: twice as much where its answer had begun, once, since one that rambles on does not
 * get better by it; four times as much, each time, where it was still thinking.
 */
const moreRoom = { begun: 2, unbegun: 4 } as const;

/** The share of a context that a reply may have: the prompt with its images needs the rest. */
const replyShare = 0.5;

export class JudgeClient implements Judge {
  readonly model: string;
  readonly #sender: Sender;
  readonly #dialect: Dialect;
  readonly #alias: ModelAlias;
  readonly #shown: number;
  readonly #onNote: (note: string) => void;
  /**
   * Questions being asked: as many again as there are slots are hashed and encoded while the judge works, so that a free slot waits for
   * neither, and no more, since the images of all questions at once would keep the first one waiting.
   */
  readonly #ahead: LimitFunction;
  readonly #store: JudgementStore;
  readonly #queryTimeoutMs: number;
  readonly #maxAskAgain: number;
  #traits: Traits;

  /** Raises ConfigError for a key that cannot be sent. */
  constructor(options: JudgeClientOptions) {
    const concurrency = options.concurrency ?? 64;
    this.model = options.model;
    this.#store = options.store;
    this.#ahead = pLimit(2 * concurrency);
    const policy = { ...defaultTransportPolicy, ...options.policy };
    this.#maxAskAgain = options.maxAskAgain ?? 2;
    this.#queryTimeoutMs = options.queryTimeoutMs ?? longestExchangeMs(policy, policy.maxAttempts + this.#maxAskAgain);
    this.#dialect = dialectOf(options.endpoints);
    this.#traits = options.traits ?? startingTraits[this.#dialect];
    this.#alias = options.alias ?? false;
    this.#shown = options.shown ?? imagesShown.edit;
    this.#onNote = options.onNote ?? (() => undefined);
    const { clock, random } = options;
    const open: OpenSender = options.openSender ?? ((asked) => new LocalSender(asked, { clock, random }));
    this.#sender = open({
      endpoints: options.endpoints,
      model: this.model,
      apiKey: checkedKey(options.apiKey, 'the API key of the judge') ?? noKey,
      concurrency,
      policy,
    });
  }

  async ask(query: JudgeQuery, signal?: AbortSignal, options: ScoreOptions = {}): Promise<Judgement> {
    return this.#ahead(async () => {
      const requestHash = hashRequest(query, this.model, this.#dialect);
      const stored = this.#store.find(query.key, requestHash);
      if (stored !== undefined && (stored.problem === null || options.askAgain !== true)) return stored;
      const { calls } = this.#store;
      if (calls?.begin() === false) return notAsked(query.key, requestHash, this.model);
      const judgement = await this.#exchange(query, requestHash, signal);
      // Being called off is no answer of the judge's, so it is not replayed either.
      if (judgement.problem !== 'aborted') this.#store.put(judgement);
      calls?.end(judgement.attempts);
      return judgement;
    });
  }

  /** What the judge was found to take, by those who waited for it. */
  adopt(traits: Traits): void {
    this.#traits = traits;
  }

  /** One small question of the kind that it is asked, outside the queue, without retries: does the judge answer at all, if only with thoughts? */
  async canary(signal?: AbortSignal): Promise<CanaryResult> {
    let traits = this.#traits;
    for (let changes = 0; ; changes++) {
      const reply = await this.#sender.probe(canaryQuery(this.#shown), traits, this.#queryTimeoutMs, signal);
      const fewer = changes < mostTraitChanges ? withoutRefused(traits, reply) : null;
      if (fewer !== null) {
        traits = fewer;
        continue;
      }
      this.#learn(traits, reply);
      const checked = checkModel(reply, this.model, this.#alias);
      if (checked.kind === 'text' || isAlive(checked)) return { ok: true };
      return { ok: false, detail: `${checked.problem}: ${checked.detail}` };
    }
  }

  /** Closes the connections; nothing may be asked afterwards. */
  close(): Promise<void> {
    return this.#sender.close();
  }

  async #exchange(query: JudgeQuery, requestHash: string, signal?: AbortSignal): Promise<Judgement> {
    let tookMs = 0;
    let attempts = 0;
    let tokens: Tokens | null = null;
    let asked = 0;
    let askedAgain = 0;
    let changes = 0;
    let variation: Variation = {};
    let traits = this.#traits;
    let mostRoom = Math.max(1, (replyShare * (traits.context ?? Infinity)) / query.maxCompletionTokens);
    /** The last answer that lacked room, and the room that it had. */
    let cutOff: { readonly answer: Answer; readonly room: number } | null = null;
    for (;;) {
      const sending = { asked, variation, traits, withinMs: this.#queryTimeoutMs - tookMs };
      const sent = await this.#sender.send(query, sending, signal);
      attempts += sent.attempts;
      tokens = addTokens(tokens, sent.tokens);
      tookMs += sent.tookMs;
      const fewer = changes < mostTraitChanges && !sent.over ? withoutRefused(traits, sent.reply) : null;
      if (fewer !== null) {
        changes++;
        traits = fewer;
        continue;
      }
      this.#learn(traits, sent.reply);
      const { room = 1 } = variation;
      let answer = readAnswer(checkModel(sent.reply, this.model, this.#alias), query);
      if (answer.remedy === 'shrink' && cutOff !== null && cutOff.room < room) {
        // With less room it was taken: what is too long is the reply that it may give, not its images.
        mostRoom = cutOff.room;
        variation = { ...variation, room: mostRoom };
        answer = cutOff.answer;
      }
      if (answer.remedy === 'shrink' && variation.shrunk !== true && canShrink(query) && !sent.over) {
        variation = { ...variation, shrunk: true };
        continue;
      }
      if (answer.remedy === 'ask_again' && askedAgain < this.#maxAskAgain && !sent.over) {
        askedAgain++;
        const had = variation.room ?? 1;
        if (answer.problem === 'truncated') cutOff = { answer, room: had };
        const more = answer.problem === 'truncated' ? Math.min(mostRoom, roomAfter(answer, had)) : had;
        // With more room the same sampling goes on where it was cut off; another one is for a reply that room cannot mend.
        if (more > had) variation = { ...variation, room: more };
        else asked++;
        continue;
      }
      const { text, scores, problem, detail } = answer;
      const latencyMs = Math.round(tookMs);
      const promptHash = hashPrompt(query);
      const question = { key: query.key, requestHash, promptHash, model: sent.reply.model ?? this.model };
      const leftOut = this.#leftOut(traits);
      const counted = tokens === null ? {} : { tokens };
      const told = { ...question, text, problem, scores, attempts, latencyMs, ...leftOut, ...counted };
      return problem === null ? told : { ...told, detail };
    }
  }

  /**
   * Further questions are sent without what this one was, where the judge answered it: what it refused before was then what it does not
   * take. What other questions found stays, since they may have met another of several judges.
   */
  #learn(traits: Traits, reply: Reply): void {
    if (!isAlive(reply)) return;
    const known = commonTraits([this.#traits, traits]);
    const found = describeTraits(known, this.#traits);
    if (found === null) return;
    this.#traits = known;
    this.#onNote(`the judge '${this.model}' ${found}`);
  }

  /** The fields of the question that were not sent, for the records. */
  #leftOut({ leftOut }: Traits): { readonly leftOut?: readonly string[] } {
    const known = startingTraits[this.#dialect].leftOut;
    const found = leftOut.filter((field) => !known.includes(field));
    return found.length === 0 ? {} : { leftOut: found };
  }
}

/** In place of an answer, where a limit to the requests lets no more be asked. Not an answer of the judge's, so it is not stored. */
function notAsked(key: string, requestHash: string, model: string): Judgement {
  const detail = 'not asked: the limit of requests is reached';
  return { key, requestHash, model, text: '', problem: 'aborted', detail, scores: [], attempts: 0, latencyMs: 0 };
}

/** The traits without what a reply refuses of them; null where it refuses nothing that can be left out. */
function withoutRefused(traits: Traits, reply: Reply): Traits | null {
  return reply.kind === 'text' || reply.refused === undefined ? null : withoutRefusedFields(traits, reply.refused);
}

function roomAfter({ unbegun }: Answer, room: number): number {
  return unbegun ? moreRoom.unbegun * room : Math.max(moreRoom.begun, room);
}

/** Which problems of a reply's text another seed may mend. */
const worthAskingAgain: ReadonlySet<UnscoredReason> = new Set(['unparsable', 'truncated', 'empty', 'out_of_range']);

function readAnswer(reply: Reply, query: JudgeQuery): Answer {
  if (reply.kind === 'problem') {
    const { problem, detail, remedy } = reply;
    return { text: '', scores: [], problem, detail, remedy, unbegun: problem === 'truncated' };
  }
  const { text, cutOff } = reply;
  const parsed = query.parse(text, cutOff);
  if (parsed.ok) return { text, scores: parsed.scores, problem: null, detail: '', remedy: 'give_up', unbegun: false };
  const truncated = cutOff && ['unparsable', 'empty', 'truncated'].includes(parsed.problem);
  const problem = truncated ? 'truncated' : parsed.problem;
  const detail = truncated ? `cut off before its scores: ${excerpt(text)}` : parsed.detail;
  // Probabilities are no sample: another seed brings the same ones.
  const remedy = query.topLogprobs === undefined && worthAskingAgain.has(problem) ? 'ask_again' : 'give_up';
  return { text, scores: [], problem, detail, remedy, unbegun: truncated && parsed.problem !== 'unparsable' };
}
