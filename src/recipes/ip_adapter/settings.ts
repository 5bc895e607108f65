/** The recipe `ip_adapter`: a flow-matching image model with an IP-Adapter paints into masked images. It is trained by flow matching, or by GRPO or PPO on its noisy steps. */
import { z } from 'zod';
import { reward } from '../../rewards/schema/reward.js';
import { withMeasure } from '../../rewards/score/settings.js';
import { flowAlgorithm } from '../../config/schema/algorithm.js';
import { inpaintData } from '../../config/schema/data.js';
import { flowInitDescription, flowInitFields } from '../../config/schema/image_model.js';
import { idleWhere, positive, positiveInteger, result, section } from '../../core/schema/mark.js';
import { flowEngine, lora, optionalModel, type ModelReference } from '../../config/schema/model.js';
import { taskField, trainedFields } from '../../config/schema/run.js';
import { flowRollout, flowValidation, noisySteps } from '../../config/schema/training.js';
import { isSupervised, groupRules, sharedRules } from '../shared/rules/training.js';
import { startRules } from '../shared/tokens/rules.js';
import {
  whenSet,
  validSection,
  problem,
  problemUnless,
  requireValues,
  type PartialSettings,
  type Problem,
  type Rule,
} from '../../config/schema/rules.js';
import { freshFlowShape } from '../shared/flow/settings.js';
import {
  flowActivations,
  flowAdapterParameters,
  flowModelParameters,
  frozenBytes,
  frozenFlowBytes,
  frozenWordsBytes,
  frozenVisionBytes,
  imagePromptParameters,
  trainingBytes,
  type FlowModelShape,
  type ShapeOf,
  type DataSizes,
} from '../shared/memory.js';
import { preset, startMissing, sourcesOf } from '../recipe.js';
import { noLabelledWords, rewardRules } from '../shared/rules/reward.js';
import { idleClip } from '../shared/tokens/settings.js';

const imagePrompt = z.strictObject({
  tokens: result('Number of tokens.', positiveInteger.default(4)),
  scale: result('Factor of their attention.', positive.default(1)),
});

const init = section(
  flowInitDescription,
  z.strictObject({
    ...flowInitFields,
    text_length: result('The number of letters of the quoted text that the model reads.', positiveInteger),
    ip_adapter: section(
      'The IP-Adapter: tokens of the style image that every joint block attends to. null means none.',
      imagePrompt.nullable(),
    ),
  }),
);

const part = (description: string) =>
  optionalModel(description, 'for the built-in one of the tiny world, which has no weights');

const policy = section(
  'The image model.',
  z.strictObject({
    model: optionalModel(
      'The initial weights: a local path, {hub, revision} or {run, config}. null trains policy.init.',
      'with policy.init',
    ),
    init: init.nullable().default(null).meta({ description: 'The architecture if policy.model is null.' }),
    model_type: result(
      'The model family, which decides how noise levels are spaced.',
      z.enum(['tiny', 'flux', 'qwen']).default('tiny'),
    ),
    train: result(
      "The weights that train: 'adapter' for the IP-Adapter, 'lora' for LoRA on the linear layers (policy.lora), or 'all'. Checkpoints of 'adapter' and 'lora' contain only these weights and name their base model.",
      z.enum(['adapter', 'lora', 'all']).default('adapter'),
    ),
    lora: lora
      .nullable()
      .default(null)
      .meta({ ...lora.meta() }),
    ip_adapter: section(
      'A new IP-Adapter for a model without one. null uses the adapter of the model.',
      imagePrompt.nullable().default(null),
    ),
    parts: section(
      'The frozen models around it.',
      z
        .strictObject({
          vae: part('The autoencoder between images and latents.'),
          text_encoder: part('The text encoder of prompts.'),
          image_encoder: part('The encoder of style images: the folder of a CLIP or a SigLIP.'),
        })
        .prefault({}),
    ),
    engine: flowEngine,
  }),
);

export const schema = z.strictObject({
  ...trainedFields,
  ...taskField('ip_adapter'),
  validation: withMeasure(flowValidation),
  algorithm: flowAlgorithm,
  rollout: idleWhere(isSupervised, flowRollout),
  policy,
  data: inpaintData,
  reward: idleWhere(isSupervised, reward),
});
export type IpAdapterSettings = z.output<typeof schema>;

/** Characters of a quoted word. */
export const LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789';

/** Width of the encoding of one of `places` positions: its letter, or none, and its index. */
export const letterWidth = (places: number): number => LETTERS.length + 1 + places;

