/** The recipe `ip_adapter`: a flow-matching image model with an IP-Adapter paints into masked pictures, trained by flow matching, or by GRPO or PPO on its noisy steps. */
import { z } from 'zod';
import { reward } from '../../rewards/schema/reward.js';
import { measured } from '../../rewards/score/settings.js';
import { readsQuoted } from '../../rewards/score/choice.js';
import { flowAlgorithm } from '../../schema/algorithm.js';
import { inpaintData } from '../../schema/data.js';
import { idleWhere, positive, positiveInteger, result, section } from '../../schema/mark.js';
import { flowInitDescription, flowInitFields } from '../../schema/flow_init.js';
import { engine, lora, type ModelReference, optionalModel } from '../../schema/model.js';
import { taskField, trainedFields } from '../../schema/run.js';
import { flowRollout, flowValidation, noisySteps } from '../../schema/training.js';
import { flowPartNeeds, freshFlowShape, guidanceNeeds } from '../flow_model.js';
import {
  flowActivations,
  flowAdapterParameters,
  flowModelParameters,
  imagePromptParameters,
  trainingBytes,
} from '../memory.js';
import { preset, startMissing } from '../preset.js';
import { sourcesOf, type FlowModelShape, type Need, type ShapeOf, type SizeIn } from '../recipe.js';
import { noLabelledWords, rewardRules } from '../reward_rules.js';
import { isObject } from '../../schema/walk.js';
import { number, problem, type Problem, type Reader } from '../rules.js';
import { letterWidth, styleWidth } from '../sign_encoding.js';
import { idleClip } from '../token_policy.js';
import { groupRules, sharedRules, supervised } from '../training_rules.js';

const imagePrompt = z.strictObject({
  tokens: result('How many.', positiveInteger.default(4)),
  scale: result('What their attention is multiplied by.', positive.default(1)),
});

const init = section(
  flowInitDescription,
  z.strictObject({
    ...flowInitFields,
    text_length: result('Letters of the quoted text that it reads.', positiveInteger),
    ip_adapter: section(
      'The IP-Adapter: tokens of the style image that every joint block attends to besides; null means none.',
      imagePrompt.nullable(),
    ),
  }),
);

const part = (description: string) =>
  optionalModel(description, 'for the one without weights that the tiny world needs');

const policy = section(
  'The image model.',
  z.strictObject({
    model: optionalModel(
      'The start: a local path, {hub, revision} or {run, config}; null trains policy.init.',
      'with policy.init',
    ),
    init: init.nullable().default(null).meta({ description: 'The architecture where policy.model is null.' }),
    model_type: result(
      'The family, which says how noise levels are spaced.',
      z.enum(['tiny', 'flux', 'qwen']).default('tiny'),
    ),
    train: result(
      "What training changes: 'adapter', the IP-Adapter alone, 'lora', adapters beside its linear layers as policy.lora says, or 'all' weights. A checkpoint of the first two holds what is trained alone, and names the model that it stands on.",
      z.enum(['adapter', 'lora', 'all']).default('adapter'),
    ),
    lora: lora
      .nullable()
      .default(null)
      .meta({ ...lora.meta(), absent: null }),
    ip_adapter: section(
      'The IP-Adapter that is begun on a model that has none: tokens of the style image that every joint block attends to besides; null: the one that the model has.',
      imagePrompt.nullable().default(null),
      { absent: null },
    ),
    parts: section(
      'The frozen models around it.',
      z
        .strictObject({
          vae: part('The autoencoder between pictures and latents.'),
          text_encoder: part('What reads the prompt.'),
          image_encoder: part('What looks at the style image.'),
        })
        .prefault({}),
    ),
    engine,
  }),
);

const schema = z.strictObject({
  ...trainedFields,
  ...taskField('ip_adapter'),
  validation: measured(flowValidation),
  algorithm: flowAlgorithm,
  rollout: idleWhere(supervised, flowRollout),
  policy,
  data: inpaintData,
  reward: idleWhere(supervised, reward),
});
export type IpAdapterSettings = z.output<typeof schema>;

