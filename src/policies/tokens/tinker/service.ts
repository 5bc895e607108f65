/** A training service as a policy needs it: sequences of tokens in, log-probabilities out. `engines/tinker` speaks the wire below it. */
import type { Deadline } from '../../../core/deadline.js';

/** A prompt with one answer to it. */
export interface Sequence {
  readonly prompt: readonly number[];
  readonly answer: Int32Array;
}

/** An answer of which each action is pushed: the gradient of -sum_t push_t log p_t, taken where log p is `at`. */
export interface Pushed extends Sequence {
  readonly push: Float32Array;
  readonly at: Float32Array;
}

/** AdamW in torch's terms. */
export interface AdamW {
  readonly learningRate: number;
  readonly betas: readonly [number, number];
  readonly eps: number;
  readonly weightDecay: number;
  /** Null for no limit. */
  readonly maxGradNorm: number | null;
}

/** How one prompt is answered. */
export interface Ask {
  readonly prompt: readonly number[];
  readonly count: number;
  readonly maxTokens: number;
  readonly temperature: number;
  readonly seed: number;
  readonly ends: readonly number[];
}

export interface Sampled {
  readonly ids: readonly number[];
  readonly logProbs: readonly number[] | null;
  /** Whether it ended by itself. */
  readonly finished: boolean;
}

/** Raises EndpointError where the server stays away or refuses, CheckpointError where a saved state is gone. */
export interface TrainingService {
  /** The address, for messages. */
  readonly url: string;
  /** Opens a model: a fresh adapter, or the saved state with its optimizer. Lets go of the one that was open. */
  begin(from: string | null, within: Deadline): Promise<void>;
  /** Per sequence, the log-probabilities of the answer's tokens under the weights being trained. */
  logProbs(sequences: readonly Sequence[], within: Deadline): Promise<Float32Array[]>;
  /** Per sequence, those under the base model. */
  baseLogProbs(sequences: readonly Sequence[], within: Deadline): Promise<Float32Array[]>;
  /** Adds to the gradient; gives what `logProbs` gives. */
  learn(sequences: readonly Pushed[], within: Deadline): Promise<Float32Array[]>;
  /** Takes an optimizer step. The norm is that before clipping; null where the server does not tell. */
  step(by: AdamW, within: Deadline): Promise<{ readonly gradNorm: number | null }>;
  /** From then on `sample` answers under these weights. */
  publish(within: Deadline): Promise<void>;
  sample(ask: Ask, within: Deadline): Promise<readonly Sampled[]>;
  /** Keeps weights and optimizer under a name; gives the path to load them by. */
  save(name: string, within: Deadline): Promise<string>;
  /** Lets go of the model. */
  close(): Promise<void>;
}
