/** Rules of the recipe `ip_adapter` between its settings. */
import { noisySteps } from '../../schema/training.js';
import { startRules } from '../policy_rules.js';
import {
  whenSet,
  validSection,
  problem,
  problemUnless,
  type PartialSettings,
  type Problem,
  type Rule,
} from '../../schema/rules.js';
import type { IpAdapterSettings } from './schema.js';

type Settings = PartialSettings<IpAdapterSettings>;

export const ipAdapterRules: readonly Rule<IpAdapterSettings>[] = [
  startRules,
  scratch,
  adapters,
  halfWeights,
  signs,
  window,
  minibatches,
  noise,
  unused,
];

/** With random weights, the last layer and the modulations are zero, and belong to no adapter. */
function scratch({ policy }: Settings): readonly Problem[] {
  return whenSet([validSection(policy?.init)], ({ attention_head_dim }) => [
    ...(policy?.train === 'adapter' || policy?.train === 'lora'
      ? problem(
          'policy.train',
          `found '${policy.train}' with policy.init, whose other weights nobody has trained; allowed: 'all', or '${policy.train}' with policy.model`,
        )
      : []),
    ...whenSet([validSection(policy?.ip_adapter)], () =>
      problem('policy.ip_adapter', 'found with policy.init, which says it itself; allowed: policy.init.ip_adapter'),
    ),
    ...whenSet([attention_head_dim], (depth) =>
      problemUnless(
        depth >= 6 && depth % 2 === 0,
        'policy.init.attention_head_dim',
        `found ${depth}; allowed: an even number of at least 6, as positions need`,
      ),
    ),
  ]);
}

/** Adapters have to be configured exactly if they are trained. */
function adapters({ policy }: Settings): readonly Problem[] {
  const [train, lora] = [policy?.train, validSection(policy?.lora)];
  if (train === undefined || lora === undefined) return [];
  if (train !== 'lora') {
    return whenSet([lora], () =>
      problem(
        'policy.train',
        `found ${JSON.stringify(train)} with policy.lora, which is then not trained; allowed: 'lora', or policy.lora: null`,
      ),
    );
  }
  return [
    ...(lora === null
      ? problem('policy.lora', "found null with policy.train 'lora'; allowed: {} for its defaults, or {rank, alpha, …}")
      : []),
    ...whenSet([validSection(policy?.ip_adapter)], () =>
      problem(
        'policy.ip_adapter',
        "found with policy.train 'lora', which would leave it as it begins, without effect; allowed: null",
      ),
    ),
  ];
}

/** What is wrong with half precision on CUDA. */
export const COPIED_HALVES =
  "found 'float16' with policy.engine.provider 'cuda', to which each matrix would be copied for each of its uses; allowed: 'float32', or provider 'cpu' or 'webgpu'";

/** What trains is float32: half precision is for what stays frozen, and for engines that hold it once. */
function halfWeights({ policy }: Settings): readonly Problem[] {
  if (policy?.engine?.dtype !== 'float16') return [];
  return [
    ...(policy.train === 'all'
      ? problem(
          'policy.engine.dtype',
          "found 'float16' with policy.train 'all'; allowed: with 'adapter' or 'lora', whose frozen weights are held so, or 'float32'",
        )
      : []),
    ...(policy.engine.provider === 'cuda' ? problem('policy.engine.dtype', COPIED_HALVES) : []),
  ];
}

/** Signs of the tiny world have to be whole patches, and their words short enough to be read whole. */
function signs({ policy, data }: Settings): readonly Problem[] {
  const uneven = (['width', 'height'] as const).flatMap((side) =>
    whenSet([data?.tiny?.[side], policy?.init?.patch], (size, patch) =>
      problemUnless(
        typeof data?.resolution === 'number' || size % patch === 0,
        `data.tiny.${side}`,
        `found ${size}; allowed: a multiple of policy.init.patch (${patch})`,
      ),
    ),
  );
  return [
    ...uneven,
    ...whenSet([data?.tiny?.letters, policy?.init?.text_length], (letters, places) =>
      problemUnless(
        letters <= places,
        'policy.init.text_length',
        `found ${places}; allowed: at least data.tiny.letters (${letters})`,
      ),
    ),
  ];
}

/** The noisy steps of a window have to be among those that are learnt from. */
function window({ rollout }: Settings): readonly Problem[] {
  return whenSet([rollout?.num_steps, rollout?.timestep_fraction], (steps, fraction) => {
    const noisy = noisySteps(steps, fraction);
    if (noisy === 0) {
      return problem(
        'rollout.num_steps',
        `found ${steps}, of which rollout.timestep_fraction ${fraction} leaves none to learn from; allowed: more steps`,
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

/** Either noisy steps are learnt from, or pictures with noise on them. */
function noise({ rollout, algorithm, optimizer }: Settings): readonly Problem[] {
  if (rollout === undefined || algorithm === undefined || algorithm.type === 'sft') return [];
  const { noise_level: level, sde_window: windowed, num_steps, timestep_fraction } = rollout;
  if (algorithm.surrogate !== 'nft') {
    return problemUnless(
      level !== 0,
      'rollout.noise_level',
      "found 0, which leaves no noisy step to learn from; allowed: a number above 0, or algorithm.surrogate 'nft'",
    );
  }
  const { nft, advantage } = algorithm;
  return [
    ...problemUnless(
      level === undefined || level === 0,
      'rollout.noise_level',
      `found ${level} with algorithm.surrogate 'nft', which learns from pictures and not from noisy steps; allowed: 0`,
    ),
    ...whenSet([validSection(windowed)], () =>
      problem('rollout.sde_window', "found with algorithm.surrogate 'nft', which has no noisy steps; allowed: null"),
    ),
    ...problemUnless(
      rollout.same_latent !== true,
      'rollout.same_latent',
      "found true with algorithm.surrogate 'nft', whose pictures differ by their first noise alone: a group's would all be the same; allowed: false",
    ),
    ...problemUnless(
      advantage?.clip !== null,
      'algorithm.advantage.clip',
      "found null with algorithm.surrogate 'nft', to which this advantage is as good as it gets; allowed: a number above 0",
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
      "found 'average' without optimizer.ema_decay, which makes the averages; allowed: 'current', or set it",
    ),
  ];
}

/** Settings that this recipe cannot follow. */
function unused({ rollout, algorithm, policy }: Settings): readonly Problem[] {
  const dropout = algorithm?.sft?.condition_dropout;
  return [
    ...whenSet([rollout?.guidance_scale], (guidance) => [
      ...(dropout === 0
        ? problem(
            'rollout.guidance_scale',
            `found ${guidance} with algorithm.sft.condition_dropout 0, which leaves the model without the unconditional branch that guidance is measured from; allowed: null, or a dropout such as 0.1`,
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
