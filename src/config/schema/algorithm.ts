/** Training algorithms: GRPO, and supervised fine-tuning. */
import { z } from 'zod';
import {
  count,
  nonNegative,
  positive,
  positiveInteger,
  result,
  section,
  type ReadSettings,
} from '../../core/schema/mark.js';

const CLIP = 'Maximum absolute advantage. null means no limit.';

const advantageFields = section(
  "How a group's rewards become advantages.",
  z.strictObject({
    scope: result(
      'The scored episodes that a reward is compared with: its group, or all episodes of the iteration.',
      z.enum(['group', 'batch']).default('group'),
    ),
    scale: result(
      "The divisor of the centered reward: the standard deviation of the group ('std') or of all scored episodes of the iteration ('global_std'), or 'none'.",
      z.enum(['std', 'global_std', 'none']).default('std'),
    ),
    eps: result('Added to the standard deviation.', positive.default(1e-4)),
    clip: result(CLIP, positive.nullable().default(null)),
  }),
);
const advantage = advantageFields.prefault({});

const trainTokens = z
  .union([
    z.literal('all'),
    z.strictObject({
      /** The only tokens trained during the restricted part of a cycle. */
      tokens: z.enum(['text', 'vision']),
      /** Length of a cycle in iterations. */
      cycle_steps: positiveInteger,
      /** How many iterations at the start of each cycle are restricted. */
      steps: positiveInteger,
    }),
  ])
  .default('all');

const warmupSteps = result(
  'Optimizer steps of linear warm-up. Step k of n, counted from 1, uses k/n of the learning rate.',
  count.default(0),
);

/** GRPO settings that do not depend on the policy. */
export const grpo = z.strictObject({
  type: result('The algorithm.', z.literal('grpo')),
  advantage,
  clip_range: result(
    'Clip range of the probability ratio. null means no clipping, as in EARL.',
    positive.nullable().default(null),
  ),
  clip_range_high: result(
    "The clip range above 1, if it differs from the one below (clip-higher: DAPO, arXiv 2503.14476). null means clip_range on both sides. With surrogate 'cispo' the maximum ratio is 1 + this.",
    positive.nullable().default(null),
  ),
  surrogate: result(
    "The treatment of a ratio r beyond the clip range. 'ppo' takes min(r A, clip(r) A), so the action has no gradient. 'cispo' weighs its log-probability by min(r, 1 + range) A and keeps the gradient (CISPO: MiniMax-M1, arXiv 2506.13585).",
    z.enum(['ppo', 'cispo']).default('ppo'),
  ),
  ratio: result(
    "The probability ratio that is clipped: one for each 'token', or one for the whole 'answer', exp(mean log-ratio of its trained tokens) (GSPO: arXiv 2507.18071). 'answer' needs one more forward pass before every optimizer step but the first of an iteration.",
    z.enum(['token', 'answer']).default('token'),
  ),
  aggregation: result(
    "The weight of a trained token in the loss. 'token': 1 / tokens of the minibatch. 'answer': 1 / (tokens of its answer x answers of the minibatch) (GRPO as published: arXiv 2402.03300). 'dr_grpo': 1 / (rollout.max_response_tokens x answers of the minibatch) (arXiv 2503.20783). 'dapo': 1 / mean tokens of the iteration's minibatches, so a short minibatch weighs less (arXiv 2503.14476).",
    z.enum(['token', 'answer', 'dr_grpo', 'dapo']).default('token'),
  ),
  inner_epochs: result('Passes over the episodes of an iteration.', positiveInteger.default(1)),
  minibatches: result(
    'Minibatches of an inner epoch. The prompts are shuffled, and each minibatch gets one optimizer step.',
    positiveInteger.default(1),
  ),
  kl_coeff: result(
    'Weight of the KL penalty to the frozen start, estimated per token as exp(d) - d - 1 with d = log p_ref - log p (k3).',
    nonNegative.default(3e-4),
  ),
  warmup_steps: warmupSteps,
  reward_scale: result('Multiplies the advantages.', positive.default(1)),
  drop_zero_spread: result(
    'Drop groups with zero variance: they get no KL penalty and do not count in the divisor of the loss. Otherwise both remain.',
    z.boolean().default(false),
  ),
});

