/** The recipe `ip_adapter`: a flow-matching image model with an IP-Adapter paints into masked images. It is trained by flow matching, or by GRPO or PPO on its noisy steps. */
import { z } from 'zod';
import { reward } from '../../rewards/schema/reward.js';
import { withMeasure } from '../../rewards/score/settings.js';
import { flowAlgorithm } from '../../config/schema/algorithm.js';
import { inpaintData } from '../../config/schema/data.js';
import { flowInitDescription, flowInitFields } from '../../config/schema/image_model.js';
import { idleWhere, positive, positiveInteger, result, section } from '../../core/schema/mark.js';
import { flowEngine, lora, optionalModel } from '../../config/schema/model.js';
import { taskField, trainedFields } from '../../config/schema/run.js';
import { flowRollout, flowValidation } from '../../config/schema/training.js';
import { isSupervised, groupRules, sharedRules } from '../shared/rules/training.js';
import {
  whenSet,
  validSection,
  problem,
  problemUnless,
  type PartialSettings,
  type Problem,
  type Rule,
} from '../../config/schema/rules.js';
import { flowPolicyRules } from '../shared/flow/rules.js';
import { finalDropout, flowPolicyLearner, freshFlowShape, reductionOf } from '../shared/flow/settings.js';
import {
  flowAdapterParameters,
  flowModelParameters,
  frozenBytes,
  frozenWordsBytes,
  frozenVisionBytes,
  imagePromptParameters,
  type FlowModelShape,
  type ShapeOf,
  type DataSizes,
} from '../shared/memory.js';
import { preset, startMissing, sourcesOf } from '../recipe.js';
import { noLabeledWords, rewardRules } from '../shared/rules/reward.js';
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
  ...flowPolicyRules,
  scratch,
  adapters,
  halfWeights,
  signs,
];

/** With random weights, the last layer and the modulations are zero, and belong to no adapter. */
function scratch({ policy }: Settings): readonly Problem[] {
  return whenSet([validSection(policy?.init)], () => [
    ...(policy?.train === 'adapter' || policy?.train === 'lora'
      ? problem(
          'policy.train',
          `found '${policy.train}' with policy.init, whose other weights are random; allowed: 'all', or '${policy.train}' with policy.model`,
        )
      : []),
    ...whenSet([validSection(policy?.ip_adapter)], () =>
      problem('policy.ip_adapter', 'found with policy.init; allowed: policy.init.ip_adapter instead'),
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

/** Trained weights are float32. Half precision is for frozen weights. */
function halfWeights({ policy }: Settings): readonly Problem[] {
  return policy?.engine?.dtype === 'float16' && policy.train === 'all'
    ? problem(
        'policy.engine.dtype',
        "found 'float16' with policy.train 'all'; allowed: with 'adapter' or 'lora', for the frozen weights, or 'float32'",
      )
    : [];
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

export const ipAdapter = preset<IpAdapterSettings>({
  name: 'ip_adapter',
  schema,
  pipeline: 'image-to-image',
  usedAt: { key: 'policy.model', of: 'ip_adapter' },
  parts: [
    { rules: [...groupRules, ...sharedRules, ...ipAdapterRules] },
    {
      models: ['policy.parts.vae', 'policy.parts.text_encoder', 'policy.parts.image_encoder'],
      learns: flowPolicyLearner(shapeOfModel, trainedOf, ({ data, policy }, shape, shapeOf, sizes) => {
        const { text_encoder: words, image_encoder: looks, vae } = policy.parts;
        const pixels = mostPixels(data, sizes);
        return {
          tokens: pixels / shape.patch ** 2 + (words === null ? shape.textWidth - letterWidth(0) : ASSUMED_TEXT),
          around:
            frozenWordsBytes(words, shapeOf, policy.engine.dtype) +
            frozenVisionBytes(looks, shapeOf) +
            frozenBytes(vae, shapeOf, pixels),
        };
      }),
      warnings: idleClip,
      missing: (settings) => [
        ...startMissing(settings),
        ...partsMissing(settings.policy).map(
          (part) =>
            `policy.parts.${part} is null, and policy.model_type '${settings.policy.model_type}' needs it: ${PARTS[part]}; for laptop size, use --with configs/lib/ip_adapter_tiny.libsonnet`,
        ),
      ],
    },
    { rules: [...rewardRules, noLabeledWords] },
  ],
});

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

/** Number of parameters that training changes, and that it never changes. */
function trainedOf(
  { policy: { train, lora } }: Pick<IpAdapterSettings, 'policy'>,
  shape: FlowModelShape,
): { readonly trained: number; readonly frozen: number } {
  const [model, imagePrompt] = [flowModelParameters(shape), imagePromptParameters(shape)];
  switch (train) {
    case 'all':
      return { trained: model + imagePrompt, frozen: 0 };
    case 'adapter':
      return { trained: imagePrompt, frozen: model };
    case 'lora':
      return { trained: flowAdapterParameters(shape, lora?.rank ?? 0), frozen: model + imagePrompt };
  }
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
