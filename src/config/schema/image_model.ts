/** Models that make pictures from a policy's prompts. */
import { z } from 'zod';
import { imagesApi } from './images_api.js';
import { positive, positiveInteger, result, section, count } from '../../core/schema/mark.js';
import { frozenEngine, neededModel, optionalModel } from './model.js';

const ownModel = z.strictObject({
  type: result('A flow model of this process, or a server.', z.literal('model')),
  model: neededModel(
    "The flow transformer, which stays as it is: a local path, {hub, revision} or {run, config}. A folder of FLUX or Stable Diffusion 3 as diffusers saves the whole pipeline brings the models around it and its scheduler's shift.",
  ),
  model_type: result(
    'The family, which says how noise levels are spaced.',
    z.enum(['tiny', 'flux', 'qwen', 'sd3']).default('tiny'),
  ),
  parts: section(
    'The frozen models around it.',
    z
      .strictObject({
        vae: optionalModel(
          'The autoencoder between pictures and latents.',
          "for the pipeline's own, or pixels themselves",
        ),
        text_encoder: optionalModel(
          'What reads prompts: an export, or the folder of a pipeline.',
          "for the pipeline's own, or the words that the model itself says it knows",
        ),
      })
      .prefault({}),
  ),
  width: result('Width of a picture in pixels.', positiveInteger.default(512)),
  height: result('Height of a picture in pixels.', positiveInteger.default(512)),
  num_steps: result("Steps of the ODE's solver.", positiveInteger.default(20)),
  guidance_scale: result(
    'Scale of classifier-free guidance; a model that embeds the guidance is told it, any other is asked twice. null means none.',
    positive.nullable().default(null),
  ),
  pictures_at_once: result('Pictures that the model sees at once.', positiveInteger.default(4)),
  engine: frozenEngine,
});
export type OwnImageModel = z.output<typeof ownModel>;

/** The fields of any kind. */
export const imageEnvironment = section('The frozen image model.', z.discriminatedUnion('type', [ownModel, imagesApi]));

export const flowInitDescription =
  "A flow transformer from random weights: its architecture in the words of diffusers' FluxTransformer2DModel.";

/** Fields that every recipe has in common. */
export const flowInitFields = {
  num_layers: result('Joint blocks, over the tokens of picture and text.', positiveInteger),
  num_single_layers: result('Single-stream blocks behind them.', count.default(0)),
  attention_head_dim: result('Width of one head.', positiveInteger),
  num_attention_heads: result('Heads of a block.', positiveInteger),
  patch: result('Side of the square of latents that one token stands for.', positiveInteger),
  prediction: result(
    'What its last layer gives: the velocity, or the clean latents that it leads to.',
    z.enum(['velocity', 'sample']).default('velocity'),
  ),
};
