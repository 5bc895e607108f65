/** The interface of a recipe's task for training, scoring and rescoring. `P` is its prompt, `A` the policy's answer. */
import type { TrainingOrder } from '../../data/datasets.js';
import type { SamplePlace } from '../../data/sampler.js';
import type { WeightsOf } from '../policies/policy.js';
import type { JudgeItem } from '../../rewards/score/types.js';
import type { RecordedEpisode } from '../../run/episodes.js';

/** The fields of prompts that all recipes share. A recipe's own prompts have more. */
export interface Prompt {
  /** The sample's id in its dataset. */
  readonly id: string;
  readonly instruction: string;
  /** Returns the PNG of the prompt's image for the record. Null if it has none. */
  readonly sourcePng: (() => Promise<Uint8Array>) | null;
}

/** Identifies a prompt within a run. The id alone may not, because each dataset names its samples on its own. */
export const promptKey = ({ id, instruction }: Pick<Prompt, 'id' | 'instruction'>): string => `${id} ${instruction}`;

/** Prompts with a name for metrics. */
export interface PromptSource<P> {
  readonly name: string;
  readonly length: number;
  prompt(index: number): Promise<P>;
}

/** A rendered answer: the item to judge, and the fields to record. */
export interface Rendered {
  readonly item: JudgeItem;
  /** The answer's fields in its episode's record: those that `reread` needs, and those for people. */
  readonly record: Readonly<Record<string, unknown>>;
  /** Its caption on a contact sheet. */
  readonly caption: string;
  /** The policy's thoughts before its text answer, if there are any. */
  readonly thought?: string;
}

/** Answers to one prompt, with the keys of their episodes. */
export interface Answers<P, A> {
  readonly prompt: P;
  readonly answers: readonly A[];
  readonly keys: readonly string[];
}

export interface Task<P extends Prompt, A> {
  /** The orders in which training uses its prompts. */
  readonly order: TrainingOrder;
  /** The prompt at a global position of the training order, or the prompt of a given sample. */
  prompt(position: number | SamplePlace): Promise<P>;
  readonly validation: readonly PromptSource<P>[];
  /** Maximum number of images of a prompt that a judge may see at once. Default: one for edits, and none for words. */
  readonly sources?: number;
  /** Renders answers. `weights` are those of the policy that answered, for an environment that is conditioned on it. */
  render(chunk: readonly Answers<P, A>[], weights: Exclude<WeightsOf, 'reference'>): Promise<Rendered[][]>;
  /**
   * Sends remote answers from rendering to rank 0, which stores them. Every rank calls it after rendering. Absent if
   * nothing is stored.
   */
  keep?(): Promise<void>;
  /** Recreates a recorded answer. Its log-probabilities are not recorded and are 0. */
  reread(episode: RecordedEpisode): A;
  /** Data that rewards compare an answer with, show beside it, or read about its prompt. Independent of the answer. */
  labels(prompt: P): Promise<Pick<JudgeItem, 'beside' | 'truth' | 'mask' | 'expected' | 'row'>>;
  dispose(): Promise<void>;
}