/** Side of the square to which a style image is averaged down. */
export const STYLE_SIDE = 4;
/** Number of features of a style image. */
export const styleWidth = 3 * STYLE_SIDE ** 2;

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
          `found '${policy.train}' with policy.init, whose other weights are random; allowed: 'all', or '${policy.train}' with policy.model`,
        )
      : []),
    ...whenSet([validSection(policy?.ip_adapter)], () =>
      problem('policy.ip_adapter', 'found with policy.init; allowed: policy.init.ip_adapter instead'),
    ),
    ...whenSet([attention_head_dim], (depth) =>
      problemUnless(
        depth >= 6 && depth % 2 === 0,
        'policy.init.attention_head_dim',
        `found ${depth}; allowed: an even number of at least 6, for positions`,
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
        `found ${JSON.stringify(train)} with policy.lora, which it does not train; allowed: 'lora', or policy.lora: null`,
      ),
    );
  }
  return [
    ...(lora === null
      ? problem('policy.lora', "found null with policy.train 'lora'; allowed: {} for the defaults, or {rank, alpha, …}")
      : []),
    ...whenSet([validSection(policy?.ip_adapter)], () =>
      problem(
        'policy.ip_adapter',
        "found with policy.train 'lora', which does not train the new adapter; allowed: null",
      ),
    ),
  ];
}

/** The message about half precision on CUDA. */
export const COPIED_HALVES =
  "found 'float16' with policy.engine.provider 'cuda', which would copy each matrix at each use; allowed: 'float32', or provider 'cpu' or 'webgpu'";

