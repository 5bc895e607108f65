/** How the policy learns: GRPO, or supervised fine-tuning. */
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

const CLIP = 'Largest absolute advantage; null means no limit.';

const advantageFields = section(
  "How a group's rewards become advantages.",
  z.strictObject({
    scope: result(
      'The scored episodes that a reward is compared with: its group, or all episodes of the iteration.',
      z.enum(['group', 'batch']).default('group'),
    ),
    scale: result(
      "What the centred reward is divided by: the group's standard deviation, that of all scored episodes of the iteration, or nothing.",
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
  'Optimizer steps of warm-up: step k of n, counted from 1, is taken at k/n of the learning rate, so that the last one has all of it.',
  count.default(0),
);

/** GRPO settings that do not depend on the policy. */
export const grpo = z.strictObject({
  type: result('The algorithm.', z.literal('grpo')),
  advantage,
  clip_range: result(
    'Clip range of the probability ratio; null means no clipping, as in EARL.',
    positive.nullable().default(null),
  ),
  clip_range_high: result(
    "The clip range above 1 where it is another than below (clip-higher: DAPO, arXiv 2503.14476); null means clip_range on both sides. With surrogate 'cispo' the largest ratio is 1 + this.",
    positive.nullable().default(null),
  ),
  surrogate: result(
    "What becomes of a ratio r beyond the clip range: 'ppo' takes min(r A, clip(r) A), so that the action teaches no more; 'cispo' weighs its log-probability by min(r, 1 + range) A and goes on (CISPO: MiniMax-M1, arXiv 2506.13585).",
    z.enum(['ppo', 'cispo']).default('ppo'),
  ),
  ratio: result(
    "Whose probability ratio is clipped: each 'token' its own, or the 'answer' as a whole, exp(mean log-ratio of its trained tokens) (GSPO: arXiv 2507.18071). The latter takes a forward pass more before every optimizer step after an iteration's first.",
    z.enum(['token', 'answer']).default('token'),
  ),
  aggregation: result(
    "How much a trained token weighs in the loss: 'token', one over those of the minibatch; 'answer', one over those of its answer and over the answers of the minibatch (GRPO as published: arXiv 2402.03300); 'dr_grpo', one over rollout.max_response_tokens and the answers of the minibatch (arXiv 2503.20783); 'dapo', one over the minibatches' mean number in the iteration, so that a short minibatch weighs less (arXiv 2503.14476).",
    z.enum(['token', 'answer', 'dr_grpo', 'dapo']).default('token'),
  ),
  inner_epochs: result("Times that one iteration's episodes are learned from.", positiveInteger.default(1)),
  minibatches: result(
    "Parts that an iteration's prompts are shuffled into, with one optimizer step for each in every inner epoch.",
    positiveInteger.default(1),
  ),
  kl_coeff: result(
    'Weight of the KL penalty to the frozen start, estimated per token as exp(d) - d - 1 with d = log p_ref - log p (k3).',
    nonNegative.default(3e-4),
  ),
  warmup_steps: warmupSteps,
  reward_scale: result('Multiplies the advantages.', positive.default(1)),
  drop_zero_spread: result(
    'Leave out groups where all rewards that they are compared with are the same, KL and divisor included; else they keep both.',
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
    'Stop after this many validations without an improvement of the held-out loss; null means never.',
    positiveInteger.nullable().default(null),
  ),
  min_delta: result('A held-out loss must fall by this much to count as an improvement.', nonNegative.default(0)),
};
const sft = z.strictObject({
  type: result('The algorithm.', z.literal('sft')),
  warmup_steps: warmupSteps,
  sft: section(
    'Supervised fine-tuning on labelled answers; an iteration is one optimizer step.',
    z.strictObject({
      ...supervised,
      changed_token_weight: result(
        'Loss weight of answer vision tokens that differ from the source at the same place.',
        positive.default(1),
      ),
      changed_token_weight_after_steps: result(
        'The first step at which changed_token_weight holds; before it every weight is 1.',
        count.default(0),
      ),
    }),
  ).prefault({}),
});

export const algorithm = section('How the policy learns.', z.discriminatedUnion('type', [visionGrpo, sft]));

const wordsSft = z.strictObject({
  type: result('The algorithm.', z.literal('sft')),
  warmup_steps: warmupSteps,
  sft: section(
    'Supervised fine-tuning on labelled answers; an iteration is one optimizer step.',
    z.strictObject(supervised),
  ).prefault({}),
});

/** How a policy learns whose answers are words alone. */
export const wordsAlgorithm = section('How the policy learns.', z.discriminatedUnion('type', [grpo, wordsSft]));

/** An image tokenizer learns to reconstruct its own input. */
export const tokenizerAlgorithm = section(
  'How the tokenizer learns.',
  z
    .strictObject({
      type: result('The algorithm.', z.literal('sft').default('sft')),
      warmup_steps: warmupSteps,
      sft: section('Supervised training; an iteration is one optimizer step.', z.strictObject(supervised)).prefault({}),
    })
    .prefault({}),
);

/** An autoencoder learns to reconstruct pictures from latents that are drawn around its encoder's output. */
export const autoencoderAlgorithm = section(
  'How the autoencoder learns.',
  z
    .strictObject({
      type: result('The algorithm.', z.literal('sft').default('sft')),
      warmup_steps: warmupSteps,
      kl_weight: result(
        "Weight of the latents' divergence from a standard normal distribution, summed over them and divided by the picture's numbers, beside the mean squared error of the picture in [-1, 1].",
        nonNegative.default(1e-3),
      ),
      sft: section('Supervised training; an iteration is one optimizer step.', z.strictObject(supervised)).prefault({}),
    })
    .prefault({}),
);

/** CLIP learns to tell which captions and pictures belong together. */
export const contrastiveAlgorithm = section(
  'How texts and pictures are brought together.',
  z
    .strictObject({
      type: result('The algorithm.', z.literal('sft').default('sft')),
      warmup_steps: warmupSteps,
      matched_cosine: result(
        'What the mean cosine of a caption and its own picture is held to by a squared penalty; null for none. A small model in a small world would bring it near 1, where CLIPScore, min(1, 2.5 cosine), tells nothing any more: pairs of large models lie at 0.15 to 0.40.',
        z.number().gt(0).lt(1).nullable().default(null),
      ),
      sft: section('Supervised training; an iteration is one optimizer step.', z.strictObject(supervised)).prefault({}),
    })
    .prefault({}),
);

const learnsNoNft = (read: ReadSettings): boolean => read('algorithm.surrogate') !== 'nft';

const SURROGATE = grpo.shape.surrogate.description ?? '';

/** Its KL is known in closed form. */
const flowGrpo = grpo.omit({ ratio: true, aggregation: true }).extend({
  advantage: advantageFields.extend({ clip: result(CLIP, positive.nullable().default(5)) }).prefault({}),
  clip_range: result(
    'Clip range of the probability ratio; log-probabilities are means over the elements of a picture, and move little. null means no clipping.',
    positive.nullable().default(1e-4),
  ),
  surrogate: result(
    `${SURROGATE.slice(0, -1)}; 'nft', with clip_range null and rollout.noise_level 0, asks for no ratio at all: it learns the velocities of the sampled pictures with noise, as algorithm.nft says.`,
    z.enum(['ppo', 'cispo', 'nft']).default('ppo'),
  ),
  nft: section(
    "With surrogate 'nft': DiffusionNFT (arXiv 2509.16117), which learns on the forward process. Pictures are sampled without noisy steps; noise is put on them at some levels, and the model's velocity there is drawn towards what leads to a good picture, and the mirrored one to a bad picture. How good it is is the advantage within advantage.clip.",
    z
      .strictObject({
        beta: result(
          'How far the two velocities are from that of the weights that sampled: 1 is the velocity itself, and its mirror image.',
          positive.default(1),
          { idle: learnsNoNft },
        ),
        levels: result(
          "How many noise levels of a picture are learnt from, drawn from those of the rollout's steps that timestep_fraction leaves; null means all of them.",
          positiveInteger.nullable().default(null),
          { idle: learnsNoNft },
        ),
        sampled_by: result(
          "Which weights sample, and are the old ones of the loss: 'current', those that an iteration begins with, or the 'average' of optimizer.ema_decay, which follows more slowly.",
          z.enum(['current', 'average']).default('current'),
          { idle: learnsNoNft },
        ),
      })
      .prefault({}),
  ),
  kl_coeff: result(
    "Weight of the KL penalty to the frozen start: mean((m - m_ref)^2) / (2 s^2) over the elements, s the step's own deviation. flow_grpo divides by sigma_t alone, so that its beta counts 1 / |dt| times as much here. With surrogate 'nft' mean((v - v_ref)^2).",
    nonNegative.default(4e-3),
  ),
  drop_zero_spread: result(grpo.shape.drop_zero_spread.description ?? '', z.boolean().default(true)),
});

/** A preset: advantages over the whole batch, and two optimizer steps an iteration. There is no value head. */
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
    'Flow matching on labelled pictures; an iteration is one optimizer step.',
    z.strictObject({
      ...supervised,
      condition_dropout: result(
        'The share of pictures that are shown without words and style, which is what classifier-free guidance (rollout.guidance_scale) is measured from.',
        z.number().min(0).lt(1).default(0.1),
      ),
    }),
  ).prefault({}),
});
export type FlowSftSettings = z.output<typeof flowSft>;

/** How a flow model learns that is never rewarded. */
export const flowMatchingAlgorithm = section('How the image model learns.', flowSft);

/** How a flow policy learns: from rewards, or from labelled pictures by flow matching. */
export const flowAlgorithm = section(
  'How the policy learns.',
  z.discriminatedUnion('type', [flowGrpo, flowPpo, flowSft]),
);

type FlowOutput = z.output<typeof flowGrpo>;

/** Learning from rewards; ppo is GRPO with other defaults. */
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
