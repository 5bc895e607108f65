/**
 * Sends from a thread of its own: compressing pictures, writing requests and reading replies then cost the caller's thread no more than
 * handing over the pixels. Onnxruntime holds that thread for the length of each of its runs, and a slot of the judge must not stand idle
 * meanwhile.
 */
import { Worker } from 'node:worker_threads';
import { InternalError } from '../../core/errors.js';
import type { Reply } from './completion.js';
import type { JudgeMessage } from './judge.js';
import type { ShownPicture } from './images.js';
import { cancelledReply } from './completion.js';
import type { OpenSender, Sender, SenderOptions, SendOptions, SendResult, SentQuery } from './sender.js';
import { allowManyListeners } from '../../core/clock.js';

/** A query as plain data. */
export type PlainQuery = Omit<SentQuery, 'messages'> & {
  readonly messages: readonly {
    readonly role: JudgeMessage['role'];
    readonly parts: readonly (string | ShownPicture)[];
  }[];
};

/** What the thread is told; each message is answered once but `abort`, which names those that it ends. */
export type ToThread =
  | { readonly kind: 'send'; readonly id: number; readonly query: PlainQuery; readonly sending: SendOptions }
  | {
      readonly kind: 'probe';
      readonly id: number;
      readonly query: PlainQuery;
      readonly withinMs: number;
    }
  | { readonly kind: 'abort'; readonly ids: readonly number[] }
  | { readonly kind: 'close'; readonly id: number };

/** `failed`: what went wrong in the thread itself, with its stack. */
export type FromThread =
  { readonly id: number; readonly answer: unknown } | { readonly id: number; readonly failed: string };

interface Pending {
  resolve(answer: unknown): void;
  reject(error: Error): void;
}

/** Keeps the process alive only while something is asked of it. */
export class ThreadSender implements Sender {
  readonly #worker: Worker;
  readonly #pending = new Map<number, Pending>();
  #calledOff: number[] = [];
  #messages = 0;
  /** Why nothing can be asked any more. */
  #dead: Error | null = null;
  #closing: Promise<void> | null = null;

  /** @param script the thread's own file, where it does not lie beside this one. */
  constructor(options: SenderOptions, script = new URL('./sender_thread_main.js', import.meta.url)) {
    this.#worker = new Worker(script, { workerData: options });
    this.#worker.on('message', (message: FromThread) => this.#settle(message));
    this.#worker.on('error', (cause) => this.#fail(`failed: ${cause.message}`, cause));
    this.#worker.on('messageerror', (cause) => {
      this.#fail(`sent what cannot be read: ${cause.message}`, cause);
      void this.#worker.terminate();
    });
    this.#worker.on('exit', (code) => this.#fail(`ended (exit code ${code})`));
    this.#worker.unref();
  }

  async send(query: SentQuery, sending: SendOptions, signal?: AbortSignal): Promise<SendResult> {
    // The thread would begin with the pictures before it hears of it.
    if (signal?.aborted === true) return { reply: cancelledReply, attempts: 0, tokens: null, tookMs: 0, over: true };
    return (await this.#ask((id) => ({ kind: 'send', id, query: plain(query), sending }), signal)) as SendResult;
  }

  async probe(query: SentQuery, withinMs: number, signal?: AbortSignal): Promise<Reply> {
    return (await this.#ask((id) => ({ kind: 'probe', id, query: plain(query), withinMs }), signal)) as Reply;
  }

  close(): Promise<void> {
    return (this.#closing ??= this.#close());
  }

  async #close(): Promise<void> {
    const told = this.#dead === null ? this.#ask((id) => ({ kind: 'close', id })) : null;
    this.#dead ??= new InternalError("the judge's thread was told to end");
    // A thread that ends before it answers has nothing left to close.
    await told?.catch(() => undefined);
    await this.#worker.terminate();
  }

  async #ask(message: (id: number) => ToThread, signal?: AbortSignal): Promise<unknown> {
    if (this.#dead !== null) throw this.#dead;
    const id = this.#messages++;
    const tell = (said: ToThread): void => this.#worker.postMessage(said);
    const abort = (): void => this.#callOff(id);
    if (signal !== undefined) {
      // As many requests as are under way hang on one signal, which is no leak.
      allowManyListeners(signal);
      signal.addEventListener('abort', abort);
    }
    try {
      return await new Promise((resolve, reject) => {
        // Told first: what cannot be told is not waited for.
        tell(message(id));
        this.#pending.set(id, { resolve, reject });
        this.#worker.ref();
        if (signal?.aborted === true) abort();
      });
    } finally {
      signal?.removeEventListener('abort', abort);
    }
  }

  /** All that one signal ends is told at once: the place of a question that has ended is taken by the next. */
  #callOff(id: number): void {
    if (this.#calledOff.push(id) > 1) return;
    queueMicrotask(() => {
      const ids = this.#calledOff;
      this.#calledOff = [];
      this.#worker.postMessage({ kind: 'abort', ids } satisfies ToThread);
    });
  }

  #settle(message: FromThread): void {
    const pending = this.#pending.get(message.id);
    this.#pending.delete(message.id);
    if (this.#pending.size === 0) this.#worker.unref();
    if ('failed' in message) pending?.reject(new InternalError(`in the judge's thread: ${message.failed}`));
    else pending?.resolve(message.answer);
  }

  #fail(what: string, cause?: Error): void {
    this.#dead ??= new InternalError(`the judge's thread ${what}`, cause === undefined ? {} : { cause });
    for (const pending of this.#pending.values()) pending.reject(this.#dead);
    this.#pending.clear();
  }
}

export const openThreadSender: OpenSender = (options) => new ThreadSender(options);

function plain(query: SentQuery): PlainQuery {
  const { format, temperature, maxCompletionTokens, topLogprobs } = query;
  const messages = query.messages.map(({ role, parts }) => ({
    role,
    parts: parts.map((part) => (typeof part === 'string' ? part : part.picture)),
  }));
  const rest = { messages, format, temperature, maxCompletionTokens };
  return topLogprobs === undefined ? rest : { ...rest, topLogprobs };
}
