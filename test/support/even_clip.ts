import type { RgbImage } from '../../src/core/images/png.js';
import type { ClipFrames } from '../../src/models/images/processor.js';

/** Frames that are `secondsPerFrame` apart, the last of which stays as long. */
export function evenClip(frames: readonly RgbImage[], secondsPerFrame: number): ClipFrames {
  return { frames, times: frames.map((_, i) => i * secondsPerFrame), seconds: frames.length * secondsPerFrame };
}
