/** The fixtures' pictures: the same arithmetic as in test/fixture_scripts/clip.py. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { RgbImage } from '../../../../src/core/images/image.js';

export const fixtures = join(import.meta.dirname, 'fixtures');
export const tinyClip = join(fixtures, 'tiny_clip');
export const tinySiglip = join(fixtures, 'tiny_siglip');

export interface Picture {
  readonly width: number;
  readonly height: number;
  readonly kind: 'bands' | 'noise';
}

export function fixture<T>(name: string): T {
  return JSON.parse(readFileSync(join(fixtures, name), 'utf8')) as T;
}

/** Bands of every frequency, or noise of a linear congruential generator. */
export function drawPicture({ width, height, kind }: Picture): RgbImage {
  const data = new Uint8Array(width * height * 3);
  let state = 12345;
  for (let i = 0; i < data.length; i++) {
    const [c, x, y] = [i % 3, Math.floor(i / 3) % width, Math.floor(i / 3 / width)];
    state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
    data[i] = kind === 'bands' ? x * (c + 2) + y * (6 - 2 * c) + ((x * y) >> 3) : state >> 16;
  }
  return { width, height, data };
}
