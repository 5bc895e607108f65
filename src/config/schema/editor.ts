/** Models that edit images, conditioned on a policy's reading of the instructions. */
import { z } from 'zod';
import { queriedServers, imagesRequest, sizeText, type ImagesServerSettings, type ImageSize } from './images_api.js';
import { operation, positiveInteger, result, section } from '../../core/schema/mark.js';
import { frozenEngine, neededModel, optionalModel } from './model.js';
import { thinkingTags } from './token_policy.js';

/** The part of the policy's reading that conditions the editor. */
export const editorReads = result(
  "The hidden states that condition the editor: of image, instruction and response ('response'), or of image and instruction only ('instruction'). In the second case the policy's response has no effect.",
  z.enum(['response', 'instruction']).default('response'),
);

/** The weights that compute the hidden states. */
const readBy = result(
  "The weights that compute the hidden states. 'policy': the weights that answered, which change while the policy learns. 'start': the weights that training started from (with LoRA, the model without the adapter) read the response, so the policy can only learn through its text.",
  z.enum(['policy', 'start']).default('policy'),
);

const pictureNames = result(
  "Whether the hidden states include the words of a chat template before an image ('Picture 1: ', with prompt.variables.add_vision_id), as Qwen-Image-Edit-2509 was trained. false starts at the image's first token.",
  z.boolean().default(true),
);

const maxPixels =
  'Maximum pixels of an image that is edited and judged. A larger one is scaled down and keeps its aspect ratio. Its sides become multiples of ';

export const maxEditedPixels = result(
  `${maxPixels}the pixels of a token. null means no limit.`,
  positiveInteger.nullable().default(null),
);

const sameLatent = result(
  'Whether all images of a prompt start from the same noise, so that they differ only by the responses.',
  z.boolean().default(true),
);

/** A record without the field was drawn without guidance. */
const guided = (description: string, scale: number | null) =>
  result(description, z.number().gt(1).nullable().default(scale), {
    allowed: 'a number above 1, or null for none',
  });

/** The defaults of diffusers' QwenImageEditPipeline. */
const QWEN_EDIT = { steps: 50, guidance: 4 } as const;

