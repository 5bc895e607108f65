/** Scoring items with VIEScore through the client, as a run does it. */
import { InternalError } from '../../../src/core/errors.js';
import { createReward } from '../../../src/rewards/score/combined.js';
import type { JudgeClient } from '../../../src/rewards/judge/client.js';
import { JudgeImages } from '../../../src/rewards/judge/images.js';
import { builtInPrompts } from '../../../src/rewards/judge/prompts.js';
import { rewardSettingsSchema } from '../../../src/rewards/score/settings.js';
import type { Term } from '../../../src/rewards/terms/term.js';

export type JudgedMode = 'viescore' | 'sqrt(viescore_pqxground_score)';

/** The reward of a mode, with built-in prompts, that asks this client. */
export function judgedReward(mode: JudgedMode, judge: JudgeClient): Promise<Term> {
  return createReward(rewardSettingsSchema.parse({ mode }), {
    judge: () => judge,
    images: new JudgeImages(),
    prompts: builtInPrompts,
    modelFolder: () => {
      throw new InternalError('a judged reward needs no model of its own');
    },
  });
}
