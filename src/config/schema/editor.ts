/** Models that edit pictures, conditioned on a policy's reading of the instructions. */
import { z } from 'zod';
import { askedServers, imagesRequest, sizeText, type ImagesServerSettings, type ImageSize } from './images_api.js';
import { operation, positiveInteger, result, section } from '../../core/schema/mark.js';
import { frozenEngine, neededModel, optionalModel } from './model.js';
import { thinkingTags } from './token_policy.js';

/** Which part of the policy's reading is given to the model that draws. */
export const editorReads = result(
  "What the model that draws is told: 'response', the hidden states of picture, instruction and response; 'instruction', those of picture and instruction alone, so that nothing the policy writes has any effect.",
  z.enum(['response', 'instruction']).default('response'),
);

/** Which weights do the reading. */
const readBy = result(
  "Whose hidden states the model that draws is told: 'policy', those of the weights that answered, which move while the policy learns; 'start', those that the weights it started from (with LoRA: the model without the adapter) give for what was written, so that it learns by its words alone.",
  z.enum(['policy', 'start']).default('policy'),
);

const pictureNames = result(
  "Whether the words that a chat template writes before a picture ('Picture 1: ', with prompt.variables.add_vision_id) are told, too, as Qwen-Image-Edit-2509 was trained to be; false begins at the picture's first mark.",
  z.boolean().default(true),
);

const maxPixels =
  'A larger picture is made smaller, with its shape, until it has at most so many pixels, before it is edited and judged; sides become multiples of ';

const sameLatent = result(
  'Whether all pictures of a prompt begin with the same noise, which follows from the prompt: they then differ by what was written alone.',
  z.boolean().default(true),
);

/** A record without the field was drawn without guidance. */
const guided = (description: string, scale: number | null) =>
  result(description, z.number().gt(1).nullable().default(scale), {
    allowed: 'a number above 1, or null for none',
  });

/** The defaults of diffusers' QwenImageEditPipeline. */
const QWEN_EDIT = { steps: 50, guidance: 4 } as const;

/** Fields in the order in which records have them, on which settings hashes rest. */
const ownEditorOf = <T extends z.ZodType>(
  modelType: T,
  defaults: { readonly steps: z.ZodDefault<z.ZodInt>; readonly guidance: number | null },
) =>
  z.strictObject({
    type: result(
      "What edits: 'model', a flow model of this process, told by hidden states; 'render_server', a server that is told by them; 'images_api_text_prompt', a server of the OpenAI images API, told by words.",
      z.literal('model'),
    ),
    model: neededModel('The flow transformer, which stays as it is: a local path, {hub, revision} or {run, config}.'),
    model_type: result(
      'The family: how noise levels are spaced, and the defaults of num_steps and guidance_scale.',
      modelType,
      { allowed: 'tiny, flux or qwen' },
    ),
    parts: section(
      'The frozen models around it.',
      z
        .strictObject({ vae: optionalModel('The autoencoder between pictures and latents.', 'for pixels themselves') })
        .prefault({}),
    ),
    told: editorReads,
    read_by: readBy,
    picture_names: pictureNames,
    max_pixels: result(
      `${maxPixels}what a token stands for. null: as it is.`,
      positiveInteger.nullable().default(null),
    ),
    num_steps: result("Steps of the ODE's solver.", defaults.steps),
    guidance_scale: guided(
      'Scale of classifier-free guidance. A model that embeds the guidance is told it; any other is asked twice, the second time by the states of a blank instruction with the same picture, which the weights read that training started from (a model of this program that was trained with condition_dropout: by none at all). null means none.',
      defaults.guidance,
    ),
    same_latent: sameLatent,
    pictures_at_once: result('Pictures that the model sees at once.', positiveInteger.default(4)),
    engine: frozenEngine,
  });

const ownEditor = z.discriminatedUnion('model_type', [
  ownEditorOf(z.enum(['tiny', 'flux']).default('tiny'), { steps: positiveInteger.default(20), guidance: null }),
  ownEditorOf(z.literal('qwen'), {
    steps: positiveInteger.default(QWEN_EDIT.steps),
    guidance: QWEN_EDIT.guidance,
  }),
]);
export type OwnEditor = z.output<typeof ownEditor>;

/** Both sides of a picture that a server is asked to edit are multiples of it, where no size is named: what latent models of patches take. */
export const SERVED_SIDE = 16;