/** For a policy whose answers contain text and vision tokens. */
const visionGrpo = grpo.extend({
  train_tokens: result(
    "The answer tokens that carry the loss: 'all', or {tokens: 'text'|'vision', cycle_steps, steps}. Then the first `steps` of every cycle_steps iterations train only those tokens. The other iterations train only vision tokens after 'text', and all tokens after 'vision', as in EARL. The loss is divided by the number of tokens that carry it.",
    trainTokens,
    { allowed: "'all' or {tokens: 'text'|'vision', cycle_steps, steps}" },
  ),
});

/** Supervised settings that every supervised task shares. */
const supervised = {
  batch_size: result('Samples in one optimizer step, over all processes.', positiveInteger.default(64)),
  patience: result(
    'Stop after this many validations without an improvement of the held-out loss. null means never.',
    positiveInteger.nullable().default(null),
  ),
  min_delta: result('A held-out loss must fall by this much to count as an improvement.', nonNegative.default(0)),
};
const sft = z.strictObject({
  type: result('The algorithm.', z.literal('sft')),
  warmup_steps: warmupSteps,
  sft: section(
    'Supervised fine-tuning on labeled answers. An iteration is one optimizer step.',
    z.strictObject({
      ...supervised,
      changed_token_weight: result(
        'Loss weight of vision tokens of the answer that differ from the source at the same position.',
        positive.default(1),
      ),
      changed_token_weight_after_steps: result(
        'The first step with changed_token_weight. Before it every weight is 1.',
        count.default(0),
      ),
    }),
  ).prefault({}),
});

export const algorithm = section(
  'The training algorithm of the policy.',
  z.discriminatedUnion('type', [visionGrpo, sft]),
);

const wordsSft = z.strictObject({
  type: result('The algorithm.', z.literal('sft')),
  warmup_steps: warmupSteps,
  sft: section(
    'Supervised fine-tuning on labeled answers. An iteration is one optimizer step.',
    z.strictObject(supervised),
  ).prefault({}),
});

/** For a policy that answers in text only. */
export const wordsAlgorithm = section(
  'The training algorithm of the policy.',
  z.discriminatedUnion('type', [grpo, wordsSft]),
);

/** An image tokenizer learns to reconstruct its own input. */
export const tokenizerAlgorithm = section(
  'The training algorithm of the tokenizer.',
  z
    .strictObject({
      type: result('The algorithm.', z.literal('sft').default('sft')),
      warmup_steps: warmupSteps,
      sft: section('Supervised training. An iteration is one optimizer step.', z.strictObject(supervised)).prefault({}),
    })
    .prefault({}),
);

/** An autoencoder learns to reconstruct images from latents that are sampled around its encoder's output. */
export const autoencoderAlgorithm = section(
  'The training algorithm of the autoencoder.',
  z
    .strictObject({
      type: result('The algorithm.', z.literal('sft').default('sft')),
      warmup_steps: warmupSteps,
      kl_weight: result(
        'Weight of the KL divergence of the latents from a standard normal distribution, summed over the latents and divided by the number of image values. The mean squared error of the image in [-1, 1] has weight 1.',
        nonNegative.default(1e-3),
      ),
      sft: section('Supervised training. An iteration is one optimizer step.', z.strictObject(supervised)).prefault({}),
    })
    .prefault({}),
);

/** CLIP learns to match captions and images. */
export const contrastiveAlgorithm = section(
  'The contrastive training of texts and images.',
  z
    .strictObject({
      type: result('The algorithm.', z.literal('sft').default('sft')),
      warmup_steps: warmupSteps,
      matched_cosine: result(
        'The target of the mean cosine of a caption and its own image, kept by a squared penalty. null means none. Without it a small model in a small world reaches cosines near 1, and CLIPScore, min(1, 2.5 cosine), saturates. Pairs of large models have 0.15 to 0.40.',
        z.number().gt(0).lt(1).nullable().default(null),
      ),
      sft: section('Supervised training. An iteration is one optimizer step.', z.strictObject(supervised)).prefault({}),
    })
    .prefault({}),
);

const learnsNoNft = (read: ReadSettings): boolean => read('algorithm.surrogate') !== 'nft';

const SURROGATE = grpo.shape.surrogate.description ?? '';

