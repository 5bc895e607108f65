/** Scoring items with VIEScore through the client, as a run does it. */
import { testServices } from '../terms/term_services.js';
import { createReward } from '../../../src/rewards/score/combined.js';
import type { JudgeClient } from '../../../src/rewards/judge/client.js';
import { rewardSettingsSchema } from '../../../src/rewards/score/settings.js';
import type { Term } from '../../../src/rewards/terms/term.js';

export type JudgedMode = 'viescore' | 'sqrt(viescore_pqxground_score)';

/** The reward of a mode, with built-in prompts, that asks this client. */
export function judgedReward(mode: JudgedMode, judge: JudgeClient): Promise<Term> {
  return createReward(rewardSettingsSchema.parse({ mode }), testServices(judge));
}
