/** What stands between a judge's client and the wire: one request for a query, with its retries, in one of so many slots. */
import type { Variation } from './chat_request.js';
import { toChatRequest } from './chat_request.js';
import { cancelledReply } from './completion.js';
import { type Clock, Deadline, systemClock } from '../../core/clock.js';
import type { Reply } from './completion.js';
import type { JudgeQuery } from './judge.js';
import pLimit, { type LimitFunction } from 'p-limit';
import type { RequestForm } from './dialect.js';
import type { TransportPolicy } from './transport.js';
import { Transport } from './transport.js';
import type { Tokens } from '../score/types.js';

/** The part of a query that is sent to the server. */
export type SentQuery = Omit<JudgeQuery, 'key' | 'parse'>;

/** How a request differs from the first one for its query, and how long it may take. */
export interface SendOptions {
  readonly variation: Variation;
  /** Over all its attempts, from the moment that it has a slot. */
  readonly withinMs: number;
}

export interface SendResult {
  readonly reply: Reply;
  /** Requests that were made. */
  readonly attempts: number;
  /** Of all its replies; null where none says how many it took. */
  readonly tokens: Tokens | null;
  /** Since it had a slot. */
  readonly tookMs: number;
  /** Whether its time is over or it was called off, so that nothing more is to be asked. */
  readonly over: boolean;
}

/** Sends requests to one model. Never rejects for anything that the judge does. */
export interface Sender {
  /** A request that is called off has the reply `calledOff`. */
  send(query: SentQuery, sending: SendOptions, signal?: AbortSignal): Promise<SendResult>;
  /** One attempt at once, outside the slots, asked even of a judge that is being spared. */
  probe(query: SentQuery, withinMs: number, signal?: AbortSignal): Promise<Reply>;
  /** Closes the connections; nothing may be sent afterwards. */
  close(): Promise<void>;
}

/** Plain data, so that another thread can take it. */
export interface SenderOptions {
  /** Base URLs, of equal judges. */
  readonly endpoints: readonly string[];
  readonly model: string;
  readonly form: RequestForm;
  readonly apiKey: string;
  /** Requests under way at once. */
  readonly concurrency: number;
  readonly policy: TransportPolicy;
}

export type OpenSender = (options: SenderOptions) => Sender;

export interface LocalSenderTools {
  readonly clock?: Clock | undefined;
  /** Uniform in [0, 1), for backoff jitter only. */
  readonly random?: (() => number) | undefined;
}

/** Sends from the thread that made it. */
export class LocalSender implements Sender {
  readonly #options: SenderOptions;
  readonly #clock: Clock;
  readonly #transport: Transport;
  readonly #slots: LimitFunction;
  /** Compressing waits in a queue that the whole process shares with its look-ups of names: it must not fill it. */
  readonly #encoding = pLimit(8);

  constructor(options: SenderOptions, { clock = systemClock, random = Math.random }: LocalSenderTools = {}) {
    const { endpoints, apiKey, concurrency, policy } = options;
    this.#options = options;
    this.#clock = clock;
    this.#slots = pLimit(concurrency);
    // One more than there are slots, for a look at a judge that keeps all of them waiting.
    const connections = concurrency + 1;
    this.#transport = new Transport({ endpoints, apiKey, connections, policy, clock, random });
  }

  async send(query: SentQuery, { variation, withinMs }: SendOptions, signal?: AbortSignal): Promise<SendResult> {
    // A slot waits for no picture.
    if (signal?.aborted !== true) await this.#encoding(() => encodeImages(query));
    return this.#slots(async () => {
      const started = this.#clock.now();
      const deadline = new Deadline(this.#clock, withinMs, signal);
      try {
        if (deadline.over) return { reply: cancelledReply, attempts: 0, tokens: null, tookMs: 0, over: true };
        const request = await toChatRequest(query, this.#options.model, this.#options.form, variation);
        const { reply, attempts, tokens } = await this.#transport.send(request, deadline);
        const tookMs = this.#clock.now() - started;
        const told = signal?.aborted === true ? cancelledReply : reply;
        return { reply: told, attempts, tokens, tookMs, over: deadline.over };
      } finally {
        deadline.dispose();
      }
    });
  }

  async probe(query: SentQuery, withinMs: number, signal?: AbortSignal): Promise<Reply> {
    const deadline = new Deadline(this.#clock, withinMs, signal);
    try {
      return await this.#transport.probe(await toChatRequest(query, this.#options.model, this.#options.form), deadline);
    } finally {
      deadline.dispose();
    }
  }

  close(): Promise<void> {
    return this.#transport.close();
  }
}

export const openLocalSender: OpenSender = (options) => new LocalSender(options);

/** An image keeps its encoding for the request that will show it. */
async function encodeImages({ messages }: SentQuery): Promise<void> {
  const images = messages.flatMap(({ parts }) => parts.filter((part) => typeof part !== 'string'));
  await Promise.all(images.map((image) => image.dataUrl()));
}
