import { imageId } from '../../../src/core/images/image.js';
import { describe, expect, it } from 'vitest';
import type { RgbImage } from '../../../src/core/images/image.js';
import {
  changedFraction,
  DARK_LUMA,
  EDGE_HEIGHT,
  imageStatistics,
  repeatRate,
  sourceSimilarity,
} from '../../../src/rewards/score/image_statistics.js';

type Colour = readonly [red: number, green: number, blue: number];

function draw(width: number, height: number, colourAt: (x: number, y: number) => Colour): RgbImage {
  const data = new Uint8Array(width * height * 3);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) data.set(colourAt(x, y), 3 * (y * width + x));
  }
  return { width, height, data };
}

const gray = (level: number): Colour => [level, level, level];
const flat = (level: number): RgbImage => draw(8, 8, () => gray(level));

describe('edge density', () => {
  it('is 0 for one color, and for an image without interior', () => {
    expect(imageStatistics(flat(255)).edgeDensity).toBe(0);
    expect(imageStatistics(draw(2, 9, (x) => gray(255 * x))).edgeDensity).toBe(0);
  });

  it('counts the two columns beside a step', () => {
    const step = draw(10, 7, (x) => gray(x < 5 ? 0 : 200));
    expect(imageStatistics(step).edgeDensity).toBeCloseTo(2 / 8, 12);
    const turned = draw(7, 10, (_x, y) => gray(y < 5 ? 0 : 200));
    expect(imageStatistics(turned).edgeDensity).toBeCloseTo(2 / 8, 12);
  });

  it('takes a step of a tenth of the range for an edge, and a lower one for none', () => {
    const step = (height: number): RgbImage => draw(10, 7, (x) => gray(x < 5 ? 100 : 100 + height));
    expect(imageStatistics(step(Math.ceil(EDGE_HEIGHT))).edgeDensity).toBeGreaterThan(0);
    expect(imageStatistics(step(Math.floor(EDGE_HEIGHT))).edgeDensity).toBe(0);
  });

  it('is 1 if every pixel is beside a step', () => {
    expect(imageStatistics(draw(9, 9, (x) => gray(x % 4 < 2 ? 0 : 255))).edgeDensity).toBe(1);
  });

  it('follows the luma: blue counts least', () => {
    const step = (to: Colour): number => imageStatistics(draw(10, 7, (x) => (x < 5 ? [0, 0, 0] : to))).edgeDensity;
    expect(step([0, 0, 200])).toBe(0);
    expect(step([0, 200, 0])).toBeGreaterThan(0);
  });
});

describe('statistics of what editors break', () => {
  it('measures saturation as the mean distance of the channels', () => {
    expect(imageStatistics(flat(90)).saturation).toBe(0);
    expect(imageStatistics(draw(4, 4, (x) => (x < 2 ? [255, 0, 0] : gray(9)))).saturation).toBeCloseTo(0.5, 12);
  });

  it('measures sharpness as the mean Laplacian: a checkerboard has the most, a ramp none', () => {
    expect(imageStatistics(draw(9, 9, (x, y) => gray(255 * ((x + y) % 2)))).sharpness).toBeCloseTo(4, 12);
    expect(imageStatistics(draw(9, 9, (x) => gray(20 * x))).sharpness).toBe(0);
    const step = (width: number): RgbImage =>
      draw(12, 12, (x) => gray(Math.round(200 * Math.min(1, Math.max(0, (x - 6) / width)))));
    expect(imageStatistics(step(6)).sharpness).toBeLessThan(0.5 * imageStatistics(step(1)).sharpness);
  });

  it('finds tiles of 8 and of 16 pixels, and neither noise nor tiles of 5', () => {
    const tiles = (side: number): RgbImage =>
      draw(64, 64, (x, y) => gray(100 + 40 * ((Math.floor(x / side) + Math.floor(y / side)) % 2)));
    expect(imageStatistics(tiles(8)).grid).toBeCloseTo(40 / 255, 2);
    expect(imageStatistics(tiles(16)).grid).toBeCloseTo(40 / 255, 2);
    expect(imageStatistics(tiles(5)).grid).toBe(0);
    const noise = draw(64, 64, (x, y) => gray((x * 7919 + y * 104729 + x * y * 31) % 256));
    expect(imageStatistics(noise).grid).toBeLessThan(0.03);
  });

  it('counts pixels that drift from the source, whatever their number of channels', () => {
    const source = flat(100);
    expect(changedFraction(flat(110), source)).toBe(0);
    expect(changedFraction(flat(111), source)).toBe(1);
    expect(
      changedFraction(
        draw(8, 8, (x) => (x < 2 ? [100, 100, 130] : gray(100))),
        source,
      ),
    ).toBe(0.25);
  });
});

