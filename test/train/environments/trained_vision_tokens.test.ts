import { afterAll, describe, expect, it } from 'vitest';
import { DataError } from '../../../src/core/errors.js';
import type { RgbImage } from '../../../src/core/images/image.js';
import type { FloatTensor } from '../../../src/core/safetensors.js';
import { toPatches, TrainedVisionTokenizer } from '../../../src/train/environments/trained_vision_tokens.js';
import { imageTokenizerParameters, type ImageTokenizerConfig } from '../../../src/compute/nets/image_tokenizer.js';

/**
 * Patches of one pixel. The encoder passes x = 2 rgb - 1 on through silu(x) - silu(-x) = x; the codes are the four colours below; the
 * decoder answers sigmoid(10 x), so that a channel of 1 decodes to about 1 and one of -1 to about 0.
 */
const config: ImageTokenizerConfig = { codebook_size: 4, patch: 1, hidden: 6, code_dim: 3, commitment_weight: 0.25 };
const COLOURS = [
  [0, 0, 0],
  [255, 0, 0],
  [0, 255, 0],
  [255, 255, 255],
];

function handMade(): Map<string, FloatTensor> {
  const weights = new Map<string, FloatTensor>();
  for (const [name, shape] of imageTokenizerParameters(config)) {
    weights.set(name, { shape, data: new Float32Array(shape.reduce((a, b) => a * b, 1)) });
  }
  const set = (name: string, row: number, column: number, value: number): void => {
    const { data, shape } = weights.get(name)!;
    data[row * shape[1] + column] = value;
  };
  for (let c = 0; c < 3; c++) {
    for (const part of ['encoder', 'decoder']) {
      const scale = part === 'decoder' ? 10 : 1;
      set(`${part}.fc1.weight`, c, c, 1);
      set(`${part}.fc1.weight`, c + 3, c, -1);
      set(`${part}.fc2.weight`, c, c, scale);
      set(`${part}.fc2.weight`, c, c + 3, -scale);
    }
    COLOURS.forEach((rgb, code) => set('quantize.embedding.weight', code, c, rgb[c] === 255 ? 1 : -1));
  }
  return weights;
}

const image = (width: number, height: number, codes: number[]): RgbImage => ({
  width,
  height,
  data: Uint8Array.from(codes.flatMap((code) => COLOURS[code])),
});

describe('the vision tokenizer', () => {
  const tokenizer = new TrainedVisionTokenizer(config, handMade(), { threads: 1 });
  afterAll(() => tokenizer.dispose());
  const codes = [0, 1, 2, 3, 1, 2];

  it('encodes images of different sizes to grids of their own, row by row', async () => {
    const grids = await tokenizer.encode([image(3, 2, codes), image(1, 2, [3, 0])]);
    expect(grids).toEqual([
      { height: 2, width: 3, codes: Int32Array.from(codes) },
      { height: 2, width: 1, codes: Int32Array.of(3, 0) },
    ]);
  });

  it('takes the nearest code', async () => {
    const almostRed = { width: 1, height: 1, data: Uint8Array.of(200, 60, 40) };
    expect((await tokenizer.encode([almostRed]))[0].codes[0]).toBe(1);
  });

  it('decodes grids back to their images', async () => {
    const [first, second] = await tokenizer.decode([
      { height: 2, width: 3, codes: Int32Array.from(codes) },
      { height: 1, width: 1, codes: Int32Array.of(2) },
    ]);
    expect(first).toEqual(image(3, 2, codes));
    expect(second).toEqual(image(1, 1, [2]));
    expect(await tokenizer.decode([])).toEqual([]);
  });

  it('round-trips more patches than one run of its graph takes', async () => {
    const many = Int32Array.from({ length: 70 * 70 }, (_, i) => (i * 7 + (i >> 5)) % 4);
    const [image] = await tokenizer.decode([{ height: 70, width: 70, codes: many }]);
    const [grid] = await tokenizer.encode([image]);
    expect(grid).toEqual({ height: 70, width: 70, codes: many });
  });

  it('is known by its weights', () => {
    const same = new TrainedVisionTokenizer(config, handMade(), {});
    const changed = handMade();
    changed.get('quantize.embedding.weight')!.data[0] = 0.5;
    expect(same.id).toBe(tokenizer.id);
    expect(new TrainedVisionTokenizer(config, changed, {}).id).not.toBe(tokenizer.id);
  });

  it('works again after it was disposed of', async () => {
    const other = new TrainedVisionTokenizer(config, handMade(), { threads: 1 });
    const pixels = image(2, 1, [1, 2]);
    const before = await other.encode([pixels]);
    await other.dispose();
    expect(await other.encode([pixels])).toEqual(before);
    await other.dispose();
  });
});

describe('patches', () => {
  it('come image by image, row by row, pixels from the top left with their channels together', () => {
    const numbered = (width: number, height: number, from: number): RgbImage => ({
      width,
      height,
      data: Uint8Array.from({ length: width * height * 3 }, (_, i) => from + i),
    });
    const patches = toPatches([numbered(4, 2, 0), numbered(2, 2, 100)], 2);
    const expected = [
      ...[0, 1, 2, 3, 4, 5, 12, 13, 14, 15, 16, 17],
      ...[6, 7, 8, 9, 10, 11, 18, 19, 20, 21, 22, 23],
      ...[100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111],
    ];
    expect([...patches].map((x) => Math.round(x * 255))).toEqual(expected);
    expect(Math.max(...patches)).toBeLessThanOrEqual(1);
  });

  it('need sides that are multiples of the patch', () => {
    const image = { width: 6, height: 5, data: new Uint8Array(90) };
    expect(() => toPatches([image], 2)).toThrow(DataError);
    expect(() => toPatches([image], 2)).toThrow(/6 x 5 is not a multiple of the patch size 2/);
  });
});
