/** `judgements.jsonl`: every exchange with a judge, stored before it is used and found again by a resumed run. */
import type { Judgement, JudgementStore } from '../rewards/score/types.js';
import { Journal, parseLine, type JournalDisk } from './journal.js';
import { iterationOfKey, JudgementFiles, PIECE_BYTES, type Place } from './judgement_files.js';
import type { RunPaths } from './paths.js';

interface JudgementLine {
  readonly key: string;
  readonly request_hash: string;
  readonly model: string;
  readonly prompt_hash?: string;
  readonly text: string;
  readonly problem: Judgement['problem'];
  readonly detail?: string;
  readonly scores: readonly number[];
  readonly left_out?: readonly string[];
  readonly attempts: number;
  readonly latency_ms: number;
}

/**
 * Where the judgements of a run lie, by iteration. A training never looks back: where it says from which iteration on it asks, those
 * before are left out, and as it asks for later ones, those before these are forgotten; so the index of a long run does not grow.
 */
export class JudgementIndex {
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

  /** Told that a judgement of this key has been made: an evaluation may still look at the iteration before. */
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
 * A run's judgements on disk. In memory lies only where each line is, so that a long run's texts do not pile up. A line
 * is handed to the operating system before `put` returns: a killed process loses none that it used.
 */
export class FileJudgementStore implements JudgementStore {
  readonly #files: JudgementFiles;
  readonly #index: JudgementIndex;
  #journal: Journal;
  #bytes = 0;
  /** The latest iteration of which a judgement is stored. */
  #last = -1;

  /**
   * `from` is the first iteration whose judgements are asked for, by a training that goes on from it; then what lies further back is made
   * pieces of. Null for any.
   */
  constructor(
    paths: Pick<RunPaths, 'judgements'>,
    private readonly from: number | null = null,
    private readonly options: { readonly disk?: JournalDisk; readonly pieceBytes?: number } = {},
  ) {
    this.#files = new JudgementFiles(paths.judgements);
    this.#journal = new Journal(paths.judgements, options.disk);
    this.#index = new JudgementIndex(from);
    let number = 0;
    this.#files.scan(from, this.#journal.descriptor, (text, place, file) => {
      if (place.offset === 0) number = 0;
      number++;
      const line = parseLine(text, file, number) as unknown as JudgementLine;
      this.#index.add(line.key, line.request_hash, place);
      if (place.piece === null) this.#appended(line.key, place.offset + place.length);
    });
  }

  /** How many different judgements are found. */
  get size(): number {
    return this.#index.size;
  }

  find(key: string, requestHash: string): Judgement | undefined {
    const place = this.#index.find(key, requestHash);
    if (place === undefined) return undefined;
    const { piece, offset, length } = place;
    return readJudgement(piece === null ? this.#journal.readAt(offset, length) : this.#files.read(piece, place));
  }

  put(judgement: Judgement): void {
    const line: JudgementLine = {
      key: judgement.key,
      request_hash: judgement.requestHash,
      model: judgement.model,
      ...(judgement.promptHash === undefined ? {} : { prompt_hash: judgement.promptHash }),
      text: judgement.text,
      problem: judgement.problem,
      ...(judgement.detail === undefined ? {} : { detail: judgement.detail }),
      scores: judgement.scores,
      ...(judgement.leftOut === undefined ? {} : { left_out: judgement.leftOut }),
      attempts: judgement.attempts,
      latency_ms: judgement.latencyMs,
    };
    if (this.from !== null && this.#bytes >= (this.options.pieceBytes ?? PIECE_BYTES)) this.#rotate();
    const { offset, length } = this.#journal.append(line);
    this.#index.add(judgement.key, judgement.requestHash, { piece: null, offset, length });
    this.#index.reached(judgement.key);
    this.#appended(judgement.key, offset + length);
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

/** One line of `judgements.jsonl`. */
export function readJudgement(text: string): Judgement {
  const line = JSON.parse(text) as JudgementLine;
  return {
    key: line.key,
    requestHash: line.request_hash,
    model: line.model,
    ...(line.prompt_hash === undefined ? {} : { promptHash: line.prompt_hash }),
    text: line.text,
    problem: line.problem,
    ...(line.detail === undefined ? {} : { detail: line.detail }),
    scores: line.scores,
    ...(line.left_out === undefined ? {} : { leftOut: line.left_out }),
    attempts: line.attempts,
    latencyMs: line.latency_ms,
  };
}

/** What a judgement is found by. */
export function placeKey(key: string, requestHash: string): string {
  return `${requestHash} ${key}`;
}
