/** The latest rewards of each prompt, with which its later episodes are compared (Black et al., "Training Diffusion Models with RL", 2023). */
import type { Outcome } from '../rewards/score/types.js';
import { rewardOf } from '../scoring/outcomes.js';

/** Rewards kept per prompt: older ones were earned by a different policy. */
const KEPT = 32;

/** By the prompts' keys; plain data, as stored in a checkpoint. */
export type PromptHistory = Readonly<Record<string, readonly number[]>>;

/** The history after an iteration whose groups answered these prompts. */
export function extendHistory(
  history: PromptHistory,
  prompts: readonly string[],
  outcomes: readonly (readonly Outcome[])[],
): PromptHistory {
  const out: Record<string, readonly number[]> = { ...history };
  prompts.forEach((key, g) => {
    const rewards = outcomes[g].map(rewardOf).filter((reward) => reward !== null);
    out[key] = [...(out[key] ?? []), ...rewards].slice(-Math.max(KEPT, rewards.length));
  });
  return out;
}
