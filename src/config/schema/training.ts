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
      'The gradient is scaled down to this norm; null means no limit.',
      positive.nullable().default(1),
    ),
    per_device_batch_size: result(
      'Sequences in one micro-batch; gradients accumulate over micro-batches.',
      positiveInteger.default(8),
    ),
    schedule: result(
      'The learning rate after warm-up: constant, or falling linearly or as half a cosine until the last step of the run. num_iterations may not grow while it falls.',
      z.enum(['constant', 'linear', 'cosine']).default('constant'),
    ),
    min_learning_rate_ratio: result(
      'The lowest value of a falling learning rate, as a share of learning_rate; without meaning where it stays.',
      z.number().min(0).max(1).default(0),
    ),
    gradient_checkpointing: operation(
      'Recompute activations in the backward pass to save memory; the last bits of gradients may differ.',
      z.boolean().default(false),
    ),
    ema_decay: result(
      'Decay of an exponential moving average of the weights, which checkpoints hold in ema.safetensors; held-out evaluation uses it (validation.weights), rollouts do not. null means none.',
      beta.nullable().default(null),
    ),
  }),
);
export type OptimizerSettings = z.output<typeof optimizer>;

/** Whether answers are of the weights that learn from them, computed by the same program. */
const samplesItself = (read: ReadSettings): boolean =>
  (read('rollout.engine') ?? null) === null && (read('rollout.ahead') ?? 0) === 0;

export const rollout = section(
  'How answers are sampled.',
  z
    .strictObject({
      engine: samplingEngine
        .nullable()
        .default(null)
        .meta({ ...samplingEngine.meta() }),
      ahead: result(
        "Iterations by which answers are sampled ahead: with 1, the next iteration's are sampled and scored while this one trains, so they are of weights that are one iteration old, which rollout.importance_cap corrects. With policy.trainer 'tinker' alone.",
        z.int().min(0).max(1).default(0),
      ),
      importance_cap: result(
        'Where rollout.engine samples, or rollout.ahead is 1: loss weights are multiplied by min(exp(log p of the trainer - log p of the sampler), this) for each token; null means no such correction.',
        positive.nullable().default(2),
        {
          idle: samplesItself,
        },
      ),
      episodes_per_iteration: result(
        'Answers sampled in one iteration, over all processes; more where rollout.refill is set.',
        positiveInteger.default(128),
      ),
      generations_per_sample: result('Answers per prompt: the size of a group.', positiveInteger.default(8)),
      refill: result(
        'Replace groups that teach nothing (all scored rewards exactly equal, or fewer than two of them) by groups of further prompts, up to `rounds` times: dynamic sampling (DAPO, arXiv 2503.14476) with an end. An iteration then samples up to 1 + rounds times as many answers, and learns from as many groups as before. null: groups stay as they are.',
        z.strictObject({ rounds: positiveInteger }).nullable().default(null),
        { allowed: '{rounds: 2}, or null' },
      ),
      max_response_tokens: result(
        'Longest answer, in tokens; one ends earlier where prompt and answer fill policy.model_context_size (episode/cut_by_context counts these).',
        positiveInteger.default(2048),
      ),
      temperature: result('Sampling temperature.', positive.default(1)),
      top_p: result(
        'Nucleus sampling: keep the smallest set of tokens with this probability; 1 disables it.',
        z.number().gt(0).max(1).default(1),
      ),
      top_k: result(
        'Keep this many most probable tokens; -1 disables it.',
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
        'Groups rolled out together; finished chunks are scored while the next ones are sampled. null means all at once.',
        positiveInteger.nullable().default(null),
      ),
      threads: operation(
        'CPU threads of the sessions that sample, in each process; 0 means as many as policy.engine.threads. One token of a small model is too little work to share.',
        count.default(0),
      ),
    })
    .prefault({}),
);
export type RolloutSettings = z.output<typeof rollout>;

/** The largest number of prompts whose answers decode together in an evaluation. */
const PROMPTS_AT_ONCE = 128;

/** As many held-out answers as a rollout's chunk has, since those fit into memory. */
export function chunkOf({
  chunk_groups,
  generations_per_sample,
}: Pick<RolloutSettings, 'generations_per_sample' | 'chunk_groups'>): number {
  return chunk_groups === null ? PROMPTS_AT_ONCE : Math.min(PROMPTS_AT_ONCE, chunk_groups * generations_per_sample);
}

