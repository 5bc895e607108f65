/**
 * What other machines gave a run (judgements, sampled answers): stored in lines of JSON before it is used, and found again by a resumed
 * run. Each line has a `key`, whose first number is the iteration, and the `request_hash` of what was asked.
 */
import { LogReader } from '../core/log/reader.js';
import type { LogDisk } from '../core/log/writer.js';
import { Journal, parseLine } from './journal.js';
import { iterationOfKey, JudgementFiles, PIECE_BYTES, type Place } from './judgement_files.js';

/** Something that was asked of another machine, with what it gave. */
export interface Exchanged {
  /** What it was asked for: the name of an episode, and more. */
  readonly key: string;
  /** SHA-256 of all that decides the answer. */
  readonly requestHash: string;
}

/** How exchanges of one kind stand in lines. */
export interface LineForm<T extends Exchanged> {
  readonly write: (exchange: T) => { readonly key: string; readonly request_hash: string };
  readonly read: (line: string) => T;
}

/**
 * Where the exchanges of a run lie, by iteration. A training never looks back: where it says from which iteration on it asks, those
 * before are left out, and as it asks for later ones, those before these are forgotten; so the index of a long run does not grow.
 */
export class ExchangeIndex {
  readonly #byIteration = new Map<number, Map<string, Place>>();

  /** A null `from` keeps all. */
  constructor(private readonly from: number | null) {}

  add(key: string, requestHash: string, place: Place): void {
    const iteration = iterationOfKey(key);
    if (this.from !== null && iteration >= 0 && iteration < this.from) return;
    const places = this.#byIteration.get(iteration) ?? new Map<string, Place>();
    this.#byIteration.set(iteration, places.set(placeKey(key, requestHash), place));
  }

  find(key: string, requestHash: string): Place | undefined {
    return this.#byIteration.get(iterationOfKey(key))?.get(placeKey(key, requestHash));
  }

  /** Told that an exchange of this key has been made: an evaluation may still look at the iteration before. */
  reached(key: string): void {
    if (this.from === null) return;
    const iteration = iterationOfKey(key);
    for (const known of this.#byIteration.keys()) {
      if (known >= 0 && known < iteration - 1) this.#byIteration.delete(known);
    }
  }

  /** Told that the current file has become a piece. */
  moved(piece: string): void {
    for (const places of this.#byIteration.values()) {
      for (const [key, place] of places) if (place.piece === null) places.set(key, { ...place, piece });
    }
  }

  get size(): number {
    return [...this.#byIteration.values()].reduce((sum, { size }) => sum + size, 0);
  }
}

/**
 * A run's exchanges on disk. In memory lies only where each line is, so that a long run's texts do not pile up. A line
 * is handed to the operating system before `put` returns: a killed process loses none that it used.
 */
export class FileExchanges<T extends Exchanged> {
  readonly #files: JudgementFiles;
  readonly #index: ExchangeIndex;
  #journal: Journal;
  #bytes = 0;
  /** The latest iteration of which an exchange is stored. */
  #last = -1;

  /**
   * `from` is the first iteration whose exchanges are asked for, by a training that goes on from it; then what lies further back is made
   * pieces of. Null for any.
   */
  constructor(
    path: string,
    private readonly form: LineForm<T>,
    private readonly from: number | null = null,
    private readonly options: { readonly disk?: LogDisk; readonly pieceBytes?: number } = {},
  ) {
    this.#files = new JudgementFiles(path);
    this.#journal = new Journal(path, options.disk);
    this.#index = new ExchangeIndex(from);
    let number = 0;
    this.#files.scan(from, this.#journal.log, (text, place, file) => {
      if (place.offset === 0) number = 0;
      number++;
      const line = parseLine(text, file, number) as { readonly key: string; readonly request_hash: string };
      this.#index.add(line.key, line.request_hash, place);
      if (place.piece === null) this.#appended(line.key, place.offset + place.length);
    });
  }

  /** How many different exchanges are found. */
  get size(): number {
    return this.#index.size;
  }

  find(key: string, requestHash: string): T | undefined {
    const place = this.#index.find(key, requestHash);
    if (place === undefined) return undefined;
    const { piece, offset, length } = place;
    return this.form.read(piece === null ? this.#journal.log.at(offset, length) : this.#files.read(piece, place));
  }

  put(exchange: T): void {
    if (this.from !== null && this.#bytes >= (this.options.pieceBytes ?? PIECE_BYTES)) this.#rotate();
    const { offset, length } = this.#journal.append(this.form.write(exchange));
    this.#index.add(exchange.key, exchange.requestHash, { piece: null, offset, length });
    this.#index.reached(exchange.key);
    this.#appended(exchange.key, offset + length);
  }

  sync(): void {
    this.#journal.sync();
  }

  close(): void {
    this.#journal.close();
  }

  #appended(key: string, end: number): void {
    this.#bytes = end;
    this.#last = Math.max(this.#last, iterationOfKey(key));
  }

  #rotate(): void {
    const { path } = this.#journal;
    this.#journal.sync();
    this.#journal.close();
    this.#index.moved(this.#files.rotate(this.#last));
    this.#journal = new Journal(path, this.options.disk);
    this.#bytes = 0;
  }
}

/**
 * Those of a rank that does not own the run directory: found where rank 0 keeps them, and collected to be handed to rank 0. Reads what was
 * stored when it was opened; rank 0 must not write meanwhile.
 */
export class CollectedExchanges<T extends Exchanged> {
  readonly #index: ExchangeIndex;
  readonly #files: JudgementFiles;
  readonly #log: LogReader | null;
  #collected = new Map<string, T>();

  /** `from` is the first iteration whose exchanges are asked for; null for any. */
  constructor(
    path: string,
    private readonly form: LineForm<T>,
    from: number | null = null,
  ) {
    this.#index = new ExchangeIndex(from);
    this.#files = new JudgementFiles(path);
    this.#log = LogReader.open(path);
    this.#files.scan(from, this.#log, (line, place) => {
      const { key, requestHash } = form.read(line);
      this.#index.add(key, requestHash, place);
    });
  }

  find(key: string, requestHash: string): T | undefined {
    const name = placeKey(key, requestHash);
    const place = this.#index.find(key, requestHash);
    const collected = this.#collected.get(name);
    if (collected !== undefined || place === undefined) return collected;
    if (place.piece !== null) return this.form.read(this.#files.read(place.piece, place));
    return this.#log === null ? undefined : this.form.read(this.#log.at(place.offset, place.length));
  }

  put(exchange: T): void {
    this.#collected.set(placeKey(exchange.key, exchange.requestHash), exchange);
    this.#index.reached(exchange.key);
  }

  /** What came since the last call. */
  take(): T[] {
    const taken = [...this.#collected.values()];
    this.#collected = new Map();
    return taken;
  }

  close(): void {
    this.#log?.close();
  }
}

/** What an exchange is found by. */
function placeKey(key: string, requestHash: string): string {
  return `${requestHash} ${key}`;
}
