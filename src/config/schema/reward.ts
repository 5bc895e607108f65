/** What scores an edit, and where the judge is. */
import { z } from 'zod';
import { nonNegative, operation, positive, positiveInteger, result, section } from '../../core/mark.js';

export const rewardModes = ['viescore', 'ground_score', 'sqrt(viescore_pqxground_score)'] as const;
export type RewardMode = (typeof rewardModes)[number];

/** The judge's scores, and the modes that are computed from them. */
export const judgeScores = ['viescore', 'ground_score'] as const;
export type JudgeScore = (typeof judgeScores)[number];

/** Which of the judge's scores each mode needs. */
export const scoresOfMode: Readonly<Record<RewardMode, readonly JudgeScore[]>> = {
  viescore: ['viescore'],
  ground_score: ['ground_score'],
  'sqrt(viescore_pqxground_score)': ['viescore', 'ground_score'],
};

/** A judge that is a Slurm job of its own: it writes where it runs into a file. */
const nodeFile = z.strictObject({
  node_file: z.string().min(1),
  port: z.int().min(1).max(65_535).default(4877),
});

const promptFile = z.string().min(1).nullable().default(null);

export const reward = section(
  'What scores an edit.',
  z
    .strictObject({
      mode: result('The score that the policy is trained on.', z.enum(rewardModes).default('viescore')),
      also_compute: result(
        'Scores that are computed and recorded besides those that the mode needs.',
        z.array(z.enum(judgeScores)).default([]),
      ),
      endpoint: operation(
        "Base URL of the judge's OpenAI-compatible server, with or without /v1; {node_file, port} reads the host from the first line of a file, and waits for it; 'embedded' starts the rule judge of the tiny world. GRPO needs one; an SFT run without one reports losses only.",
        z.union([z.string(), nodeFile]).default(''),
        { allowed: "a URL such as http://HOST:4877, {node_file: 'FILE', port: 4877}, or 'embedded'" },
      ),
      model: result(
        'The judge model, as its server names it.',
        z.string().min(1).default('Qwen/Qwen2.5-VL-72B-Instruct'),
      ),
      prompts: section(
        "Files with other wordings of the judge's prompts; null means the built-in wording.",
        z
          .strictObject({
            viescore_sc: result(
              'Semantic consistency: source and edit; the instruction follows at the end.',
              promptFile,
            ),
            viescore_pq: result('Perceptual quality: the edit alone.', promptFile),
            ground_score: result('Agreement with the labelled edit.', promptFile),
          })
          .prefault({}),
      ),
      zero_if_unfinished: result(
        'An answer that did not end by itself scores 0 without a judge call.',
        z.boolean().default(true),
      ),
      max_unscored_fraction: operation(
        'Above this share of unscored episodes the run waits for the judge.',
        z.number().min(0).max(1).default(0.2),
      ),
      max_wait_s: operation(
        'How long it waits before it checkpoints and exits 3, in seconds.',
        nonNegative.default(7200),
      ),
      timeout_s: operation('Deadline of one request to the judge, in seconds.', positive.default(120)),
      max_attempts: operation(
        'Requests made for one judgement before it counts as unscored.',
        positiveInteger.default(5),
      ),
      concurrency: operation('Requests in flight at once.', positiveInteger.default(64)),
    })
    .prefault({}),
);
/** Where the judge is, as a config says it: a URL, 'embedded', '' for none, or a node file. */
export type EndpointSettings = z.output<typeof reward>['endpoint'];
export type RewardSettings = z.output<typeof reward>;