const servedMaxPixels = positiveInteger.min(SERVED_SIDE ** 2).default(1024 * 1024);

const { base_url, ...asking } = askedServers;
const { served_model, extra } = imagesRequest;

/** Whether a null stands anywhere within. */
function holdsNull(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return value === null;
  return Object.values(value).some(holdsNull);
}

const textPromptEditor = z.strictObject({
  type: result(
    "A server of the OpenAI images API, told by words: what the policy wrote is the prompt of /v1/images/edits. Another experiment than hidden states ('model').",
    z.literal('images_api_text_prompt'),
  ),
  base_url,
  served_model,
  told: result(
    "What the server is told: 'response', what the policy wrote, without its thoughts; 'instruction', the instruction itself, so that nothing the policy writes has any effect.",
    z.enum(['response', 'instruction']).default('response'),
  ),
  thinking: result(
    'The tags around what the policy thinks before it answers, {open, close}, which the server is never told. null: it is told all that the policy writes.',
    thinkingTags.default({ open: '<think>', close: '</think>' }),
    { allowed: "{open: '<think>', close: '</think>'}, or null" },
  ),
  size: result(
    "Width and height of all pictures in pixels, such as '1024x1024', for servers that know few sizes: a picture of the same shape is scaled to it, one of another shape is refused. null: each picture's own.",
    imagesRequest.size.unwrap().nullable().default(null),
  ),
  max_pixels: result(`${maxPixels}${SERVED_SIDE}. Without effect where size says both sides.`, servedMaxPixels),
  extra: extra
    .refine((fields) => !holdsNull(fields), { error: 'fields of a form, which says no null: leave them out' })
    .meta(extra.meta() ?? {}),
  same_latent: sameLatent,
  ...asking,
});
export type TextPromptEditor = z.output<typeof textPromptEditor>;

/** The largest square when pictures keep their own size: it is drawn once before all others, and bounds replies. */
export function largestSquare({ max_pixels: most }: { readonly max_pixels: number }): ImageSize {
  const side = Math.floor(Math.sqrt(most) / SERVED_SIDE) * SERVED_SIDE;
  return { width: side, height: side };
}

/** The parts of a request to an images server that do not depend on the picture. */
export function imagesServer({ size, max_pixels, ...rest }: TextPromptEditor): ImagesServerSettings {
  return { ...rest, size: size ?? sizeText(largestSquare({ max_pixels })) };
}

const renderEditor = z.strictObject({
  type: result(
    "A render server, told by hidden states as 'model' is: it holds the model that draws, elsewhere (docs/reference/protocols.md).",
    z.literal('render_server'),
  ),
  base_url,
  served_model: result('The model that draws, as the server names it.', z.string().min(1)),
  told: editorReads,
  read_by: readBy,
  picture_names: pictureNames,
  states_dtype: result(
    'The number format in which hidden states are sent; bfloat16 has half the bytes.',
    z.enum(['float32', 'bfloat16']).default('float32'),
  ),
  max_pixels: result(`${maxPixels}${SERVED_SIDE}.`, servedMaxPixels),
  num_inference_steps: result('Steps of the solver.', positiveInteger.default(QWEN_EDIT.steps)),
  guidance_scale: guided(
    'Scale of classifier-free guidance: the server is sent the states of a blank instruction with the same picture, too, which the weights read that training started from. null means none.',
    QWEN_EDIT.guidance,
  ),
  same_latent: sameLatent,
  ...asking,
  api_key_env: operation(
    'The environment variable with the key that the server asks for.',
    z.string().min(1).default('RENDER_API_KEY'),
  ),
});
export type RenderEditor = z.output<typeof renderEditor>;

export const editorEnvironment = section(
  'The frozen model that edits pictures, conditioned on what the policy makes of their instructions.',
  z.discriminatedUnion('type', [ownEditor, renderEditor, textPromptEditor]),
);
export type EditorSettings = z.output<typeof editorEnvironment>;

/** A server that makes pictures, as others must know of it. */
export type PictureServer =
  | { readonly kind: 'images_api'; readonly settings: ImagesServerSettings }
  | {
      readonly kind: 'render_server';
      readonly settings: RenderEditor;
      /** Width of the hidden states it is sent; null if the settings do not say. */
      readonly width: number | null;
    };
