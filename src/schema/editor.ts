/** What edits pictures by what a policy makes of their instructions. */
import { z } from 'zod';
import { positiveInteger, result, section } from './mark.js';
import { engine, neededModel, optionalModel } from './model.js';

/** What of the policy's reading the model that draws is told. */
export const told = result(
  "What the model that draws is told: 'response', the hidden states of picture, instruction and response; 'instruction', those of picture and instruction alone, so that nothing the policy writes has any effect.",
  z.enum(['response', 'instruction']).default('response'),
);

export const editorEnvironment = section(
  'The frozen model that edits pictures, conditioned on the hidden states of the policy.',
  z.strictObject({
    type: result('A flow model of this process.', z.literal('model')),
    model: neededModel('The flow transformer, which stays as it is: a local path, {hub, revision} or {run, config}.'),
    model_type: result(
      'The family, which says how noise levels are spaced.',
      z.enum(['tiny', 'flux', 'qwen']).default('tiny'),
    ),
    parts: section(
      'The frozen models around it.',
      z
        .strictObject({ vae: optionalModel('The autoencoder between pictures and latents.', 'for pixels themselves') })
        .prefault({}),
    ),
    told,
    max_pixels: result(
      'A larger picture is made smaller, with its shape, until it has at most so many pixels, before it is edited and judged; sides become multiples of what a token stands for. null: as it is.',
      positiveInteger.nullable().default(null),
    ),
    num_steps: result("Steps of the ODE's solver.", positiveInteger.default(20)),
    same_latent: result(
      'Whether all pictures of a prompt begin with the same noise, which follows from the prompt: they then differ by what was written alone.',
      z.boolean().default(true),
    ),
    pictures_at_once: result('Pictures that the model sees at once.', positiveInteger.default(4)),
    engine,
  }),
);
export type EditorSettings = z.output<typeof editorEnvironment>;
