/** Models that make images from a policy's prompts. */
import { z } from 'zod';
import { imagesApi } from './images_api.js';
import { positive, positiveInteger, result, section, count } from '../../core/schema/mark.js';
import { frozenEngine, neededModel, optionalModel } from './model.js';

const ownModel = z.strictObject({
  type: result('A flow model in this process, or a server.', z.literal('model')),
  model: neededModel(
    'The frozen flow transformer: a local path, {hub, revision} or {run, config}. A diffusers pipeline of FLUX, FLUX.2-klein or Stable Diffusion 3 also provides its other models and the shift of its scheduler.',
  ),
  model_type: result(
    'The family. It sets the spacing of noise levels.',
    z.enum(['tiny', 'flux', 'flux2', 'qwen', 'sd3']).default('tiny'),
  ),
  parts: section(
    'The frozen models around it.',
    z
      .strictObject({
        vae: optionalModel('The autoencoder between images and latents.', 'for that of the pipeline, or pixels'),
        text_encoder: optionalModel(
          'The text encoder: an export, or the folder of a pipeline.',
          "for that of the pipeline, or the model's own vocabulary",
        ),
      })
      .prefault({}),
  ),
  width: result('Width of an image in pixels.', positiveInteger.default(512)),
  height: result('Height of an image in pixels.', positiveInteger.default(512)),
  num_steps: result('Steps of the ODE solver.', positiveInteger.default(20)),
  guidance_scale: result(
    'Scale of classifier-free guidance. A model that embeds the guidance gets it as an input. Any other model runs twice. null means none.',
    positive.nullable().default(null),
  ),
  pictures_at_once: result('Images in one batch of the model.', positiveInteger.default(4)),
  engine: frozenEngine,
});
export type OwnImageModel = z.output<typeof ownModel>;

/** A model in this process, or a server. */
export const imageEnvironment = section('The frozen image model.', z.discriminatedUnion('type', [ownModel, imagesApi]));

export const flowInitDescription =
  "A randomly initialized flow transformer, with the names of diffusers' FluxTransformer2DModel.";

/** Fields that every recipe has in common. */
export const flowInitFields = {
  num_layers: result('Joint blocks over the tokens of image and text.', positiveInteger),
  num_single_layers: result('Single-stream blocks after them.', count.default(0)),
  attention_head_dim: result('Width of one head.', positiveInteger),
  num_attention_heads: result('Heads of a block.', positiveInteger),
  patch: result('Side of the square of latents that one token covers.', positiveInteger),
  prediction: result(
    'The output of its last layer: the velocity, or the clean latents (sample).',
    z.enum(['velocity', 'sample']).default('velocity'),
  ),
};
