/** Latents in an episode's record: half-precision numbers in base64. */
import { RunError } from '../core/errors.js';
import { halfToFloat } from '../core/half.js';
import { toStoredBytes } from '../core/safetensors.js';
import type { RecordedEpisode } from '../run/episodes.js';

/** Latents in recorded form, and as they read back: the latter are judged, so that they can be judged again. */
export function asRecorded(latents: Float32Array): {
  readonly latents: Float32Array;
  readonly record: { readonly latents: string };
} {
  const halves = toStoredBytes(latents, 'F16');
  return { latents: fromHalves(halves), record: { latents: Buffer.from(halves).toString('base64') } };
}

/** Raises RunError for a record without them. */
export function recordedLatents({ key, latents }: Pick<RecordedEpisode, 'key' | 'latents'>): Float32Array {
  if (latents === undefined) throw new RunError('the record of an episode has no latents', { where: key });
  return fromHalves(Buffer.from(latents, 'base64'));
}

function fromHalves(bytes: Uint8Array): Float32Array {
  return Float32Array.from(new Uint16Array(Uint8Array.from(bytes).buffer), halfToFloat);
}