/** Trained weights are float32. Half precision is for frozen weights, on engines that keep one copy. */
function halfWeights({ policy }: Settings): readonly Problem[] {
  if (policy?.engine?.dtype !== 'float16') return [];
  return [
    ...(policy.train === 'all'
      ? problem(
          'policy.engine.dtype',
          "found 'float16' with policy.train 'all'; allowed: with 'adapter' or 'lora', for the frozen weights, or 'float32'",
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

/** Settings that this recipe cannot follow. */
function unused({ rollout, algorithm, policy }: Settings): readonly Problem[] {
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

export const ipAdapter = preset<IpAdapterSettings>({
  name: 'ip_adapter',
  schema,
  pipeline: 'image-to-image',
  usedAt: { key: 'policy.model', of: 'ip_adapter' },
  parts: [
    { rules: [...groupRules, ...sharedRules, ...ipAdapterRules] },
    {
      models: ['policy.parts.vae', 'policy.parts.text_encoder', 'policy.parts.image_encoder'],
      learns: {
        engine: 'policy.engine',
        start: 'policy.model',
        parameters: (settings, shapeOf) => {
          const shape = shapeOfModel(settings, shapeOf);
          return shape === null ? null : trainedOf(settings, shape);
        },
        memory: memoryOf,
        shape: shapeOfModel,
        rows: ({ rollout, algorithm }) => {
          const { episodes_per_iteration: episodes, num_steps, timestep_fraction, sde_window } = rollout;
          const levels = algorithm.type !== 'sft' && algorithm.surrogate === 'nft' ? algorithm.nft.levels : null;
          return episodes * (levels ?? sde_window?.size ?? noisySteps(num_steps, timestep_fraction));
        },
      },
      warnings: idleClip,
      missing: (settings) => [
        ...startMissing(settings),
        ...partsMissing(settings.policy).map(
          (part) =>
            `policy.parts.${part} is null, and policy.model_type '${settings.policy.model_type}' needs it: ${PARTS[part]}; for laptop size, use --with configs/lib/ip_adapter_tiny.libsonnet`,
        ),
      ],
    },
    { rules: [...rewardRules, noLabelledWords] },
  ],
});

function memoryOf(settings: IpAdapterSettings, shapeOf: ShapeOf, sizes?: DataSizes): number | null {
  const { optimizer, algorithm, policy } = settings;
  const shape = shapeOfModel(settings, shapeOf);
  if (shape === null) return null;
  const letters = policy.parts.text_encoder === null ? shape.textWidth - letterWidth(0) : ASSUMED_TEXT;
  const pixels = mostPixels(settings.data, sizes);
  const tokens = pixels / shape.patch ** 2 + letters;
  const copies = (optimizer.ema_decay === null ? 0 : 1) + (algorithm.type === 'sft' ? 0 : 1);
  const activations = flowActivations(shape, {
    ...{ images: optimizer.per_device_batch_size, tokens },
    gradientCheckpointing: optimizer.gradient_checkpointing,
  });
  const { dtype } = policy.engine;
  const { text_encoder: words, image_encoder: looks, vae } = policy.parts;
  const around =
    frozenWordsBytes(words, shapeOf, dtype) + frozenVisionBytes(looks, shapeOf) + frozenBytes(vae, shapeOf, pixels);
  const frozen = frozenFlowBytes(shape, frozenOf(settings, shape), dtype);
  return trainingBytes(trainedOf(settings, shape), activations, copies) + frozen + around;
}

/** The key for each part of a model of real size. */
const PARTS = {
  vae: 'name the folder of an autoencoder as diffusers saves it',
  text_encoder: "name FLUX's whole folder as diffusers saves it, or the text_encoder folder of Qwen-Image",
  image_encoder: 'name the folder of a CLIP or a SigLIP as transformers saves it',
} as const;

/** The parts that a model needs and lacks. */
function partsMissing({ model_type, parts, ip_adapter, train }: IpAdapterSettings['policy']): (keyof typeof PARTS)[] {
  if (model_type === 'tiny') return [];
  const looks = ip_adapter !== null || train === 'adapter';
  const needed = ['vae', 'text_encoder', ...(looks ? ['image_encoder'] : [])] as (keyof typeof PARTS)[];
  return needed.filter((part) => parts[part] === null);
}

/** The pixels of images that cannot be read yet, and the tokens of a text. */
const ASSUMED_PIXELS = 512 ** 2;
const ASSUMED_TEXT = 512;

/** Pixels of the largest image that a run sees. */
function mostPixels(data: IpAdapterSettings['data'], looked?: DataSizes): number {
  if (data.resolution !== null) return data.resolution ** 2;
  if (data.tiny !== null) return data.tiny.width * data.tiny.height;
  const sizes = sourcesOf(data).flatMap(({ path }) => looked?.largest(path) ?? []);
  return sizes.length === 0 ? ASSUMED_PIXELS : Math.max(...sizes.map(({ width, height }) => width * height));
}

/** Number of parameters that training changes. */
function trainedOf({ policy: { train, lora } }: Pick<IpAdapterSettings, 'policy'>, shape: FlowModelShape): number {
  const imagePrompt = imagePromptParameters(shape);
  switch (train) {
    case 'all':
      return flowModelParameters(shape) + imagePrompt;
    case 'adapter':
      return imagePrompt;
    case 'lora':
      return flowAdapterParameters(shape, lora?.rank ?? 0);
  }
}

/** Number of parameters that it never changes. */
function frozenOf({ policy: { train } }: Pick<IpAdapterSettings, 'policy'>, shape: FlowModelShape): number {
  switch (train) {
    case 'all':
      return 0;
    case 'adapter':
      return flowModelParameters(shape);
    case 'lora':
      return flowModelParameters(shape) + imagePromptParameters(shape);
  }
}

/** The share of images without words that a model has seen by the end of the run. Null for a model made elsewhere, for which it is unknown. */
export function finalDropout(
  before: number | null,
  { algorithm, policy }: Pick<IpAdapterSettings, 'algorithm' | 'policy'>,
): number | null {
  if (before === null && policy.model !== null) return null;
  return Math.max(before ?? 0, algorithm.type === 'sft' ? algorithm.sft.condition_dropout : 0);
}

export function shapeOfModel(settings: IpAdapterSettings, shapeOf: ShapeOf): FlowModelShape | null {
  const { policy } = settings;
  const { init, model } = policy;
  const begun = init?.ip_adapter ?? policy.ip_adapter;
  const imagePrompt = begun === null ? null : { tokens: begun.tokens, width: styleWidth };
  if (init === null) {
    const found = model === null ? null : shapeOf(model);
    if (found === null || !('kind' in found) || found.kind !== 'flow') return null;
    const conditionDropout = finalDropout(found.conditionDropout, settings);
    return { ...found, imagePrompt: found.imagePrompt ?? imagePrompt, conditionDropout };
  }
  const reduction = reductionOf(policy.parts.vae, shapeOf);
  if (reduction === null) return null;
  return freshFlowShape(init, {
    textWidth: letterWidth(init.text_length),
    reduction,
    imagePrompt,
    conditionDropout: finalDropout(null, settings),
  });
}

/** Side of an image divided by that of its latents. Null if unknown before the autoencoder is opened. */
function reductionOf(vae: ModelReference | null, shapeOf: ShapeOf): number | null {
  if (vae === null) return 1;
  const shape = shapeOf(vae);
  return shape !== null && 'kind' in shape && shape.kind === 'autoencoder' ? shape.reduction : null;
}