describe('color entropy', () => {
  it('is 0 for one color, 1 bit for two equally frequent ones, 9 for all', () => {
    expect(imageStatistics(flat(7)).colorEntropy).toBe(0);
    expect(imageStatistics(draw(4, 4, (x) => (x < 2 ? [255, 0, 0] : [0, 0, 255]))).colorEntropy).toBe(1);
    const all = draw(32, 16, (x, y) => {
      const index = y * 32 + x;
      return [(index >> 6) * 32, ((index >> 3) & 7) * 32, (index & 7) * 32];
    });
    expect(imageStatistics(all).colorEntropy).toBeCloseTo(9, 12);
  });

  it('weighs colors by how often they occur', () => {
    const quarter = draw(4, 4, (x) => (x < 1 ? [255, 0, 0] : [0, 0, 255]));
    expect(imageStatistics(quarter).colorEntropy).toBeCloseTo(-0.25 * Math.log2(0.25) - 0.75 * Math.log2(0.75), 12);
  });

  it('is blind to noise inside one level', () => {
    expect(imageStatistics(draw(4, 4, (x, y) => gray(64 + ((x + y) % 8)))).colorEntropy).toBe(0);
  });
});

describe('dark fraction', () => {
  it('is the share of pixels below an eighth of the range', () => {
    expect(imageStatistics(draw(4, 4, (x) => gray(x < 1 ? 0 : 200))).darkFraction).toBe(0.25);
    expect(imageStatistics(flat(DARK_LUMA)).darkFraction).toBe(0);
    expect(imageStatistics(flat(DARK_LUMA - 1)).darkFraction).toBe(1);
    // pure blue is dark, pure green is not
    expect(imageStatistics(draw(2, 2, () => [0, 0, 255])).darkFraction).toBe(1);
    expect(imageStatistics(draw(2, 2, () => [0, 255, 0])).darkFraction).toBe(0);
  });
});

describe('source similarity', () => {
  it('is 1 for a copy, 0 for the opposite, and linear in between', () => {
    expect(sourceSimilarity(flat(40), flat(40))).toBe(1);
    expect(sourceSimilarity(flat(0), flat(255))).toBe(0);
    expect(sourceSimilarity(flat(0), flat(51))).toBeCloseTo(0.8, 12);
    const changed = draw(4, 4, (x, y) => (x + y === 0 ? [255, 0, 0] : [0, 0, 0]));
    expect(
      sourceSimilarity(
        changed,
        draw(4, 4, () => [0, 0, 0]),
      ),
    ).toBeCloseTo(1 - 1 / 48, 12);
  });

  it('compares with the nearest pixel where sizes differ', () => {
    const small = draw(2, 2, (x, y) => gray(100 * x + 50 * y));
    const large = draw(6, 4, (x, y) => gray(100 * Math.floor(x / 3) + 50 * Math.floor(y / 2)));
    expect(sourceSimilarity(large, small)).toBe(1);
    expect(sourceSimilarity(small, large)).toBe(1);
  });
});

describe('repeats', () => {
  it('are found by size and pixels alone', () => {
    expect(imageId(flat(1))).toBe(imageId(flat(1)));
    expect(imageId(flat(1))).not.toBe(imageId(flat(2)));
    expect(imageId(draw(2, 8, () => gray(1)))).not.toBe(imageId(draw(8, 2, () => gray(1))));
  });

  it('count only where prompts differ', () => {
    const one = (prompt: string, digest: string) => ({ prompt, digest });
    expect(repeatRate([one('a', 'x'), one('a', 'x'), one('b', 'y'), one('c', 'z')])).toBe(0);
    expect(repeatRate([one('a', 'x'), one('a', 'x'), one('b', 'x'), one('c', 'z')])).toBe(0.75);
    expect(repeatRate([])).toBeNaN();
  });
});

it('rejects data that is not an image of the size', () => {
  expect(() => imageStatistics({ width: 2, height: 2, data: new Uint8Array(3) })).toThrow(RangeError);
  expect(() => imageStatistics({ width: 0, height: 0, data: new Uint8Array(0) })).toThrow(RangeError);
});
