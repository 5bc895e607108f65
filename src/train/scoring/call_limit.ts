/** `reward.max_judge_calls`: how many requests judges may still get from a run. */
import { JudgeLimitError } from '../../core/errors.js';
import type { JudgeCalls } from '../../rewards/score/types.js';

/**
 * Counts the requests of one process of a run, which has its share of what is left. No question is begun once that is used up. Each that is under way
 * then may still take all of its requests, and the held-out judge the questions of its turn: by so much the limit may be passed.
 */
export class CallLimit implements JudgeCalls {
  /** Of this process, since `asked` was last known. */
  #own = 0;
  /** What of it the others have been told. */
  #told = 0;
  #underWay = 0;
  #refused = false;
  readonly #exhausted = new AbortController();

  /** `asked`: the requests of all processes and attempts so far. */
  constructor(
    readonly limit: number,
    private asked: number,
    private readonly processes: number,
  ) {}

  /** Aborted once a question was refused and none is under way, whose answers are paid for: whoever waits then waits in vain. */
  get exhausted(): AbortSignal {
    return this.#exhausted.signal;
  }

  /** How many questions this process may still begin. */
  get room(): number {
    return Math.floor((this.limit - this.asked) / this.processes) - this.#own - this.#underWay;
  }

  begin(): boolean {
    if (this.room <= 0) {
      this.#refused = true;
      this.#look();
      return false;
    }
    this.#underWay++;
    return true;
  }

  end(requests: number): void {
    this.#underWay--;
    this.#own += requests;
    this.#look();
  }

  /** What this process has to say to the others. */
  report(): CallReport {
    this.#told = this.#own;
    return { own: this.#own, refused: this.#refused };
  }

  /** The requests so far, from what all processes report. Raises JudgeLimitError where one of them had to refuse a question. */
  total(reports: readonly CallReport[]): number {
    const asked = reports.reduce((sum, { own }) => sum + own, this.asked);
    if (!reports.some(({ refused }) => refused)) return asked;
    const shares =
      asked < this.limit && this.processes > 1
        ? `; what is left is too little for the next questions of ${this.processes} processes`
        : '';
    throw new JudgeLimitError(`judge request limit exceeded (${shown(asked)} of ${shown(this.limit)}${shares})`, {
      where: 'reward.max_judge_calls',
      next: 'Raise it or set it to null, and resume the run by its name. Stored judgements are kept, and only missing ones are requested.',
    });
  }

  /** Takes up what all processes have asked, and shares out the rest again. */
  known(asked: number): void {
    this.asked = asked;
    // Questions may have ended since they were told.
    this.#own -= this.#told;
    this.#told = 0;
  }

  #look(): void {
    if (this.#refused && this.#underWay === 0) this.#exhausted.abort();
  }
}

/** Requests of one process since the total was last known. */
export interface CallReport {
  readonly own: number;
  readonly refused: boolean;
}

/** As `12,000`. */
function shown(count: number): string {
  return count.toLocaleString('en-US');
}
