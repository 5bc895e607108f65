import type { JudgeQuery } from './judge.js';
import type { JudgedItem } from '../score/judged_item.js';
import type { PromptSet } from './prompts.js';
import type { ScoreParts } from '../score/types.js';

/** One thing that is asked about an item, and the parts of a score that its answer gives. */
export interface Question {
  /** Names the question in keys of judgements. */
  readonly name: string;
  readonly needsTruth: boolean;
  query(item: JudgedItem, prompts: PromptSet): JudgeQuery;
  /** Parts by name, each from 0 to 10; `scores` has as many numbers as the query's parser asks for. */
  parts(scores: readonly number[]): ScoreParts;
}
