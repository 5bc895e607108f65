/**
 * What other machines gave a run (judgements, sampled answers, pictures): stored as JSON lines before it is used, and found again when the run
 * resumes. Each line has a `key`, whose first number is the iteration, and the `request_hash` of what was asked.
 */
import { basename } from 'node:path';
import type { RemoteExchange, ExchangeStore } from '../balance/exchange.js';
import { must } from '../core/errors.js';
import { LogReader } from '../core/log/reader.js';
import type { LogDisk } from '../core/log/writer.js';
import type { SampledAnswer } from '../policies/tokens/vllm/sampler.js';
import type { Judgement } from '../rewards/score/types.js';
import { Journal, parseLine } from './journal.js';
import { iterationOfKey, JudgementFiles, PIECE_BYTES, type LinePosition } from './judgement_files.js';
import { parseIterationName } from './paths.js';

/** How exchanges of one kind are written as lines. */
export interface LineForm<T extends RemoteExchange> {
  readonly write: (exchange: T) => Readonly<Record<string, unknown>>;
  /** Raises SyntaxError for a line that is not JSON. */
  readonly read: (line: string) => T;
}

/** A form whose fields have these names, in this order. Undefined fields are not written, and missing ones stay missing. */
export function lineForm<T extends RemoteExchange>(names: { readonly [K in keyof T]-?: string }): LineForm<T> {
  const all = Object.entries<string>(names);
  const renamed = (fields: object, pairs: readonly (readonly [string, string])[]): Record<string, unknown> =>
    Object.fromEntries(
      pairs.flatMap(([from, to]) => {
        const value = (fields as Readonly<Record<string, unknown>>)[from];
        return value === undefined ? [] : [[to, value]];
      }),
    );
  const back = all.map(([own, stored]) => [stored, own] as const);
  return {
    write: (exchange) => renamed(exchange, all),
    read: (line) => renamed(JSON.parse(line) as object, back) as unknown as T,
  };
}

/** `judgements.jsonl`. */
export const judgementForm = lineForm<Judgement>({
  key: 'key',
  requestHash: 'request_hash',
  model: 'model',
  promptHash: 'prompt_hash',
  text: 'text',
  problem: 'problem',
  detail: 'detail',
  scores: 'scores',
  attempts: 'attempts',
  latencyMs: 'latency_ms',
  tokens: 'tokens',
});

/** `answers.jsonl`: what a server sampled. */
export const answerForm = lineForm<SampledAnswer>({
  key: 'key',
  requestHash: 'request_hash',
  ids: 'ids',
  logProbs: 'log_probs',
  finished: 'finished',
});

/**
 * Finds the exchanges of a run, by iteration. A training never looks back. If it says from which iteration on it asks, earlier ones are left out, and
 * as it moves on, those before are forgotten, so that the index of a long run does not grow.
 */
export class ExchangeIndex {
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

  /** Notes that the current file has become a piece. */
  fileRotated(piece: string): void {
    for (const places of this.#byIteration.values()) {
      for (const [key, place] of places) if (place.piece === null) places.set(key, { ...place, piece });
    }
  }

  get size(): number {
    return [...this.#byIteration.values()].reduce((sum, { size }) => sum + size, 0);
  }
}

export interface ExchangesOptions {
  /** Whether this process owns the run directory, as rank 0 does: it writes what the other ranks collect and hand to it. */
  readonly isOwner: boolean;
  /**
   * The first iteration whose exchanges a training that continues will ask for; the owner then packs earlier ones into pieces. Null for any.
   */
  readonly from: number | null;
  readonly disk?: LogDisk;
  readonly pieceBytes?: number;
}

/**
 * The exchanges of a run. Only the position of each line is in memory, so that the texts of a long run do not pile up. The owner hands a line to the
 * operating system before `put` returns, so a killed process loses none that it used. Another rank finds what was stored when it was opened (the
 * owner must not write meanwhile) and collects what it puts.
 */
export class Exchanges<T extends RemoteExchange> implements ExchangeStore<T> {
  readonly #files: JudgementFiles;
  readonly #index: ExchangeIndex;
  /** The owner's journal. */
  #journal: Journal | null = null;
  /** The current file, for a rank that is not the owner; null if there is none. */
  readonly #log: LogReader | null = null;
  #collected = new Map<string, T>();
  #bytes = 0;
  /** The latest iteration that has an exchange in the owner's current file. */
  #last = -1;

  constructor(
    private readonly path: string,
    private readonly form: LineForm<T>,
    private readonly options: ExchangesOptions,
  ) {
    const { isOwner, from, disk } = options;
    this.#files = new JudgementFiles(path);
    this.#index = new ExchangeIndex(from);
    if (isOwner) this.#journal = new Journal(path, disk);
    else this.#log = LogReader.open(path);
    let number = 0;
    this.#files.scan(from, this.#current, (text, place, file) => {
      if (place.offset === 0) number = 0;
      number++;
      const line = parseLine(text, file, number) as { readonly key: string; readonly request_hash: string };
      this.#index.add(line.key, line.request_hash, place);
      if (place.piece === null) this.#appended(line.key, place.offset + place.length);
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
    const { piece, offset, length } = place;
    if (piece !== null) return this.form.read(this.#files.read(piece, place));
    return this.form.read(must(this.#current, 'the file of an exchange that is found in it').at(offset, length));
  }

  put(exchange: T): void {
    const { key, requestHash } = exchange;
    if (this.#journal === null) {
      this.#collected.set(placeKey(key, requestHash), exchange);
    } else {
      const { from, pieceBytes = PIECE_BYTES } = this.options;
      if (from !== null && this.#bytes >= pieceBytes) this.#journal = this.#rotate(this.#journal);
      const { offset, length } = this.#journal.append(this.form.write(exchange));
      this.#index.add(key, requestHash, { piece: null, offset, length });
      this.#appended(key, offset + length);
    }
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
    this.#journal?.close();
    this.#log?.close();
  }

  get #current(): LogReader | null {
    return this.#journal?.log ?? this.#log;
  }

  #appended(key: string, end: number): void {
    this.#bytes = end;
    this.#last = Math.max(this.#last, iterationOfKey(key));
  }

  #rotate(journal: Journal): Journal {
    journal.sync();
    journal.close();
    this.#index.fileRotated(this.#files.rotate(this.#last));
    this.#bytes = 0;
    return new Journal(this.path, this.options.disk);
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