/** The order of these fields counts for hashes of settings. */
const ownEditorOf = <T extends z.ZodType>(
  modelType: T,
  defaults: { readonly steps: z.ZodDefault<z.ZodInt>; readonly guidance: number | null },
) =>
  z.strictObject({
    type: result(
      "The editor. 'model': a flow model in this process, conditioned on hidden states. 'render_server': a server that is conditioned on hidden states. 'images_api_text_prompt': a server of the OpenAI images API, prompted with text.",
      z.literal('model'),
    ),
    model: neededModel('The frozen flow transformer: a local path, {hub, revision} or {run, config}.'),
    model_type: result(
      'The family. It sets the spacing of noise levels and the defaults of num_steps and guidance_scale.',
      modelType,
      { allowed: 'tiny, flux or qwen' },
    ),
    parts: section(
      'The frozen models around it.',
      z.strictObject({ vae: optionalModel('The autoencoder between images and latents.', 'for pixels') }).prefault({}),
    ),
    told: editorReads,
    read_by: readBy,
    picture_names: pictureNames,
    max_pixels: maxEditedPixels,
    num_steps: result('Steps of the ODE solver.', defaults.steps),
    guidance_scale: guided(
      'Scale of classifier-free guidance. A model that embeds the guidance gets it as an input. Any other model runs twice. The second run uses the hidden states of a blank instruction with the same image, read by the weights that training started from. A model trained here with condition_dropout gets no condition. null means no guidance.',
      defaults.guidance,
    ),
    same_latent: sameLatent,
    pictures_at_once: result('Images in one batch of the model.', positiveInteger.default(4)),
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

/** Without `size`, both sides of an image for a server are multiples of this, as latent models with patches need. */
export const SERVED_SIDE = 16;

const servedMaxPixels = positiveInteger.min(SERVED_SIDE ** 2).default(1024 * 1024);

const { base_url, ...asking } = queriedServers;
const { served_model, extra } = imagesRequest;

/** Whether a value contains null at any depth. */
function holdsNull(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return value === null;
  return Object.values(value).some(holdsNull);
}

const textPromptEditor = z.strictObject({
  type: result(
    "A server of the OpenAI images API. The policy's response is the prompt of /v1/images/edits. This is another experiment than hidden states ('model').",
    z.literal('images_api_text_prompt'),
  ),
  base_url,
  served_model,
  told: result(
    "The prompt for the server: the policy's 'response' without its thinking, or the 'instruction' itself. In the second case the response has no effect.",
    z.enum(['response', 'instruction']).default('response'),
  ),
  thinking: result(
    "The tags around the policy's thinking, {open, close}, which the server never gets. null sends the whole response.",
    thinkingTags.default({ open: '<think>', close: '</think>' }),
    { allowed: "{open: '<think>', close: '</think>'}, or null" },
  ),
  size: result(
    "Width and height of all images in pixels, such as '1024x1024', for servers that support few sizes. An image of the same aspect ratio is scaled to it, others are rejected. null keeps the size of each image.",
    imagesRequest.size.unwrap().nullable().default(null),
  ),
  max_pixels: result(`${maxPixels}${SERVED_SIDE}. It has no effect if size is set.`, servedMaxPixels),
  extra: extra
    .refine((fields) => !holdsNull(fields), { error: 'form fields without null; leave such fields out' })
    .meta(extra.meta() ?? {}),
  same_latent: sameLatent,
  ...asking,
});
export type TextPromptEditor = z.output<typeof textPromptEditor>;

/** The largest square if images keep their own size. It is requested first and bounds the size of replies. */
export function largestSquare({ max_pixels: most }: { readonly max_pixels: number }): ImageSize {
  const side = Math.floor(Math.sqrt(most) / SERVED_SIDE) * SERVED_SIDE;
  return { width: side, height: side };
}

/** The parts of a request to an images server that do not depend on the image. */
export function imagesServer({ size, max_pixels, ...rest }: TextPromptEditor): ImagesServerSettings {
  return { ...rest, size: size ?? sizeText(largestSquare({ max_pixels })) };
}

const renderEditor = z.strictObject({
  type: result(
    "A render server, which runs the editor on another machine from hidden states, like 'model' (docs/reference/protocols.md).",
    z.literal('render_server'),
  ),
  base_url,
  served_model: result("The server's name of the editor.", z.string().min(1)),
  told: editorReads,
  read_by: readBy,
  picture_names: pictureNames,
  states_dtype: result(
    'Number format of hidden states in requests. bfloat16 halves the bytes.',
    z.enum(['float32', 'bfloat16']).default('float32'),
  ),
  max_pixels: result(`${maxPixels}${SERVED_SIDE}.`, servedMaxPixels),
  num_inference_steps: result('Steps of the ODE solver.', positiveInteger.default(QWEN_EDIT.steps)),
  guidance_scale: guided(
    'Scale of classifier-free guidance. The server also gets the hidden states of a blank instruction with the same image, read by the weights that training started from. null means none.',
    QWEN_EDIT.guidance,
  ),
  same_latent: sameLatent,
  ...asking,
  api_key_env: operation(
    'The environment variable with the API key of the server.',
    z.string().min(1).default('RENDER_API_KEY'),
  ),
});
export type RenderEditor = z.output<typeof renderEditor>;

export const editorEnvironment = section(
  'The frozen image editor, conditioned on the policy.',
  z.discriminatedUnion('type', [ownEditor, renderEditor, textPromptEditor]),
);
export type EditorSettings = z.output<typeof editorEnvironment>;

/** A server that makes images. */
export type ImageServer =
  | { readonly kind: 'images_api'; readonly settings: ImagesServerSettings }
  | {
      readonly kind: 'render_server';
      readonly settings: RenderEditor;
      /** Width of the hidden states that it gets. Null if the settings do not determine it. */
      readonly width: number | null;
    };
