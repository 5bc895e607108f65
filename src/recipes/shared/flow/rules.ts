/** Rules about a flow policy: its trained parts, its sampling, and its actions. */
import type { z } from 'zod';
import type { flowAlgorithm } from '../../../config/schema/algorithm.js';
import type { flowEngine, ModelReference } from '../../../config/schema/model.js';
import { noisySteps, type flowRollout, type OptimizerSettings } from '../../../config/schema/training.js';
import {
  whenSet,
  validSection,
  problem,
  problemUnless,
  requireValues,
  type PartialSettings,
  type Problem,
  type Rule,
} from '../../../config/schema/rules.js';
import { startRules } from '../tokens/rules.js';

/** The settings of a flow policy that its rules read. */
export interface FlowPolicySettings {
  readonly algorithm: z.output<typeof flowAlgorithm>;
  readonly rollout: z.output<typeof flowRollout>;
  readonly optimizer: OptimizerSettings;
  readonly policy: {
    readonly model: ModelReference | null;
    readonly init: { readonly attention_head_dim: number } | null;
    readonly engine: z.output<typeof flowEngine>;
  };
}

type Settings = PartialSettings<FlowPolicySettings>;

/** Rules of every flow policy. */
export const flowPolicyRules: readonly Rule<FlowPolicySettings>[] = [
  startRules,
  headWidth,
  copiedHalves,
  window,
  minibatches,
  noise,
  unguided,
];

/** The message about half precision on CUDA. */
export const COPIED_HALVES =
  "found 'float16' with policy.engine.provider 'cuda', which would copy each matrix at each use; allowed: 'float32', or provider 'cpu' or 'webgpu'";

/** Half precision is for engines that keep one copy of the weights. */
function copiedHalves({ policy }: Settings): readonly Problem[] {
  return policy?.engine?.dtype === 'float16' && policy.engine.provider === 'cuda'
    ? problem('policy.engine.dtype', COPIED_HALVES)
    : [];
}

/** The positions of a transformer with random weights turn three axes by pairs of numbers. */
function headWidth({ policy }: Settings): readonly Problem[] {
  return whenSet([policy?.init?.attention_head_dim], (depth) =>
    problemUnless(
      depth >= 6 && depth % 2 === 0,
      'policy.init.attention_head_dim',
      `found ${depth}; allowed: an even number of at least 6, for positions`,
    ),
  );
}

/** The noisy steps of a window have to be among those that are learned from. */
function window({ rollout }: Settings): readonly Problem[] {
  return whenSet([rollout?.num_steps, rollout?.timestep_fraction], (steps, fraction) => {
    const noisy = noisySteps(steps, fraction);
    if (noisy === 0) {
      return problem(
        'rollout.num_steps',
        `found ${steps}, of which rollout.timestep_fraction ${fraction} leaves no noisy step; allowed: more steps`,
      );
    }
    return whenSet([rollout?.sde_window?.size, rollout?.sde_window?.range], (size, [from, to]) => {
      const room = Math.min(to, noisy) - from - size;
      if (room < 0) {
        return problem(
          'rollout.sde_window',
          `found ${size} steps within [${from}, ${to}), but only ${noisy} of rollout.num_steps ${steps} are noisy; allowed: a window that fits, or more steps`,
        );
      }
      return [];
    });
  });
}

/** An optimizer step needs at least one action: a noisy step of an image, or with 'nft' a noise level. */
function minibatches({ rollout, algorithm }: Settings): readonly Problem[] {
  if (algorithm === undefined || algorithm.type === 'sft') return [];
  const { episodes_per_iteration: episodes, num_steps: steps, timestep_fraction: fraction } = rollout ?? {};
  return whenSet([algorithm.minibatches, episodes, steps, fraction], (parts, images, all, share) => {
    const noisy = rollout?.sde_window?.size ?? algorithm.nft?.levels ?? noisySteps(all, share);
    return problemUnless(
      noisy === 0 || parts <= images * noisy,
      'algorithm.minibatches',
      `found ${parts}; allowed: at most the ${images * noisy} actions of an iteration (rollout.episodes_per_iteration ${images} x ${noisy} noisy steps)`,
    );
  });
}

/** Either noisy steps are learned from, or images with noise on them. */
function noise({ rollout, algorithm, optimizer }: Settings): readonly Problem[] {
  if (rollout === undefined || algorithm === undefined || algorithm.type === 'sft') return [];
  const { noise_level: level, num_steps, timestep_fraction } = rollout;
  if (algorithm.surrogate !== 'nft') {
    return problemUnless(
      level !== 0,
      'rollout.noise_level',
      "found 0, which leaves no noisy step to learn from; allowed: a number above 0, or algorithm.surrogate 'nft'",
    );
  }
  const { nft, advantage } = algorithm;
  return [
    ...requireValues({ rollout }, "algorithm.surrogate 'nft'", [
      ['rollout.noise_level', 0, 'which learns from images and not from noisy steps'],
      ['rollout.sde_window', null, 'which has no noisy steps'],
      [
        'rollout.same_latent',
        false,
        'whose images differ by their first noise alone, so those of a group would be equal',
      ],
    ]),
    ...problemUnless(
      advantage?.clip !== null,
      'algorithm.advantage.clip',
      "found null with algorithm.surrogate 'nft', which scales advantages by it; allowed: a number above 0",
    ),
    ...whenSet([nft?.levels, num_steps, timestep_fraction], (levels, steps, fraction) =>
      problemUnless(
        levels <= noisySteps(steps, fraction),
        'algorithm.nft.levels',
        `found ${levels}; allowed: at most the ${noisySteps(steps, fraction)} levels that rollout.timestep_fraction ${fraction} leaves of rollout.num_steps ${steps}, or null for all`,
      ),
    ),
    ...problemUnless(
      nft?.sampled_by !== 'average' || optimizer?.ema_decay !== null,
      'algorithm.nft.sampled_by',
      "found 'average' without optimizer.ema_decay; allowed: 'current', or with ema_decay",
    ),
  ];
}

/** Guidance needs an unconditional branch. */
function unguided({ rollout, algorithm, policy }: Settings): readonly Problem[] {
  const dropout = algorithm?.sft?.condition_dropout;
  return [
    ...whenSet([rollout?.guidance_scale], (guidance) => [
      ...(dropout === 0
        ? problem(
            'rollout.guidance_scale',
            `found ${guidance} with algorithm.sft.condition_dropout 0, which trains no unconditional branch for guidance; allowed: null, or a dropout such as 0.1`,
          )
        : []),
      ...(dropout === undefined
        ? whenSet([validSection(policy?.init)], () =>
            problem(
              'rollout.guidance_scale',
              `found ${guidance} with policy.init, whose model has no unconditional branch yet; allowed: null, or policy.model`,
            ),
          )
        : []),
    ]),
  ];
}
