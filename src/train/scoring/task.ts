/** A recipe's task as training, scoring and rescoring see it. `P` is its prompt, `A` the policy's answer. */
import type { TrainingOrder } from '../../data/datasets.js';
import type { SamplePlace } from '../../data/sampler.js';
import type { WeightsOf } from '../policies/policy.js';
import type { JudgeItem } from '../../rewards/score/types.js';
import type { RecordedEpisode } from '../../run/episodes.js';

/** The part of a prompt that is common to all recipes. A recipe's own prompts hold more. */
export interface Prompt {
  /** The sample's id in its dataset. */
  readonly id: string;
  readonly instruction: string;
  /** The file of the image that the prompt shows, as it is recorded. Null if it shows none. */
  readonly sourcePng: (() => Promise<Uint8Array>) | null;
}

/** Distinguishes prompts within a run: datasets name their samples independently of each other. */
export const promptKey = ({ id, instruction }: Pick<Prompt, 'id' | 'instruction'>): string => `${id} ${instruction}`;

/** Prompts with a name that metrics can carry. */
export interface PromptSource<P> {
  readonly name: string;
  readonly length: number;
  prompt(index: number): Promise<P>;
}

/** A rendered answer: the item that is judged, and the fields that are recorded. */
export interface Rendered {
  readonly item: JudgeItem;
  /** The answer's fields in its episode's record: those that `reread` understands, and those for people. */
  readonly record: Readonly<Record<string, unknown>>;
  /** The text of a contact sheet about it. */
  readonly caption: string;
  /** The policy's thoughts before its answer in words, if it had any. */
  readonly thought?: string;
}

/** Answers to one prompt, with the names of their episodes. */
export interface Answers<P, A> {
  readonly prompt: P;
  readonly answers: readonly A[];
  readonly keys: readonly string[];
}

export interface Task<P extends Prompt, A> {
  /** The orders in which training asks its prompts. */
  readonly order: TrainingOrder;
  /** The prompt at a global position of the ordinary order, or of the sample at a place. */
  prompt(position: number | SamplePlace): Promise<P>;
  readonly validation: readonly PromptSource<P>[];
  /** The most images that an edit begins from, which a judge may be shown at once. Absent: one. */
  readonly sources?: number;
  /** `weights`: the weights of the policy that answered, for an environment that is conditioned on it. */
  render(chunk: readonly Answers<P, A>[], weights: Exclude<WeightsOf, 'reference'>): Promise<Rendered[][]>;
  /**
   * Hands answers of other machines that rendering got to rank 0, which stores them. Every rank calls it after rendering. Absent if nothing is
   * stored.
   */
  keep?(): Promise<void>;
  /** A recorded answer. Its log-probabilities are not recorded, and 0. */
  reread(episode: RecordedEpisode): A;
  /** The data that rewards compare an answer with, show beside it, or know about its prompt, whatever the answer is. */
  labels(prompt: P): Promise<Pick<JudgeItem, 'beside' | 'truth' | 'mask' | 'expected' | 'row'>>;
  dispose(): Promise<void>;
}