/** What learning from groups reads. */
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

/** How a flow policy answers: a solver takes it from noise to a picture. */
export const flowRollout = section(
  'How answers are sampled.',
  z
    .strictObject({
      episodes_per_iteration: picked.episodes_per_iteration,
      generations_per_sample: picked.generations_per_sample,
      refill: picked.refill,
      chunk_groups: picked.chunk_groups,
      num_steps: result('Steps of the solver in training.', positiveInteger.default(10)),
      eval_num_steps: result("Steps of the ODE's solver in held-out evaluation.", positiveInteger.default(20)),
      same_latent: result(
        'Whether the pictures of a group begin with the same noise, so that they differ by the noisy steps alone, which are learnt from.',
        z.boolean().default(false),
      ),
      noise_level: result(
        "Scale of the noise of the SDE that is sampled in training: its steps are the actions. 0 with algorithm.surrogate 'nft' alone, which has no noisy steps.",
        nonNegative.default(0.7),
      ),
      guidance_scale: result(
        'Scale of classifier-free guidance, in training and evaluation; a model that embeds the guidance is told it, any other is asked twice. null means none.',
        positive.nullable().default(null),
      ),
      timestep_fraction: result(
        'Of the steps of a rollout the first floor(num_steps * this) are noisy and learnt from; the others are taken by the ODE.',
        z.number().gt(0).max(1).default(0.99),
      ),
      sde_window: result(
        'Only `size` steps in a row are noisy and learnt from, drawn for every group within steps [from, to) of `range`: {size, range: [from, to]}. null means all that timestep_fraction leaves.',
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

/** How many of `steps` solver steps may be noisy: the first floor(steps * fraction). The small term undoes rounding: 50 * 0.58 is 28.999…. */
export function noisySteps(steps: number, fraction: number): number {
  return Math.floor(steps * fraction + 1e-9);
}

export const validation = section(
  'Held-out evaluation: before, during and after training, always on the same prompts.',
  z
    .strictObject({
      every_n_iterations: result(
        'Evaluate every this many iterations; null means only before and after.',
        positiveInteger.nullable().default(50),
      ),
      prompts: result('How many held-out prompts.', positiveInteger.default(128)),
      temperature: result('Sampling temperature.', positive.default(1)),
      seed: result('Seed of the sampling.', count.default(0)),
      greedy: result(
        "Also evaluate the most probable answers; those of a flow policy are the ODE's.",
        z.boolean().default(true),
      ),
      weights: result(
        'Which weights are evaluated: the current ones, or the moving averages of optimizer.ema_decay; null means the averages where there are any.',
        z.enum(['current', 'average']).nullable().default(null),
        {
          idle: (settings) => settings('optimizer.ema_decay') === null,
        },
      ),
    })
    .prefault({}),
);
export type ValidationSettings = z.output<typeof validation>;

/** For a policy that answers without a temperature. */
export const flowValidation = section(
  validation.description ?? '',
  validation.unwrap().omit({ temperature: true }).prefault({}),
);

export const checkpoint = section(
  'What is saved, and what is kept.',
  z
    .strictObject({
      save_every_n_iterations: operation('Save every this many iterations.', positiveInteger.default(100)),
      keep_every_n_iterations: operation(
        'Keep for good the first checkpoint at or after each multiple of this many iterations; null keeps none for good.',
        positiveInteger.nullable().default(100),
      ),
      keep_last: operation('How many of the latest checkpoints are kept besides.', positiveInteger.default(2)),
      keep_best: operation(
        "The best checkpoint by this held-out number is kept besides, and written at an evaluation that finds a better one: 'reward', 'loss' for supervised training, or the name of a term of validation.measure, of sampled answers, or of greedy ones as 'greedy/reward'; null keeps none for that reason. Of equal ones the earliest is kept.",
        z.string().min(1).nullable().default(null),
        { allowed: "'reward', 'loss', the name of a term of validation.measure, or null" },
      ),
    })
    .prefault({}),
);
export type CheckpointSettings = z.output<typeof checkpoint>;
