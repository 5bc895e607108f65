/** A server of the OpenAI images API. */
import { z } from 'zod';
import { httpAddress, operation, positive, positiveInteger, result, section } from '../../core/schema/mark.js';

const address = httpAddress('http://127.0.0.1:8091');

/** Width and height in pixels, as the API writes them. */
const sizePattern = /^([1-9]\d{0,3})x([1-9]\d{0,3})$/;

/** Fields that each request sets itself. */
const OWN = ['model', 'prompt', 'n', 'size', 'seed', 'image', 'response_format'];

/** Addresses and limits of every kind of server that makes images. */
export const queriedServers = {
  base_url: operation(
    'Its address: http://HOST:PORT (/v1 is added to a bare host), or a list of such URLs for equal servers.',
    z.union([address, z.array(address).min(1)]),
    { allowed: 'a URL such as http://HOST:8091, or a list of such URLs' },
  ),
  api_key_env: operation(
    'The environment variable with the API key of the server.',
    z.string().min(1).default('OPENAI_API_KEY'),
  ),
  concurrency: operation('Concurrent requests, over all processes.', positiveInteger.default(8)),
  timeout_s: operation('Deadline of one request, in seconds.', positive.default(300)),
  max_attempts: operation(
    'Failed requests for one image before the run saves a checkpoint and ends with exit code 3.',
    positiveInteger.default(12),
  ),
  max_wait_s: operation(
    'Seconds to wait for a server that is down. Then the run saves a checkpoint and ends with exit code 3.',
    positive.default(7200),
  ),
};

const { base_url, ...asking } = queriedServers;
export type QueriedServersSettings = z.output<z.ZodObject<typeof queriedServers>>;

/** Fields of an API request in addition to those of one image. */
export const imagesRequest = {
  served_model: result("The server's name of the image model.", z.string().min(1)),
  size: result(
    "Width and height of an image in pixels, such as '512x512'. Images of other sizes are rejected.",
    z.string().regex(sizePattern, { error: "a size such as '512x512'" }).default('512x512'),
  ),
  extra: result(
    "Further fields of a request, sent unchanged: {quality: 'low', num_inference_steps: 30, guidance_scale: 4, negative_prompt: 'blurry'}.",
    z
      .record(z.string(), z.json())
      .refine((extra) => !OWN.some((name) => name in extra), {
        error: `fields other than ${OWN.join(', ')}, which requests set themselves`,
      })
      .default({}),
  ),
};

export const imagesApi = section(
  'One or several equal servers of the OpenAI images API: vLLM-Omni, SGLang, or a hosted one.',
  z.strictObject({
    type: result("The image model: 'images_api' is a server of the OpenAI images API.", z.literal('images_api')),
    base_url,
    ...imagesRequest,
    ...asking,
  }),
);
export type ImagesApiSettings = z.output<typeof imagesApi>;
/** For every use of images. */
export type ImagesServerSettings = Omit<ImagesApiSettings, 'type'>;

export interface ImageSize {
  readonly width: number;
  readonly height: number;
}

/** The sides of a valid `size`. */
export function parseImageSize(size: string): ImageSize {
  const [width, height] = size.split('x').map(Number);
  return { width, height };
}

/** The sides as a `size`. */
export function sizeText({ width, height }: ImageSize): string {
  return `${width}x${height}`;
}
