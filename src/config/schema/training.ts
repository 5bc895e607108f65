/** The optimizer, the rollout, held-out evaluation and checkpoints. */
import { z } from 'zod';
import {
  count,
  nonNegative,
  operation,
  positive,
  positiveInteger,
  result,
  section,
  type ReadSettings,
} from '../../core/schema/mark.js';
import { samplingEngine } from './sampler.js';

const beta = z.number().min(0).lt(1);

export const optimizer = section(
  'AdamW.',
  z.strictObject({
    learning_rate: result('Peak learning rate.', positive),
    betas: result('Decay rates of the two moments.', z.tuple([beta, beta]).default([0.9, 0.999])),
    eps: result('Added to the root of the second moment.', positive.default(1e-8)),
    weight_decay: result('Decoupled weight decay.', nonNegative.default(0)),
    max_grad_norm: result(
      'Maximum norm of the gradient, which is scaled down to it. null means no limit.',
      positive.nullable().default(1),
    ),
    per_device_batch_size: result(
      'Sequences in one micro-batch. Gradients accumulate over micro-batches.',
      positiveInteger.default(8),
    ),
    schedule: result(
      'The learning rate after warm-up: constant, or falling linearly or as half a cosine until the last step of the run. num_iterations may not grow while it falls.',
      z.enum(['constant', 'linear', 'cosine']).default('constant'),
    ),
    min_learning_rate_ratio: result(
      'The lowest value of a falling learning rate, as a share of learning_rate. No effect on a constant one.',
      z.number().min(0).max(1).default(0),
    ),
    gradient_checkpointing: operation(
      'Recompute activations in the backward pass to save memory. The last bits of gradients may differ.',
      z.boolean().default(false),
    ),
    ema_decay: result(
      'Decay of an exponential moving average of the weights. Checkpoints contain it as ema.safetensors, and held-out evaluation uses it (validation.weights). null means none.',
      beta.nullable().default(null),
    ),
  }),
);
export type OptimizerSettings = z.output<typeof optimizer>;

/** Whether the training weights sample the answers, computed by the same program. */
const samplesItself = (read: ReadSettings): boolean =>
  (read('rollout.engine') ?? null) === null && (read('rollout.ahead') ?? 0) === 0;

export const rollout = section(
  'Sampling of answers.',
  z
    .strictObject({
      engine: samplingEngine
        .nullable()
        .default(null)
        .meta({ ...samplingEngine.meta() }),
      ahead: result(
        "Iterations to sample ahead. With 1, the answers of the next iteration are sampled and scored while this one trains. They come from weights that are one iteration old, which rollout.importance_cap corrects. Needs policy.trainer 'tinker'.",
        z.int().min(0).max(1).default(0),
      ),
      importance_cap: result(
        'With rollout.engine or rollout.ahead: the loss weight of each token is multiplied by min(exp(log p of the trainer - log p of the sampler), this). null means no correction.',
        positive.nullable().default(2),
        {
          idle: samplesItself,
        },
      ),
      episodes_per_iteration: result(
        'Answers sampled in one iteration, over all processes. rollout.refill may add more.',
        positiveInteger.default(128),
      ),
      generations_per_sample: result('Answers per prompt: the size of a group.', positiveInteger.default(8)),
      refill: result(
        'Replace groups with zero variance or fewer than two scored answers by groups of further prompts, up to `rounds` times: dynamic sampling (DAPO, arXiv 2503.14476) with a limit. An iteration samples up to 1 + rounds times as many answers and trains on the same number of groups. null keeps all groups.',
        z.strictObject({ rounds: positiveInteger }).nullable().default(null),
        { allowed: '{rounds: 2}, or null' },
      ),
      max_response_tokens: result(
        'Maximum tokens of an answer. It ends earlier if prompt and answer fill policy.model_context_size, which episode/cut_by_context counts.',
        positiveInteger.default(2048),
      ),
      temperature: result('Sampling temperature.', positive.default(1)),
      top_p: result(
        'Nucleus sampling: keep the smallest set of tokens with this probability. 1 disables it.',
        z.number().gt(0).max(1).default(1),
      ),
      top_k: result(
        'Keep this many most probable tokens. -1 disables it.',
        z
          .int()
          .refine((k) => k === -1 || k >= 1, { params: { allowed: '-1 or an integer >= 1' } })
          .default(-1),
      ),
      packed_weights: result(
        "Prepack weights for decoding on a CPU: 'all' or 'none'. Packed copies take another 1.2 times the memory of the weights. With LoRA the base weights are packed once, which saves about a third of the time. Weights that train are packed again after each change, which pays for answers of about twenty tokens or more. The last bits of answers differ. No effect on webgpu and cuda, in supervised training of all weights, or with rollout.engine.",
        z.enum(['all', 'none']).default('none'),
        { idle: (settings) => settings('rollout.engine') !== null },
      ),
      chunk_groups: operation(
        'Groups sampled together. Finished chunks are scored while the next ones are sampled. null means all at once.',
        positiveInteger.nullable().default(null),
      ),
      threads: operation(
        'CPU threads of the sampling sessions, in each process. 0 means policy.engine.threads. Small models sample faster with few threads.',
        count.default(0),
      ),
    })
    .prefault({}),
);
export type RolloutSettings = z.output<typeof rollout>;

