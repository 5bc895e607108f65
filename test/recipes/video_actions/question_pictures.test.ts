import { describe, expect, it } from 'vitest';
import { plainProcessor } from '../../../src/models/images/processor.js';
import { qwenMarks } from '../../../src/models/images/vision_input.js';
import { VideoReader, type VideoSource } from '../../../src/recipes/video_actions/task.js';

const TOKEN = 8;
const frame = { min_pixels: TOKEN ** 2, max_pixels: 6 * TOKEN ** 2 };
const processor = plainProcessor({ patch_size: 4, temporal_patch_size: 2, spatial_merge_size: 2 }, frame);
const tokens = { vision_start_token_id: 1, vision_end_token_id: 2, image_token_id: 3, video_token_id: 4 };
/** A clip of at most five frames beside one image. */
const source = {
  questions: { read: () => ({ images: ['part.png'], meta: { minFrames: null, maxFrames: 5, segments: null } }) },
} as unknown as VideoSource;

describe('the most tokens that a sample can show, beside its words', () => {
  it.each([
    ['video', (3 + 1) * 6],
    // Four more images than the words have marks for.
    ['images', (5 + 1) * 6 + 4 * 2],
  ] as const)('as %s', (as, most) => {
    const usual = { minFrames: 4, maxFrames: 8, interval: 2 };
    // The only segment may have one frame more than is counted, but no more than the most.
    expect(new VideoReader({ processor, tokens, marks: qwenMarks }, usual, as).maxSideTokens(source, 0)).toBe(most);
  });
});
