import type { Judgement, JudgementStore } from '../../../src/rewards/score/types.js';

/** Judgements kept in memory only, for work that is not a run (tests, probes, one-off scoring). */
export class MemoryJudgementStore implements JudgementStore {
  readonly #judgements = new Map<string, Judgement>();

  find(key: string, requestHash: string): Judgement | undefined {
    return this.#judgements.get(`${key} ${requestHash}`);
  }

  put(judgement: Judgement): void {
    this.#judgements.set(`${judgement.key} ${judgement.requestHash}`, judgement);
  }

  all(): readonly Judgement[] {
    return [...this.#judgements.values()];
  }
}
