/**
 * Replies from other machines (judgements, sampled answers, images). They are stored as JSON lines before use, and reused when the run resumes. Each line
 * has a `key`, whose first number is the iteration, and the `request_hash` of the request.
 */
import { basename } from 'node:path';
import { REPLY_QUERY, type ExchangeStore, type LineForm, type RemoteExchange } from '../core/remote/exchange.js';
import { must } from '../core/errors.js';
import { LogReader, scanLines } from '../core/log.js';
import { Journal, parseLine } from './journal.js';
import { parseIterationName } from './paths.js';

/** Position of a line in its file, in bytes. */
interface LinePosition {
  readonly offset: number;
  readonly length: number;
}

/**
 * An index of a run's exchanges by iteration. Training never needs earlier iterations. With `from`, the index skips earlier ones and drops them as
 * training proceeds, so it does not grow in a long run.
 */
class ExchangeIndex {
  readonly #byIteration = new Map<number, Map<string, LinePosition>>();

  /** `from` null keeps all. */
  constructor(private readonly from: number | null) {}

  add(key: string, requestHash: string, place: LinePosition): void {
    const iteration = iterationOfKey(key);
    if (this.from !== null && iteration >= 0 && iteration < this.from) return;
    const places = this.#byIteration.get(iteration) ?? new Map<string, LinePosition>();
    this.#byIteration.set(iteration, places.set(placeKey(key, requestHash), place));
  }

  find(key: string, requestHash: string): LinePosition | undefined {
    return this.#byIteration.get(iterationOfKey(key))?.get(placeKey(key, requestHash));
  }

  /** Records an exchange with this key. Keeps the previous iteration, because an evaluation may still need it. */
  forgetBefore(key: string): void {
    if (this.from === null) return;
    const iteration = iterationOfKey(key);
    for (const known of this.#byIteration.keys()) {
      if (known >= 0 && known < iteration - 1) this.#byIteration.delete(known);
    }
  }

  get size(): number {
    return [...this.#byIteration.values()].reduce((sum, { size }) => sum + size, 0);
  }
}

export interface ExchangesOptions {
  /** Whether this process owns the run directory, like rank 0, which writes the lines that other ranks collect. */
  readonly isOwner: boolean;
  /** The first iteration whose exchanges a resumed training needs. Null for any. */
  readonly from: number | null;
}

/**
 * The exchanges of a run. Memory contains only the position of each line. The owner passes a line to the operating system before `put` returns, so a
 * killed process loses no used line. Other ranks see the lines from before they opened the file (the owner must not write meanwhile) and collect new ones.
 */
export class Exchanges<T extends RemoteExchange> implements ExchangeStore<T> {
  readonly #index: ExchangeIndex;
  /** The owner's journal. Null on other ranks. */
  readonly #journal: Journal | null;
  /** Null if there is no file. */
  readonly #log: LogReader | null;
  #collected = new Map<string, T>();

  constructor(
    path: string,
    private readonly form: LineForm<T>,
    { isOwner, from }: ExchangesOptions,
  ) {
    this.#index = new ExchangeIndex(from);
    this.#journal = isOwner ? new Journal(path) : null;
    this.#log = this.#journal?.log ?? LogReader.open(path);
    let number = 0;
    this.#log?.scan((text, offset, length) => {
      const line = parseLine(text, path, ++number) as { readonly key: string; readonly request_hash: string };
      this.#index.add(line.key, line.request_hash, { offset, length });
    });
  }

  /** Number of distinct exchanges on disk. */
  get size(): number {
    return this.#index.size;
  }

  find(key: string, requestHash: string): T | undefined {
    const collected = this.#collected.get(placeKey(key, requestHash));
    const place = this.#index.find(key, requestHash);
    if (collected !== undefined || place === undefined) return collected;
    return this.form.read(must(this.#log, 'the file of an exchange').at(place.offset, place.length));
  }

  put(exchange: T): void {
    const { key, requestHash } = exchange;
    if (this.#journal === null) this.#collected.set(placeKey(key, requestHash), exchange);
    else this.#index.add(key, requestHash, this.#journal.append(this.form.write(exchange)));
    this.#index.forgetBefore(key);
  }

  /** Returns the lines collected since the last call, for the owner to write. */
  take(): T[] {
    const taken = [...this.#collected.values()];
    this.#collected = new Map();
    return taken;
  }

  sync(): void {
    this.#journal?.sync();
  }

  close(): void {
    if (this.#journal === null) this.#log?.close();
    else this.#journal.close();
  }
}

/** Opens the exchanges of a run that continues from a checkpoint, or starts if it is null. `handle` is null except on rank 0. */
export function openExchanges<T extends RemoteExchange>(
  path: string,
  form: LineForm<T>,
  { handle, checkpoint }: { readonly handle: unknown; readonly checkpoint: string | null },
): Exchanges<T> {
  const from = (checkpoint === null ? null : parseIterationName(basename(checkpoint))) ?? 0;
  return new Exchanges(path, form, { isOwner: handle !== null, from });
}

/** The key under which an exchange is stored. */
function placeKey(key: string, requestHash: string): string {
  return `${requestHash} ${key}`;
}

/** The iteration of an exchange, or -1 for none, such as the check of a judge. */
export function iterationOfKey(key: string): number {
  const found = /(?:^|\/)(\d+)\//.exec(key);
  return found === null ? -1 : Number(found[1]);
}

export interface StoredCalls {
  /** Judge requests of all attempts, including retries. */
  readonly requests: number;
  /** Distinct questions from iteration `from` on with stored answers, which a resumed run reuses. */
  readonly known: number;
}

/**
 * Counts a run's judge requests in `judgements.jsonl`. Cancelled questions leave no judgement and are not counted. A fork also counts inherited requests.
 * Raises RunError for an unreadable file.
 */
export function storedCalls(path: string, from = 0): StoredCalls {
  let [requests, number] = [0, 0];
  const known = new Set<string>();
  scanLines(path, (text) => {
    const line = parseLine(text, path, ++number) as {
      readonly key: string;
      readonly request_hash: string;
      readonly attempts?: number;
    };
    if (line.key.endsWith(`/${REPLY_QUERY}`)) return;
    requests += line.attempts ?? 1;
    if (iterationOfKey(line.key) >= from) known.add(placeKey(line.key, line.request_hash));
  });
  return { requests, known: known.size };
}
