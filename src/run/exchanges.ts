/**
 * What other machines gave a run (judgements, sampled answers, pictures): stored as JSON lines before it is used, and found again when the run
 * resumes. Each line has a `key`, whose first number is the iteration, and the `request_hash` of what was asked.
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
 * Finds the exchanges of a run, by iteration. A training never looks back. If it says from which iteration on it asks, earlier ones are left out, and
 * as it moves on, those before are forgotten, so that the index of a long run does not grow.
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

  /** Notes that an exchange with this key has been made; the iteration before is kept, because an evaluation may still need it. */
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
  /** Whether this process owns the run directory, as rank 0 does: it writes what the other ranks collect and hand to it. */
  readonly isOwner: boolean;
  /** The first iteration whose exchanges a training that continues will ask for; null for any. */
  readonly from: number | null;
}

/**
 * The exchanges of a run. Only the position of each line is in memory, so that the texts of a long run do not pile up. The owner hands a line to the
 * operating system before `put` returns, so a killed process loses none that it used. Another rank finds what was stored when it was opened (the
 * owner must not write meanwhile) and collects what it puts.
 */
export class Exchanges<T extends RemoteExchange> implements ExchangeStore<T> {
  readonly #index: ExchangeIndex;
  /** The owner's journal; null on other ranks. */
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

  /** How many distinct exchanges are on disk. */
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

  /** Returns what was collected since the last call, for the owner to put. */
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

/** Opens the exchanges of a run that continues from a checkpoint, or starts if that is null. `handle` is null except on rank 0. */
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

/** The iteration that an exchange belongs to; -1 if it belongs to none, such as the judge's own check. */
export function iterationOfKey(key: string): number {
  const found = /(?:^|\/)(\d+)\//.exec(key);
  return found === null ? -1 : Number(found[1]);
}

export interface StoredCalls {
  /** Requests that judges got in all attempts, including repeated ones. */
  readonly requests: number;
  /** Different questions of the iteration `from` and later ones whose stored answers a run that continues there need not ask for. */
  readonly known: number;
}

/**
 * Counts a run's requests to its judges in `judgements.jsonl`. Canceled questions left no judgement and are not counted. A fork counts those that it
 * took over. Raises RunError for a file that cannot be read.
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
