/** A server of the OpenAI images API that makes pictures. */
import { z } from 'zod';
import { httpAddress, operation, positive, positiveInteger, result, section } from '../../core/schema/mark.js';

const address = httpAddress('http://127.0.0.1:8091');

/** Sides of a picture in pixels, as the API writes them. */
const sizePattern = /^([1-9]\d{0,3})x([1-9]\d{0,3})$/;

/** Fields that each request sets by itself: which picture is asked for, and in which form. */
const OWN = ['model', 'prompt', 'n', 'size', 'seed', 'image', 'response_format'];

/** Where servers are and how they are asked, for every kind of server that makes pictures. */
export const askedServers = {
  base_url: operation(
    'Where it runs: http://HOST:PORT (/v1 is added to a bare host); a list of such URLs names equal servers.',
    z.union([address, z.array(address).min(1)]),
    { allowed: 'a URL such as http://HOST:8091, or a list of such URLs' },
  ),
  api_key_env: operation(
    'The environment variable with the key that the server asks for.',
    z.string().min(1).default('OPENAI_API_KEY'),
  ),
  concurrency: operation('Pictures under way at once, over all processes.', positiveInteger.default(8)),
  timeout_s: operation('Deadline of one request, in seconds.', positive.default(300)),
  max_attempts: operation(
    'Requests for one picture that may fail before the run checkpoints and ends with exit code 3.',
    positiveInteger.default(12),
  ),
  max_wait_s: operation(
    'Seconds that a server which is away is waited for; then the run checkpoints and ends with exit code 3.',
    positive.default(7200),
  ),
};

const { base_url, ...asking } = askedServers;
export type AskedServersSettings = z.output<z.ZodObject<typeof askedServers>>;

/** Fields of an API request besides those that describe a picture. */
export const imagesRequest = {
  served_model: result('The image model, as the server names it.', z.string().min(1)),
  size: result(
    "Width and height of a picture in pixels, such as '512x512'; a picture of another size is refused.",
    z.string().regex(sizePattern, { error: "a size such as '512x512'" }).default('512x512'),
  ),
  extra: result(
    "Further fields of a request, as they are: {quality: 'low', num_inference_steps: 30, guidance_scale: 4, negative_prompt: 'blurry'}.",
    z
      .record(z.string(), z.json())
      .refine((extra) => !OWN.some((name) => name in extra), {
        error: `fields that a request does not hold by itself: none of ${OWN.join(', ')}`,
      })
      .default({}),
  ),
};

export const imagesApi = section(
  'A server of the OpenAI images API (vLLM-Omni, SGLang, a hosted one), or several equal ones.',
  z.strictObject({
    type: result("What makes pictures: 'images_api', a server of the OpenAI images API.", z.literal('images_api')),
    base_url,
    ...imagesRequest,
    ...asking,
  }),
);
export type ImagesApiSettings = z.output<typeof imagesApi>;
/** Whatever the pictures are for. */
export type ImagesServerSettings = Omit<ImagesApiSettings, 'type'>;

export interface ImageSize {
  readonly width: number;
  readonly height: number;
}

/** The sides that a valid `size` says. */
export function pictureSize(size: string): ImageSize {
  const [width, height] = size.split('x').map(Number);
  return { width, height };
}

/** The sides as `size` says them. */
export function sizeText({ width, height }: ImageSize): string {
  return `${width}x${height}`;
}
