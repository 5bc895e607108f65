/** The recipe `ip_adapter`: a flow-matching image model with an IP-Adapter paints into masked pictures, trained by flow matching, or by GRPO or PPO on its noisy steps. */
import { readsQuotedText } from '../../rewards/score/choice.js';
import type { ModelReference } from '../../schema/model.js';
import { noisySteps } from '../../schema/training.js';
import { flowPartNeeds, freshFlowShape, guidanceNeeds } from '../flow_model.js';
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
} from '../memory.js';
import { preset, startMissing } from '../preset.js';
import { sourcesOf, type FlowModelShape, type Need, type ShapeOf, type DataSizes } from '../recipe.js';
import { noLabelledWords, rewardRules } from '../reward_rules.js';
import { letterWidth, styleWidth } from '../sign_encoding.js';
import { idleClip } from '../token_policy.js';
import { groupRules, sharedRules } from '../training_rules.js';
import { ipAdapterRules } from './rules.js';
import { schema, type IpAdapterSettings } from './schema.js';

export const ipAdapter = preset<IpAdapterSettings>({
  name: 'ip_adapter',
  schema,
  pipeline: 'image-to-image',
  usedAt: { key: 'policy.model', of: 'ip_adapter' },
  parts: [
    { needs: datasetNeeds },
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
      needs: ({ policy, algorithm, rollout }, shapeOf) => {
        const { model, train, lora, ip_adapter: begun, parts } = policy;
        const guidance = algorithm.type === 'sft' ? null : rollout.guidance_scale;
        return [
          ...flowPartNeeds(parts),
          ...(typeof model === 'string'
            ? [{ kind: 'flow_model', folder: model, trains: train, lora, begun, guidance } as const]
            : []),
          ...guidanceNeeds('policy', model, guidance, shapeOf),
        ];
      },
      warnings: idleClip,
      missing: (settings) => [
        ...startMissing(settings),
        ...partsMissing(settings.policy).map(
          (part) =>
            `policy.parts.${part} is null, and policy.model_type '${settings.policy.model_type}' needs it: ${PARTS[part]}; at laptop size: --with configs/lib/ip_adapter_tiny.libsonnet`,
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
    ...{ pictures: optimizer.per_device_batch_size, tokens },
    gradientCheckpointing: optimizer.gradient_checkpointing,
  });
  const { dtype } = policy.engine;
  const { text_encoder: words, image_encoder: looks, vae } = policy.parts;
  const around =
    frozenWordsBytes(words, shapeOf, dtype) + frozenVisionBytes(looks, shapeOf) + frozenBytes(vae, shapeOf, pixels);
  const frozen = frozenFlowBytes(shape, frozenOf(settings, shape), dtype);
  return trainingBytes(trainedOf(settings, shape), activations, copies) + frozen + around;
}

function datasetNeeds(settings: IpAdapterSettings, shapeOf: ShapeOf): Need[] {
  const { data, policy, algorithm, reward } = settings;
  // The model without a text encoder reads what a prompt quotes, whatever scores it; a supervised run only scores held-out pictures.
  const [read, scored] = [policy.parts.text_encoder === null, readsQuotedText(reward)];
  const side = shapeOfModel(settings, shapeOf)?.patch ?? 1;
  const lists = (sources: typeof data.train, quoted: boolean): Need[] =>
    sources.map(({ path }) => ({ kind: 'self_bench', path, quoted, side, resolution: data.resolution }));
  return [
    ...lists(data.train, read || (scored && algorithm.type !== 'sft')),
    ...lists(data.validation, read || scored),
  ];
}

/** The key for each part of a model of real size. */
const PARTS = {
  vae: 'name the folder of an autoencoder as diffusers saves it',
  text_encoder: "name FLUX's whole folder as diffusers saves it, or the folder that scripts/export_flow_parts wrote",
  image_encoder: 'name the folder of a CLIP or a SigLIP as transformers saves it',
} as const;

/** The parts that a model needs and lacks. */
function partsMissing({ model_type, parts, ip_adapter, train }: IpAdapterSettings['policy']): (keyof typeof PARTS)[] {
  if (model_type === 'tiny') return [];
  const looks = ip_adapter !== null || train === 'adapter';
  const needed = ['vae', 'text_encoder', ...(looks ? ['image_encoder'] : [])] as (keyof typeof PARTS)[];
  return needed.filter((part) => parts[part] === null);
}

/** The pixels of pictures that cannot be read yet, and the tokens of a text. */
const ASSUMED_PIXELS = 512 ** 2;
const ASSUMED_TEXT = 512;

/** Pixels of the largest picture that a run sees. */
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

/** The share of pictures without words that a model has seen by the end of the run; null for a model made elsewhere, for which it is unknown. */
export function dropoutSeen(
  before: number | null,
  { algorithm, policy }: Pick<IpAdapterSettings, 'algorithm' | 'policy'>,
): number | null {
  if (before === null && policy.model !== null) return null;
  return Math.max(before ?? 0, algorithm.type === 'sft' ? algorithm.sft.condition_dropout : 0);
}

function shapeOfModel(settings: IpAdapterSettings, shapeOf: ShapeOf): FlowModelShape | null {
  const { policy } = settings;
  const { init, model } = policy;
  const begun = init?.ip_adapter ?? policy.ip_adapter;
  const imagePrompt = begun === null ? null : { tokens: begun.tokens, width: styleWidth };
  if (init === null) {
    const found = model === null ? null : shapeOf(model);
    if (found === null || !('kind' in found) || found.kind !== 'flow') return null;
    const conditionDropout = dropoutSeen(found.conditionDropout, settings);
    return { ...found, imagePrompt: found.imagePrompt ?? imagePrompt, conditionDropout };
  }
  const reduction = reductionOf(policy.parts.vae, shapeOf);
  if (reduction === null) return null;
  return freshFlowShape(init, {
    textWidth: letterWidth(init.text_length),
    reduction,
    imagePrompt,
    conditionDropout: dropoutSeen(null, settings),
  });
}

/** Side of a picture divided by that of its latents; null if unknown before the autoencoder is opened. */
function reductionOf(vae: ModelReference | null, shapeOf: ShapeOf): number | null {
  if (vae === null) return 1;
  const shape = shapeOf(vae);
  return shape !== null && 'kind' in shape && shape.kind === 'autoencoder' ? shape.reduction : null;
}
