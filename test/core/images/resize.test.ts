import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { resizeCubic } from '../../../src/core/images/resize.js';

interface Resized {
  readonly before: readonly [number, number];
  readonly after: readonly [number, number];
  readonly raw: string;
  readonly pillow: string;
}

const { resized } = JSON.parse(
  readFileSync(new URL('../../models/images/fixtures/resized.json', import.meta.url), 'utf8'),
) as { readonly resized: readonly Resized[] };

describe('cubic resizing', () => {
  it.each(resized)('gives the bytes of Pillow from $before to $after', ({ before, after, raw, pillow }) => {
    const image = { width: before[0], height: before[1], data: new Uint8Array(Buffer.from(raw, 'base64')) };
    const made = resizeCubic(image, ...after);
    expect([made.width, made.height]).toEqual(after);
    expect(Buffer.from(made.data).toString('base64')).toBe(pillow);
  });

  it('leaves an image of that size as it is', () => {
    const image = { width: 2, height: 1, data: Uint8Array.of(1, 2, 3, 250, 251, 255) };
    expect(resizeCubic(image, 2, 1)).toBe(image);
  });
});
