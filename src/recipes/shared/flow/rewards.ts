/** How a flow policy samples and learns from rewards. */
import type { z } from 'zod';
import type { FlowGrpoSettings } from '../../../config/schema/algorithm.js';
import type { flowEngine } from '../../../config/schema/model.js';
import type { flowRollout } from '../../../config/schema/training.js';
import { ConfigError, must } from '../../../core/errors.js';
import type { FlowAnswer, FlowRequest } from '../../../train/policies/flow/batch.js';
import { flowModelTypes, type FlowModelTypeName } from '../../../train/policies/flow/model_types.js';
import type { FlowSampling, NoisedImages } from '../../../train/policies/flow/sampler.js';
import type { Prompt } from '../../../train/scoring/task.js';
import type { RewardParts } from '../training.js';
import { COPIED_HALVES } from './rules.js';

/** How a flow policy learns from rewards: its noisy steps are the actions, or with 'nft' noised images. */
export function flowRewards<P extends Prompt & FlowRequest>(
  settings: SamplingSettings,
  algorithm: FlowGrpoSettings,
): RewardParts<P, FlowAnswer, FlowSampling> {
  const nft = algorithm.surrogate === 'nft' ? must(algorithm.nft, "the settings of 'nft'") : null;
  return {
    algorithm: { ...algorithm, ...PLAIN },
    how: () => sampledIn(settings, nft),
    sampledBy: nft?.sampled_by ?? 'current',
    trained: (_iteration, _prompt, { actions }) => new Float32Array(actions.length).fill(1),
    minibatchesOf: 'actions',
    mismatchAlarm: mismatchAlarmOf(algorithm),
  };
}

/** Raises ConfigError for half precision on CUDA, which provider 'auto' may resolve to. */
export function requireSingleCopy({ dtype, provider }: Pick<z.output<typeof flowEngine>, 'dtype' | 'provider'>): void {
  if (dtype === 'float32' || provider !== 'cuda') return;
  throw new ConfigError(COPIED_HALVES, { where: 'policy.engine.dtype', next: "Set policy.engine.dtype to 'float32'." });
}

/** Every answer has equally many steps. */
const PLAIN = { ratio: 'token', aggregation: 'token' } as const;

/** Default clip range for log-probabilities that are means over an image. */
const CLIP_RANGE = 1e-4;

/** The difference between rollout and training graph that raises an alarm: one that clipping would notice. */
export function mismatchAlarmOf({ clip_range }: { readonly clip_range: number | null }): number {
  return (clip_range ?? CLIP_RANGE) / 10;
}

/** How answers are sampled in training. `noised` is for a loss on the forward process. */
export function sampledIn(settings: SamplingSettings, noised: NoisedImages | null = null): FlowSampling {
  const { sampled } = samplingsOf(settings);
  return noised === null ? sampled : { ...sampled, noised: { levels: noised.levels } };
}

/** The settings that decide how answers are sampled. */
interface SamplingSettings {
  readonly rollout: z.output<typeof flowRollout>;
  readonly validation: { readonly greedy: boolean };
  readonly policy: { readonly model_type: FlowModelTypeName };
}

/** How held-out answers are sampled, in every evaluation alike: as in training, and without noise. */
export function samplingsOf({
  policy,
  rollout,
  validation,
}: SamplingSettings): Record<'sampled', FlowSampling> & Partial<Record<'greedy', FlowSampling>> {
  const { num_steps, eval_num_steps, noise_level, timestep_fraction, sde_window, guidance_scale, same_latent } =
    rollout;
  const { sigmas } = flowModelTypes[policy.model_type];
  const sampled: FlowSampling = {
    sigmas: (tokens) => sigmas(num_steps, tokens),
    noiseLevel: noise_level,
    fraction: timestep_fraction,
    window: sde_window,
    guidance: guidance_scale,
    sameLatent: same_latent,
  };
  if (!validation.greedy) return { sampled };
  return { sampled, greedy: { ...sampled, sigmas: (tokens) => sigmas(eval_num_steps, tokens), noiseLevel: 0 } };
}
