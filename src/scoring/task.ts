/** What a recipe teaches, as training, scoring and rescoring see it. `P` is its prompt, `A` the policy's answer. */
import type { WeightsOf } from '../policies/policy.js';
import type { JudgeItem } from '../rewards/score/types.js';
import type { RecordedEpisode } from '../run/episodes.js';

/** What everybody may know of a prompt; a recipe's own holds more. */
export interface Prompt {
  /** The sample's id in its dataset. */
  readonly id: string;
  readonly instruction: string;
  /** Gives the file of the image that the prompt shows, as it is recorded; null where it shows none. */
  readonly sourcePng: (() => Promise<Uint8Array>) | null;
}

/** What tells prompts apart within a run: datasets name their samples independently of each other. */
export const promptKey = ({ id, instruction }: Pick<Prompt, 'id' | 'instruction'>): string => `${id} ${instruction}`;

/** Prompts with a name that metrics can carry. */
export interface PromptSource<P> {
  readonly name: string;
  readonly length: number;
  prompt(index: number): Promise<P>;
}

/** An answer made an artifact: what is judged, and what is kept of it. */
export interface Rendered {
  readonly item: JudgeItem;
  /** The answer as its episode's record holds it: fields that `reread` understands, and what a person wants to see. */
  readonly record: Readonly<Record<string, unknown>>;
  /** What a contact sheet says of it. */
  readonly caption: string;
  /** What the policy thought before it answered in words, where it did. */
  readonly thought?: string;
}

/** Answers to one prompt, with the names of their episodes. */
export interface Answers<P, A> {
  readonly prompt: P;
  readonly answers: readonly A[];
  readonly keys: readonly string[];
}

export interface Task<P extends Prompt, A> {
  /** Prompts of one iteration of training. */
  readonly promptsPerIteration: number;
  /** The prompt at a global position of the endless training order. */
  prompt(globalIndex: number): Promise<P>;
  readonly validation: readonly PromptSource<P>[];
  /** `weights`: those of the policy that answered, for an environment that is conditioned on it. */
  render(chunk: readonly Answers<P, A>[], weights: Exclude<WeightsOf, 'reference'>): Promise<Rendered[][]>;
  /** Hands what other machines gave to rendering to rank 0, which stores it; every rank calls it after what it has rendered. Absent where nothing is stored. */
  keep?(): Promise<void>;
  /** A recorded answer. Its log-probabilities are not recorded, and 0. */
  reread(episode: RecordedEpisode): A;
  /** What rewards compare an answer with, or know of its prompt, whatever the answer is. */
  labels(prompt: P): Promise<Pick<JudgeItem, 'truth' | 'expected' | 'row'>>;
  dispose(): Promise<void>;
}