/** Its KL has a closed form. */
const flowGrpo = grpo.omit({ ratio: true, aggregation: true }).extend({
  advantage: advantageFields.extend({ clip: result(CLIP, positive.nullable().default(5)) }).prefault({}),
  clip_range: result(
    'Clip range of the probability ratio. It is small because log-probabilities are means over the elements of an image. null means no clipping.',
    positive.nullable().default(1e-4),
  ),
  surrogate: result(
    `${SURROGATE} 'nft' (with clip_range null and rollout.noise_level 0) uses no ratio: it learns velocities of noised samples, see algorithm.nft.`,
    z.enum(['ppo', 'cispo', 'nft']).default('ppo'),
  ),
  nft: section(
    "With surrogate 'nft': DiffusionNFT (arXiv 2509.16117), which learns on the forward process. Images are sampled without noisy steps. Noise is added to them at some levels. The model's velocity there moves towards the velocity of good images, and the mirrored velocity towards the velocity of bad images. The advantage, clipped by advantage.clip, measures quality.",
    z
      .strictObject({
        beta: result(
          'The distance of the two velocities from the one of the sampling weights. 1 means the velocity itself and its mirror image.',
          positive.default(1),
          { idle: learnsNoNft },
        ),
        levels: result(
          'Noise levels per image, drawn from the rollout steps that timestep_fraction leaves. null means all of them.',
          positiveInteger.nullable().default(null),
          { idle: learnsNoNft },
        ),
        sampled_by: result(
          "The weights that sample and are the old weights of the loss: the 'current' ones at the start of the iteration, or the 'average' of optimizer.ema_decay, which changes more slowly.",
          z.enum(['current', 'average']).default('current'),
          { idle: learnsNoNft },
        ),
      })
      .prefault({}),
  ),
  kl_coeff: result(
    "Weight of the KL penalty to the frozen start: mean((m - m_ref)^2) / (2 s^2) over the elements, with s the standard deviation of the step. flow_grpo divides by sigma_t only, so its beta is 1 / |dt| times as large here. With surrogate 'nft': mean((v - v_ref)^2).",
    nonNegative.default(4e-3),
  ),
  drop_zero_spread: result(grpo.shape.drop_zero_spread.description ?? '', z.boolean().default(true)),
});

/** A preset: advantages over the whole batch, and two optimizer steps per iteration. It has no value head. */
const flowPpo = flowGrpo.extend({
  type: result('The algorithm.', z.literal('ppo')),
  advantage: flowGrpo.shape.advantage
    .unwrap()
    .extend({
      scope: result(
        advantageFields.shape.scope.description ?? '',
        advantageFields.shape.scope.unwrap().default('batch'),
      ),
    })
    .prefault({}),
  minibatches: result(grpo.shape.minibatches.description ?? '', positiveInteger.default(2)),
});

const flowSft = wordsSft.extend({
  sft: section(
    'Flow matching on labeled images. An iteration is one optimizer step.',
    z.strictObject({
      ...supervised,
      condition_dropout: result(
        'The share of images that are trained without prompt and style. Classifier-free guidance (rollout.guidance_scale) needs them.',
        z.number().min(0).lt(1).default(0.1),
      ),
    }),
  ).prefault({}),
});
export type FlowSftSettings = z.output<typeof flowSft>;

/** For a flow model without rewards. */
export const flowMatchingAlgorithm = section('The training algorithm of the image model.', flowSft);

/** A flow policy learns from rewards, or from labeled images by flow matching. */
export const flowAlgorithm = section(
  'The training algorithm of the policy.',
  z.discriminatedUnion('type', [flowGrpo, flowPpo, flowSft]),
);

type FlowOutput = z.output<typeof flowGrpo>;

/** Learning from rewards. ppo is GRPO with other defaults. */
export type GrpoSettings = Omit<z.output<typeof grpo>, 'type' | 'surrogate'> & {
  type: 'grpo' | 'ppo';
} & Pick<FlowOutput, 'surrogate'> &
  Partial<Pick<FlowOutput, 'nft'>>;
export type VisionGrpoSettings = z.output<typeof visionGrpo>;
export type FlowGrpoSettings = Omit<GrpoSettings, 'ratio' | 'aggregation'>;
export type SftSettings = z.output<typeof sft>;
export type WordsSftSettings = z.output<typeof wordsSft>;
export type AdvantageSettings = z.output<typeof advantage>;
export type TrainTokens = z.output<typeof trainTokens>;
