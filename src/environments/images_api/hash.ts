/** Hash of everything that decides a picture of an images server. */
import { sha256 } from '../../core/image.js';
import type { ImagesServerSettings } from '../../schema/images_api.js';
import type { ImagesRequest } from './client.js';

/** The settings that decide it, besides the request itself. */
type Drawing = Pick<
  ImagesServerSettings,
  'served_model' | 'size' | 'negative_prompt' | 'num_inference_steps' | 'guidance_scale' | 'extra'
>;

/** SHA-256 of everything that decides a picture. */
export function requestHashOf(drawing: Drawing, asked: ImagesRequest): string {
  const { prompt, seed, source, size = drawing.size } = asked;
  const { served_model, negative_prompt, num_inference_steps, guidance_scale, extra } = drawing;
  const decides = [served_model, size, negative_prompt, num_inference_steps, guidance_scale, extra, prompt, seed];
  if (source !== undefined) decides.push(sha256(source));
  return sha256(JSON.stringify(decides));
}