/** Maximum number of prompts whose answers are decoded together in an evaluation. */
const PROMPTS_AT_ONCE = 128;

/** The number of held-out answers that are sampled together: as many as a rollout's chunk, which fits into memory. */
export function chunkOf({
  chunk_groups,
  generations_per_sample,
}: Pick<RolloutSettings, 'generations_per_sample' | 'chunk_groups'>): number {
  return chunk_groups === null ? PROMPTS_AT_ONCE : Math.min(PROMPTS_AT_ONCE, chunk_groups * generations_per_sample);
}

/** The settings that learning from groups reads. */
export type JudgedRollout = Pick<
  RolloutSettings,
  'episodes_per_iteration' | 'generations_per_sample' | 'chunk_groups' | 'refill'
>;

/** Prompts of one iteration of training. */
export function promptsPerIteration({
  episodes_per_iteration: episodes,
  generations_per_sample: answers,
}: Pick<RolloutSettings, 'episodes_per_iteration' | 'generations_per_sample'>): number {
  return episodes / answers;
}

const picked = rollout.unwrap().shape;

/** Sampling of a flow policy: a solver takes noise to an image. */
export const flowRollout = section(
  'Sampling of answers.',
  z
    .strictObject({
      episodes_per_iteration: picked.episodes_per_iteration,
      generations_per_sample: picked.generations_per_sample,
      refill: picked.refill,
      chunk_groups: picked.chunk_groups,
      num_steps: result('Steps of the solver in training.', positiveInteger.default(10)),
      eval_num_steps: result('Steps of the ODE solver in held-out evaluation.', positiveInteger.default(20)),
      same_latent: result(
        'Whether the images of a group start from the same noise, so that they differ only by the noisy steps that are trained.',
        z.boolean().default(false),
      ),
      noise_level: result(
        "Noise scale of the SDE that is sampled in training. Its steps are the actions. 0 needs algorithm.surrogate 'nft', which has no noisy steps.",
        nonNegative.default(0.7),
      ),
      guidance_scale: result(
        'Scale of classifier-free guidance in training and evaluation. A model that embeds the guidance gets it as an input. Any other model runs twice. null means none.',
        positive.nullable().default(null),
      ),
      timestep_fraction: result(
        'The first floor(num_steps * this) steps of a rollout are noisy and trained. The ODE takes the other steps.',
        z.number().gt(0).max(1).default(0.99),
      ),
      sde_window: result(
        'Only `size` consecutive steps are noisy and trained, drawn for every group from the steps [from, to) of `range`: {size, range: [from, to]}. null means all steps that timestep_fraction leaves.',
        z
          .strictObject({
            size: positiveInteger,
            range: z.tuple([count, positiveInteger]),
          })
          .nullable()
          .default(null),
        { allowed: '{size: 2, range: [0, 5]}, or null' },
      ),
    })
    .prefault({}),
);

/** How many of `steps` solver steps may be noisy: floor(steps * fraction). The small term corrects rounding: 50 * 0.58 is 28.999…. */
export function noisySteps(steps: number, fraction: number): number {
  return Math.floor(steps * fraction + 1e-9);
}

export const validation = section(
  'Held-out evaluation: before, during and after training, always on the same prompts.',
  z
    .strictObject({
      every_n_iterations: result(
        'Evaluate every n iterations. null means only before and after training.',
        positiveInteger.nullable().default(50),
      ),
      prompts: result('Number of held-out prompts.', positiveInteger.default(128)),
      temperature: result('Sampling temperature.', positive.default(1)),
      seed: result('Seed of the sampling.', count.default(0)),
      greedy: result(
        'Also evaluate greedy answers. A flow policy samples them with the ODE.',
        z.boolean().default(true),
      ),
      weights: result(
        'The weights that are evaluated: the current ones, or the moving averages of optimizer.ema_decay. null means the averages if there are any.',
        z.enum(['current', 'average']).nullable().default(null),
        {
          idle: (settings) => settings('optimizer.ema_decay') === null,
        },
      ),
    })
    .prefault({}),
);
export type ValidationSettings = z.output<typeof validation>;

/** For a policy without a temperature. */
export const flowValidation = section(
  validation.description ?? '',
  validation.unwrap().omit({ temperature: true }).prefault({}),
);

export const checkpoint = section(
  'Saving and keeping checkpoints.',
  z
    .strictObject({
      save_every_n_iterations: operation('Save every n iterations.', positiveInteger.default(100)),
      keep_every_n_iterations: operation(
        'Keep permanently the first checkpoint at or after each multiple of n iterations. null keeps none permanently.',
        positiveInteger.nullable().default(100),
      ),
      keep_last: operation('Number of latest checkpoints that are also kept.', positiveInteger.default(2)),
      keep_best: operation(
        "Also keep the best checkpoint by this held-out number, saved by the evaluation that finds it: 'reward', 'loss' for supervised training, or the name of a term of validation.measure. Numbers are of sampled answers, or of greedy ones as in 'greedy/reward'. Of equal ones the earliest is kept. null means none.",
        z.string().min(1).nullable().default(null),
        { allowed: "'reward', 'loss', the name of a term of validation.measure, or null" },
      ),
    })
    .prefault({}),
);
export type CheckpointSettings = z.output<typeof checkpoint>;
