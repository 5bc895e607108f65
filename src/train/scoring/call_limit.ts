/** Enforces `reward.max_judge_calls`, the limit of a run's judge requests. */
import { JudgeLimitError } from '../../core/errors.js';
import type { JudgeCalls } from '../../rewards/score/types.js';

/**
 * Counts the judge requests of one process. Each process gets an equal share of the remaining requests, and starts no
 * question beyond it. Retries of questions in progress may still exceed the limit, and so may the held-out judge.
 */
export class CallLimit implements JudgeCalls {
  /** Requests of this process since `asked` was last updated. */
  #own = 0;
  /** The part of them that was reported to the others. */
  #reported = 0;
  #underWay = 0;
  #refused = false;
  readonly #exhausted = new AbortController();

  /** `asked` is the number of requests of all processes and attempts so far. */
  constructor(
    readonly limit: number,
    private requested: number,
    private readonly processes: number,
  ) {}

  /**
   * Aborted once a question was rejected and none is in progress. Replies in progress are already paid for. Nothing else
   * is worth waiting for.
   */
  get exhausted(): AbortSignal {
    return this.#exhausted.signal;
  }

  /** Number of questions that this process may still begin. */
  get room(): number {
    return Math.floor((this.limit - this.requested) / this.processes) - this.#own - this.#underWay;
  }

  begin(): boolean {
    if (this.room <= 0) {
      this.#refused = true;
      this.#checkExhausted();
      return false;
    }
    this.#underWay++;
    return true;
  }

  end(requests: number): void {
    this.#underWay--;
    this.#own += requests;
    this.#checkExhausted();
  }

  /** The requests of this process since the last update, to report to the others. */
  report(): CallReport {
    this.#reported = this.#own;
    return { own: this.#own, refused: this.#refused };
  }

  /**
   * Total requests so far, from all processes' reports. Raises JudgeLimitError if a process had to reject a question.
   */
  total(reports: readonly CallReport[]): number {
    const totalCount = reports.reduce((sum, { own }) => sum + own, this.requested);
    if (!reports.some(({ refused }) => refused)) return totalCount;
    const shares =
      totalCount < this.limit && this.processes > 1
        ? `; what is left is too little for the next questions of ${this.processes} processes`
        : '';
    throw new JudgeLimitError(`judge request limit exceeded (${shown(totalCount)} of ${shown(this.limit)}${shares})`, {
      where: 'reward.max_judge_calls',
      next: 'Raise it or set it to null, and resume the run by its name. Stored judgements are kept, and only missing ones are requested.',
    });
  }

  /** Updates the total and divides the remaining requests again. */
  known(requested: number): void {
    this.requested = requested;
    // Questions may have ended since the report.
    this.#own -= this.#reported;
    this.#reported = 0;
  }

  #checkExhausted(): void {
    if (this.#refused && this.#underWay === 0) this.#exhausted.abort();
  }
}

/** Requests of one process since the total was last updated. */
export interface CallReport {
  readonly own: number;
  readonly refused: boolean;
}

/** Formats a count as `12,000`. */
function shown(count: number): string {
  return count.toLocaleString('en-US');
}
