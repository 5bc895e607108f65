/** The latest rewards of each prompt, which later episodes of it are compared with (Black et al., "Training Diffusion Models with RL", 2023). */
import type { Outcome } from '../rewards/score/types.js';
import { rewardOf } from '../scoring/outcomes.js';

/** Rewards kept of a prompt: the policy that earned older ones was another. */
const KEPT = 32;

/** By the samples' ids; plain data, as a checkpoint holds it. */
export type PromptHistory = Readonly<Record<string, readonly number[]>>;

/** The history after an iteration whose groups answered these samples. */
export function extended(
  history: PromptHistory,
  samples: readonly string[],
  outcomes: readonly (readonly Outcome[])[],
): PromptHistory {
  const out: Record<string, readonly number[]> = { ...history };
  samples.forEach((id, g) => {
    const rewards = outcomes[g].map(rewardOf).filter((reward) => reward !== null);
    out[id] = [...(out[id] ?? []), ...rewards].slice(-Math.max(KEPT, rewards.length));
  });
  return out;
}
