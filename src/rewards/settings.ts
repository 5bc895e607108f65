/** What a config says about a judged reward. Import-light: the config assembles its schema from this. */
import { z } from 'zod';

export const rewardModes = ['viescore', 'ground_score', 'sqrt(viescore_pqxground_score)'] as const;
export type RewardMode = (typeof rewardModes)[number];

export const scoreNames = ['viescore', 'ground_score'] as const;
export type ScoreName = (typeof scoreNames)[number];

export const rewardSettingsSchema = z.strictObject({
  mode: z.enum(rewardModes).default('viescore').describe('the score that the policy is trained on'),
  also_compute: z
    .array(z.enum(scoreNames))
    .default([])
    .describe('scores that are asked for and recorded besides those that the mode needs'),
  prompts: z
    .strictObject({
      sc: z.string().min(1).nullable().default(null).describe('file with the question about semantic consistency'),
      pq: z.string().min(1).nullable().default(null).describe('file with the question about perceptual quality'),
      ground: z.string().min(1).nullable().default(null).describe('file with the question about the labelled result'),
    })
    .prefault({})
    .describe("files with other wordings of the judge's prompts; null means the built-in wording"),
  zero_if_unfinished: z
    .boolean()
    .default(true)
    .describe('an answer that did not end by itself scores 0, without a question to the judge'),
});

export type RewardSettings = z.infer<typeof rewardSettingsSchema>;
export type PromptFiles = RewardSettings['prompts'];
