/** How much better a run answers the same held-out prompts at one evaluation than at an earlier one. */
import { meanDifference, type MeanDifference } from '../../core/estimate.js';
import type { RunPaths } from '../paths.js';
import { pairedByPrompt, promptScores } from './measures.js';

/** By the reward (null) or a measure; of all sets together or of one. Null where fewer than two prompts were recorded at both evaluations. */
export type PromptChanges = (
  measure: Parameters<typeof promptScores>[1],
  manner: string,
  set?: string,
) => MeanDifference | null;

/** Compares the evaluations at two iterations prompt by prompt, from their records. Raises RunError, when asked, for records that cannot be read. */
export function promptChangesBetween(paths: RunPaths, from: number, to: number): PromptChanges {
  const known = new Map<unknown, readonly ReturnType<typeof promptScores>[]>();
  return (measure, manner, set) => {
    const ends = known.get(measure) ?? [from, to].map((iteration) => promptScores(paths, measure, iteration));
    known.set(measure, ends);
    const difference = meanDifference(pairedByPrompt(ends[0], ends[1], manner, set));
    return difference === null || difference.n < 2 ? null : difference;
  };
}
