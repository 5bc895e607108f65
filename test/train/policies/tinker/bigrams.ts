/** A language model small enough to compute by hand: the next token depends on the one before alone. Gradients and AdamW are in float64. */
import { RandomStream } from '../../../../src/core/random.js';

export interface Adam {
  readonly learning_rate: number;
  readonly beta1: number;
  readonly beta2: number;
  readonly eps: number;
  readonly weight_decay: number;
  readonly grad_clip_norm: number;
}

/** What is saved of a model. */
export interface State {
  readonly weights: readonly number[];
  readonly first: readonly number[];
  readonly second: readonly number[];
  readonly steps: number;
}

export class Bigrams {
  #weights: number[];
  #first: number[];
  #second: number[];
  #gradient: number[];
  /** Datums since the last step. */
  #datums = 0;
  steps = 0;

  constructor(readonly vocabulary: number) {
    const random = new RandomStream('bigrams', vocabulary);
    this.#weights = Array.from({ length: vocabulary ** 2 }, () => random.normal());
    [this.#first, this.#second, this.#gradient] = [0, 1, 2].map(() => this.#weights.map(() => 0));
  }

  get state(): State {
    return { weights: [...this.#weights], first: [...this.#first], second: [...this.#second], steps: this.steps };
  }

  set state({ weights, first, second, steps }: State) {
    [this.#weights, this.#first, this.#second] = [[...weights], [...first], [...second]];
    this.#gradient = weights.map(() => 0);
    this.#datums = 0;
    this.steps = steps;
  }

  /** Has the weights of another from then on, and nothing else of it. */
  take({ state: { weights } }: Bigrams): void {
    this.#weights = [...weights];
  }

  /** Log-probabilities of every token after `before`. */
  after(before: number, temperature = 1): number[] {
    const scores = this.#weights
      .slice(before * this.vocabulary, (before + 1) * this.vocabulary)
      .map((score) => score / temperature);
    const most = Math.max(...scores);
    const log = most + Math.log(scores.reduce((sum, score) => sum + Math.exp(score - most), 0));
    return scores.map((score) => score - log);
  }

  /** Adds `slope` times the gradient of log p(target | before). */
  push(before: number, target: number, slope: number): void {
    if (slope === 0) return;
    this.after(before).forEach((logProb, i) => {
      this.#gradient[before * this.vocabulary + i] += slope * ((i === target ? 1 : 0) - Math.exp(logProb));
    });
  }

  /** What was pushed since the last step. */
  get pending(): readonly number[] {
    return this.#gradient;
  }

  /** Begins with what another model was pushed by. */
  inherit({ pending }: Bigrams): void {
    this.#gradient = [...pending];
  }

  /** Whether anything was learnt since the last step. */
  get hasLearned(): boolean {
    return this.#datums > 0;
  }

  count(datums: number): void {
    this.#datums += datums;
  }

  /** @returns the norm of the gradient before clipping. */
  step(adam: Adam, averages: boolean): number {
    const scale = averages ? 1 / this.#datums : 1;
    const gradient = this.#gradient.map((one) => one * scale);
    const norm = Math.hypot(...gradient);
    const clip = adam.grad_clip_norm > 0 ? Math.min(1, adam.grad_clip_norm / (norm + 1e-6)) : 1;
    this.steps += 1;
    const [first, second] = [1 - adam.beta1 ** this.steps, 1 - adam.beta2 ** this.steps];
    gradient.forEach((raw, i) => {
      const one = raw * clip;
      this.#first[i] = adam.beta1 * this.#first[i] + (1 - adam.beta1) * one;
      this.#second[i] = adam.beta2 * this.#second[i] + (1 - adam.beta2) * one * one;
      const change = this.#first[i] / first / (Math.sqrt(this.#second[i] / second) + adam.eps);
      this.#weights[i] -= adam.learning_rate * (change + adam.weight_decay * this.#weights[i]);
    });
    this.#gradient = this.#gradient.map(() => 0);
    this.#datums = 0;
    return norm;
  }
}
