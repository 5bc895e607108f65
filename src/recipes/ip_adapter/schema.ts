/** The settings of the recipe `ip_adapter`. */
import { z } from 'zod';
import { reward } from '../../rewards/schema/reward.js';
import { withMeasure } from '../../rewards/score/settings.js';
import { flowAlgorithm } from '../../schema/algorithm.js';
import { inpaintData } from '../../schema/data.js';
import { flowInitDescription, flowInitFields } from '../../schema/flow_init.js';
import { idleWhere, positive, positiveInteger, result, section } from '../../schema/mark.js';
import { flowEngine, lora, optionalModel } from '../../schema/model.js';
import { taskField, trainedFields } from '../../schema/run.js';
import { flowRollout, flowValidation } from '../../schema/training.js';
import { isSupervised } from '../training_rules.js';

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
      .meta({ ...lora.meta() }),
    ip_adapter: section(
      'The IP-Adapter that is begun on a model that has none: tokens of the style image that every joint block attends to besides; null: the one that the model has.',
      imagePrompt.nullable().default(null),
    ),
    parts: section(
      'The frozen models around it.',
      z
        .strictObject({
          vae: part('The autoencoder between pictures and latents.'),
          text_encoder: part('What reads the prompt.'),
          image_encoder: part('What looks at the style image: the folder of a CLIP or a SigLIP.'),
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