export const ipAdapter = preset<IpAdapterSettings>({
  name: 'ip_adapter',
  schema,
  parts: [
    { needs: datasetNeeds },
    { rules: [...groupRules, ...sharedRules, start, scratch, adapters, signs, window, unused] },
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
        rows: ({ rollout }) => {
          const { episodes_per_iteration: episodes, num_steps, timestep_fraction, sde_window } = rollout;
          return episodes * (sde_window?.size ?? noisySteps(num_steps, timestep_fraction));
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

function memoryOf(settings: IpAdapterSettings, shapeOf: ShapeOf, sizeIn: SizeIn = () => null): number | null {
  const { optimizer, algorithm, policy } = settings;
  const shape = shapeOfModel(settings, shapeOf);
  if (shape === null) return null;
  const words = policy.parts.text_encoder === null ? shape.textWidth - letterWidth(0) : ASSUMED_TEXT;
  const tokens = mostPixels(settings.data, sizeIn) / shape.patch ** 2 + words;
  const copies = (optimizer.ema_decay === null ? 0 : 1) + (algorithm.type === 'sft' ? 0 : 1);
  const activations = flowActivations(shape, optimizer.per_device_batch_size, tokens);
  const frozen = policy.train === 'all' ? 0 : flowModelParameters(shape) + imagePromptParameters(shape);
  return trainingBytes(trainedOf(settings, shape), activations, copies, frozen, 1);
}

function datasetNeeds(settings: IpAdapterSettings, shapeOf: ShapeOf): Need[] {
  const { data, policy, algorithm, reward } = settings;
  // The model without a text encoder reads what a prompt quotes, whatever scores it; a supervised run only scores held-out pictures.
  const [read, scored] = [policy.parts.text_encoder === null, readsQuoted(reward)];
  const side = shapeOfModel(settings, shapeOf)?.patch ?? 1;
  const lists = (sources: typeof data.train, quoted: boolean): Need[] =>
    sources.map(({ path }) => ({ kind: 'self_bench', path, quoted, side, resolution: data.resolution }));
  return [
    ...lists(data.train, read || (scored && algorithm.type !== 'sft')),
    ...lists(data.validation, read || scored),
  ];
}

const EXPORTED = 'the folder that scripts/export_flow_parts wrote';
/** The key for each part of a model of real size. */
const PARTS = {
  vae: `name the folder of an AutoencoderKL as diffusers saves it, or ${EXPORTED}`,
  text_encoder: `name ${EXPORTED}`,
  image_encoder: `name ${EXPORTED}`,
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
function mostPixels(data: IpAdapterSettings['data'], sizeIn: SizeIn): number {
  if (data.resolution !== null) return data.resolution ** 2;
  if (data.tiny !== null) return data.tiny.width * data.tiny.height;
  const sizes = sourcesOf(data).flatMap(({ path }) => sizeIn(path) ?? []);
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

/** A policy starts from a checkpoint or from random weights. */
function start(read: Reader): Problem[] {
  const [model, random] = [read('policy.model'), read('policy.init')];
  if (model === undefined || random === undefined || model === null || random === null) return [];
  return problem(
    'policy.init',
    'found both policy.model and policy.init; set one of them to null: a checkpoint brings its own architecture',
  );
}

/** The noisy steps of a window have to be among those that are learnt from. */
function window(read: Reader): Problem[] {
  const [steps, fraction] = [number(read, 'rollout.num_steps'), number(read, 'rollout.timestep_fraction')];
  if (steps === null || fraction === null) return [];
  const noisy = noisySteps(steps, fraction);
  if (noisy === 0) {
    return problem(
      'rollout.num_steps',
      `found ${steps}, of which rollout.timestep_fraction ${fraction} leaves none to learn from; allowed: more steps`,
    );
  }
  const size = number(read, 'rollout.sde_window.size');
  const range = read('rollout.sde_window.range');
  if (size === null || !Array.isArray(range)) return [];
  const [from, to] = range as [number, number];
  if (Math.min(to, noisy) - from >= size) return [];
  return problem(
    'rollout.sde_window',
    `found ${size} steps within [${from}, ${to}), but only ${noisy} of rollout.num_steps ${steps} are noisy; allowed: a window that fits, or more steps`,
  );
}

/** With random weights, the last layer and the modulations are zero, and belong to no adapter. */
function scratch(read: Reader): Problem[] {
  if (read('policy.init') === null || read('policy.init') === undefined) return [];
  const depth = number(read, 'policy.init.attention_head_dim');
  const train = read('policy.train');
  return [
    ...(train === 'adapter' || train === 'lora'
      ? problem(
          'policy.train',
          `found '${train}' with policy.init, whose other weights nobody has trained; allowed: 'all', or '${train}' with policy.model`,
        )
      : []),
    ...(isObject(read('policy.ip_adapter'))
      ? problem('policy.ip_adapter', 'found with policy.init, which says it itself; allowed: policy.init.ip_adapter')
      : []),
    ...(depth === null || (depth >= 6 && depth % 2 === 0)
      ? []
      : problem(
          'policy.init.attention_head_dim',
          `found ${depth}; allowed: an even number of at least 6, as positions need`,
        )),
  ];
}

/** Adapters have to be configured exactly if they are trained. */
function adapters(read: Reader): Problem[] {
  const [train, rank] = [read('policy.train'), read('policy.lora')];
  if (train === undefined || rank === undefined) return [];
  return [
    ...(train === 'lora' && rank === null
      ? problem('policy.lora', "found null with policy.train 'lora'; allowed: {} for its defaults, or {rank, alpha, …}")
      : []),
    ...(train !== 'lora' && rank !== null
      ? problem(
          'policy.train',
          `found ${JSON.stringify(train)} with policy.lora, which is then not trained; allowed: 'lora', or policy.lora: null`,
        )
      : []),
    ...(train === 'lora' && isObject(read('policy.ip_adapter'))
      ? problem(
          'policy.ip_adapter',
          "found with policy.train 'lora', which would leave it as it begins, without effect; allowed: null",
        )
      : []),
  ];
}

/** Signs of the tiny world have to be whole patches, and their words short enough to be read whole. */
function signs(read: Reader): Problem[] {
  const patch = number(read, 'policy.init.patch');
  const [letters, places] = [number(read, 'data.tiny.letters'), number(read, 'policy.init.text_length')];
  const uneven = ['width', 'height'].flatMap((side) => {
    const size = number(read, `data.tiny.${side}`);
    if (number(read, 'data.resolution') !== null || size === null || patch === null || size % patch === 0) return [];
    return problem(`data.tiny.${side}`, `found ${size}; allowed: a multiple of policy.init.patch (${patch})`);
  });
  if (letters === null || places === null || letters <= places) return uneven;
  return [
    ...uneven,
    ...problem('policy.init.text_length', `found ${places}; allowed: at least data.tiny.letters (${letters})`),
  ];
}

/** Settings that this recipe cannot follow. */
function unused(read: Reader): Problem[] {
  const guidance = number(read, 'rollout.guidance_scale');
  const dropout = number(read, 'algorithm.sft.condition_dropout');
  return [
    ...(read('optimizer.gradient_checkpointing') === true
      ? problem('optimizer.gradient_checkpointing', 'found true, which flow models do not do; allowed: false')
      : []),
    ...(guidance !== null && dropout === 0
      ? problem(
          'rollout.guidance_scale',
          `found ${guidance} with algorithm.sft.condition_dropout 0, which leaves the model without the unconditional branch that guidance is measured from; allowed: null, or a dropout such as 0.1`,
        )
      : []),
    ...(guidance !== null && isObject(read('policy.init')) && dropout === null
      ? problem(
          'rollout.guidance_scale',
          `found ${guidance} with policy.init, whose model has no unconditional branch yet; allowed: null, or policy.model`,
        )
      : []),
  ];
}
