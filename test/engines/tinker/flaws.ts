/** What a stand-in of a training server computes wrongly, without an error. */
import { RandomStream } from '../../../src/core/random.js';
import type { State } from './bigrams.js';
import type { StubSample } from './stub_messages.js';
import type { StubEyes } from './stub_pictures.js';

export const FLAWS = [
  /** The trainer leaves out a log-probability. */
  'short_trainer',
  /** The sampler leaves out a log-probability. */
  'short_sampler',
  'short_prompts',
  /** The trainer tells the log-probability of the token before. */
  'shifted_trainer',
  'shifted_sampler',
  'shifted_prompts',
  /** The sampler has another model beneath the adapter. */
  'other_sampler',
  /** Base-model sampling is of another model. */
  'other_base',
  /** The token that ends an answer is not given. */
  'end_left_out',
  /** An answer that ends is said to be cut off. */
  'end_unsaid',
  'stop_ignored',
  'wrong_sign',
  /** No step changes anything. */
  'no_step',
  /** The sampler has the weights from before any step. */
  'stale',
  /** Whoever samples with a version of the weights leaves it where the trained ones are, as SkyRL's JAX backend does. */
  'one_place',
  /** Pictures are left out by whoever trains and samples, as in SkyRL's JAX backend. */
  'pictures_dropped',
  /** By whoever samples alone, as in SkyRL where trainer and sampler are apart. */
  'pictures_dropped_by_sampler',
  /** By base-model sampling alone. */
  'pictures_dropped_by_base',
  /** They have their tokens, and what they show changes nothing. */
  'pictures_unseen',
  /** They have one token more than ours, which is refused, or not noticed. */
  'pictures_resized',
  'pictures_resized_silently',
  /** Losses are divided by the square of how many tokens there are. */
  'squares',
] as const;
export type Flaw = (typeof FLAWS)[number];

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
const prompts =
  (change: (told: readonly (number | null)[]) => readonly (number | null)[]) =>
  (right: StubSample): StubSample => {
    const { prompt_logprobs: told } = right;
    return { ...right, prompt_logprobs: told === null ? null : change(told) };
  };

export const sampleFlaws: Flawed<StubSample> = {
  short_sampler: sequences((one) => ({ ...one, logprobs: one.logprobs.slice(1) })),
  short_prompts: prompts((told) => told.slice(2)),
  shifted_sampler: sequences((one) => ({ ...one, logprobs: [...one.logprobs.slice(1), -1] })),
  shifted_prompts: prompts((told) => [...told.slice(1), -1]),
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

/** What is wrong with its eyes where it trains, samples, or samples with the base model. */
export function flawedEyes(flaw: Flaw | null, what: 'trainer' | 'sampler' | 'base'): Partial<StubEyes> {
  const drops = { drops: true };
  const all: Partial<Record<Flaw, Partial<StubEyes>>> = {
    pictures_dropped: drops,
    pictures_dropped_by_sampler: what === 'sampler' ? drops : {},
    pictures_dropped_by_base: what === 'base' ? drops : {},
    pictures_unseen: { isBlind: true },
    pictures_resized: { more: 1 },
    pictures_resized_silently: { more: 1, tellsNot: true },
  };
  return (flaw === null ? undefined : all[flaw]) ?? {};
}
