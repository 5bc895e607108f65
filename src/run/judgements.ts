/** `judgements.jsonl`: every exchange with a judge, stored before it is used and found again by a resumed run. */
import type { Judgement, JudgementStore } from '../rewards/types.js';
import { Journal, parseLine, scanLines, type JournalDisk } from './journal.js';
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
  readonly attempts: number;
  readonly latency_ms: number;
}

/**
 * A run's judgements on disk. In memory lies only where each line is, so that a long run's texts do not pile up. A line
 * is handed to the operating system before `put` returns: a killed process loses none that it used.
 */
export class FileJudgementStore implements JudgementStore {
  readonly #journal: Journal;
  readonly #places = new Map<string, { offset: number; length: number }>();

  constructor(paths: Pick<RunPaths, 'judgements'>, disk?: JournalDisk) {
    this.#journal = new Journal(paths.judgements, disk);
    let number = 0;
    scanLines(paths.judgements, (text, offset, length) => {
      number++;
      const line = parseLine(text, paths.judgements, number) as unknown as JudgementLine;
      this.#places.set(placeKey(line.key, line.request_hash), { offset, length });
    });
  }

  /** How many different judgements are stored. */
  get size(): number {
    return this.#places.size;
  }

  find(key: string, requestHash: string): Judgement | undefined {
    const place = this.#places.get(placeKey(key, requestHash));
    if (place === undefined) return undefined;
    return readJudgement(this.#journal.readAt(place.offset, place.length));
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
      attempts: judgement.attempts,
      latency_ms: judgement.latencyMs,
    };
    const { offset, length } = this.#journal.append(line);
    this.#places.set(placeKey(judgement.key, judgement.requestHash), { offset, length });
  }

  sync(): void {
    this.#journal.sync();
  }

  close(): void {
    this.#journal.close();
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
    attempts: line.attempts,
    latencyMs: line.latency_ms,
  };
}

/** What a judgement is found by. */
export function placeKey(key: string, requestHash: string): string {
  return `${requestHash} ${key}`;
}
