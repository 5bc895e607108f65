/**
 * How small an image is as a JPEG: the compressibility reward of DDPO (Black et al., "Training Diffusion Models with Reinforcement
 * Learning", 2023), which flow_grpo scales by 500 kB, raised by 1, so that the worst is 0. A cheap baseline that rises when detail
 * disappears: for tests of a training loop, not for good images.
 */
import { z } from 'zod';
import { positive, result } from '../../core/schema/mark.js';
import { termKind } from './term.js';
import type { Outcome } from '../score/types.js';

/** The longest side that the encoder (libjpeg) takes, in pixels. */
const MAX_SIDE = 65_500;

export const jpegSize = termKind({
  name: 'jpeg_size',
  description: 'How small the image is as a JPEG: 1 - kB / max_kb, at least 0.',
  fields: {
    quality: result('Quality of the JPEG encoder, from 1 to 100.', z.int().min(1).max(100).default(95)),
    max_kb: result('The size in kB (1000 bytes) from which an image scores 0.', positive.default(500)),
  },
  reads: 'image',
  needs: { judge: false, truth: false, source: false },
  create: async ({ quality, max_kb }) => {
    const { default: sharp } = await import('sharp');
    return {
      name: 'jpeg_size',
      async score({ edited }): Promise<Outcome> {
        if (edited === null || Math.max(edited.width, edited.height) > MAX_SIDE) {
          return { kind: 'zero_by_rule', reason: 'undecodable', parts: {} };
        }
        const { width, height, data } = edited;
        // Every option that changes the size is given: the encoder's defaults are not part of the reward.
        const bytes = await sharp(data, { raw: { width, height, channels: 3 } })
          .jpeg({ quality, chromaSubsampling: '4:2:0', progressive: false, optimiseCoding: true, mozjpeg: false })
          .toBuffer();
        const kb = bytes.length / 1000;
        const value = Math.max(0, 1 - kb / max_kb);
        return { kind: 'scored', value, normalised: value, parts: { 'jpeg_size/kb': kb } };
      },
      close: async () => {},
    };
  },
});
