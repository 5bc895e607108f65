/**
 * Corrects differences between log-probabilities of sampler and trainer under the weights that sampled.
 * Uses truncated importance weights, min(exp(log p_trainer - log p_sampler), cap) (Ionides, "Truncated importance
 * sampling", 2008). The gradient is then an expectation under the sampler's distribution, and its variance is bounded.
 */
import type { Answer, Group, Statistics } from './policies/policy.js';

/** Maximum exponent, which keeps exp finite. */
const MAX_EXPONENT = 20;
/** If more than this share of actions is truncated, the sampler's distribution is far from the policy's. */
const CUT_ALARM = 0.05;

/** Whether the sampler did not report an answer's log-probabilities. */
export function lacksLogProbs(answer: Answer): boolean {
  return answer.logProbs.length > 0 && answer.logProbs.every(Number.isNaN);
}

/** The importance weights of answers' actions, and their metrics. */
export class ImportanceWeights {
  #count = 0;
  #sum = 0;
  #cutSum = 0;
  #cutSquares = 0;
  #largest = 0;
  #cut = 0;

  constructor(private readonly cap: number) {}

  /**
   * The weights of each group's answers by action, or 1 if the sampler reported nothing. Metrics include only `trained`
   * actions.
   */
  of(
    { answers }: Group<unknown, Answer>,
    old: readonly Statistics[],
    trained: readonly Float32Array[],
  ): Float32Array[] {
    return answers.map((answer, g) => {
      const isUnreported = lacksLogProbs(answer);
      const exponents = Float64Array.from(answer.logProbs, (logProb, t) => old[g].logProbs[t] - logProb);
      return Float32Array.from(exponents, (own, t) => {
        if (isUnreported) return 1;
        const weight = Math.exp(Math.max(-MAX_EXPONENT, Math.min(MAX_EXPONENT, own)));
        if (trained[g][t] !== 0) this.#note(weight);
        return Math.min(weight, this.cap);
      });
    });
  }

  #note(weight: number): void {
    this.#count += 1;
    this.#sum += weight;
    this.#largest = Math.max(this.#largest, weight);
    if (weight > this.cap) this.#cut += 1;
    const applied = Math.min(weight, this.cap);
    this.#cutSum += applied;
    this.#cutSquares += applied ** 2;
  }

  /**
   * Mean and maximum of the weights before truncation, and `importance_ess`: Kish's effective sample size of the
   * truncated weights, (sum w)² / sum w², as a share of the actions. It is 1 if all weights are equal.
   */
  metrics(): Record<string, number> {
    if (this.#count === 0) return {};
    return {
      'policy/importance_mean': this.#sum / this.#count,
      'policy/importance_max': this.#largest,
      'policy/importance_cut': this.#cut / this.#count,
      'policy/importance_ess': this.#cutSquares === 0 ? 0 : this.#cutSum ** 2 / this.#cutSquares / this.#count,
    };
  }

  /** A warning for the user. Null if there is none. */
  get alarm(): string | null {
    const share = this.#cut / Math.max(1, this.#count);
    if (share <= CUT_ALARM) return null;
    return `${(100 * share).toFixed(0)}% of the importance weights exceed rollout.importance_cap (${this.cap}). The server samples with other weights, or in a lower precision`;
  }
}
