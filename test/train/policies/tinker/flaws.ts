/** What a stand-in of a training server computes wrongly, without an error. */
import { RandomStream } from '../../../../src/core/random.js';
import type { State } from './bigrams.js';
import type { StubSample } from './stub_messages.js';

export type Flaw =
  /** The trainer leaves out a log-probability. */
  | 'short_trainer'
  /** The sampler leaves out a log-probability. */
  | 'short_sampler'
  /** The trainer tells the log-probability of the token before. */
  | 'shifted_trainer'
  | 'shifted_sampler'
  /** The sampler has another model beneath the adapter. */
  | 'other_sampler'
  /** The token that ends an answer is not given. */
  | 'end_left_out'
  /** An answer that ends is said to be cut off. */
  | 'end_unsaid'
  | 'stop_ignored'
  | 'wrong_sign'
  /** No step changes anything. */
  | 'no_step'
  /** The sampler has the weights from before any step. */
  | 'stale'
  /** Whoever samples with a version of the weights leaves it where the trained ones are, as SkyRL's JAX backend does. */
  | 'one_place'
  /** Losses are divided by the square of how many tokens there are. */
  | 'squares';

type Flawed<T> = Partial<Record<Flaw, (right: T) => T>>;

/** Applies a flaw where it concerns this. */
export function flawed<T>(flaw: Flaw | null, all: Flawed<T>, right: T): T {
  return (flaw === null ? undefined : all[flaw])?.(right) ?? right;
}

export const logProbFlaws: Flawed<number[][]> = {
  short_trainer: ([first, ...rest]) => [first.slice(1), ...rest],
  shifted_trainer: (all) => all.map((one) => [0, ...one.slice(0, -1)]),
};

const sequences =
  (change: (one: StubSample['sequences'][number]) => StubSample['sequences'][number]) =>
  (right: StubSample): StubSample => ({ ...right, sequences: right.sequences.map(change) });
export const sampleFlaws: Flawed<StubSample> = {
  short_sampler: sequences((one) => ({ ...one, logprobs: one.logprobs.slice(1) })),
  shifted_sampler: sequences((one) => ({ ...one, logprobs: [...one.logprobs.slice(1), -1] })),
  end_left_out: sequences((one) =>
    one.stop_reason === 'length'
      ? one
      : { ...one, tokens: one.tokens.slice(0, -1), logprobs: one.logprobs.slice(0, -1) },
  ),
  end_unsaid: sequences((one) => ({ ...one, stop_reason: 'length' })),
};

/** Another model's weights, which change as much as the right ones. */
export function otherModel(state: State): State {
  const random = new RandomStream('another model');
  return { ...state, weights: state.weights.map((one) => one + random.normal()) };
}
