import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import sharp from 'sharp';
import { describe, expect, it } from 'vitest';
import { decodeImage, type RgbImage } from '../../src/core/images/image.js';
import { checkDataset } from '../../src/data/check.js';
import { openEditDataset, openImageDataset, readImages } from '../../src/data/edits.js';
import { packDataset, type PackRequest, type ImageCodes } from '../../src/data/pack.js';
import { testFolders } from '../support/folder.js';
import { jsonLines, plain, writeFiles } from './image_files.js';

const folders = testFolders('pack');
const RED = [200, 0, 0] as const;
const BLUE = [0, 0, 200] as const;

/** A code is the red of its square's first pixel, so that a picture and its codes are told to belong together. */
const codes: ImageCodes = {
  id: 'a'.repeat(64),
  patch: 4,
  sizing: null,
  encode: async (images) =>
    images.map(({ width, height, data }) => {
      const grid = { height: height / 4, width: width / 4 };
      const red = (_: unknown, i: number): number =>
        data[(Math.floor(i / grid.width) * 4 * width + (i % grid.width) * 4) * 3];
      return { ...grid, codes: Int32Array.from({ length: grid.height * grid.width }, red) };
    }),
  vocabulary: (words) => JSON.stringify(words),
};

interface Own {
  readonly folder: string;
  readonly request: PackRequest;
}

function own(
  files: Readonly<Record<string, Uint8Array>>,
  lines: readonly unknown[],
  more: Partial<PackRequest> = {},
): Own {
  const folder = folders();
  writeFiles(folder, { ...files, 'edits.jsonl': jsonLines(lines) });
  const request = { instructions: join(folder, 'edits.jsonl'), out: join(folder, 'out'), size: null, codes, ...more };
  return { folder, request };
}

const pair = { 'red.png': plain(8, 4, RED), 'blue.png': plain(8, 4, BLUE) };
const edit = { source: 'red.png', instruction: 'make it blue', edited: 'blue.png', rationale: 'blue it is' };

/** The message of a rejected promise. */
async function refusal(request: PackRequest): Promise<string> {
  const error = await packDataset(request).then(
    () => new Error('nothing was refused'),
    (cause: unknown) => cause,
  );
  return 'toText' in (error as object) ? (error as { toText(): string }).toText() : String(error);
}

/** Cuts off what reaches beyond multiples of a side. */
function cutTo(side: number): ImageCodes['sizing'] {
  return {
    rules: { side },
    fit({ width, height, data }, where) {
      if (height < side) throw new Error(`too small, ${where}`);
      const shown = { width: width - (width % side), height: height - (height % side) };
      const rows = Array.from({ length: shown.height }, (_, y) =>
        data.subarray(3 * y * width).subarray(0, 3 * shown.width),
      );
      return { ...shown, data: Uint8Array.from(rows.flatMap((row) => [...row])) };
    },
  };
}

describe("packDataset, with a tokenizer whose processor chooses an image's size", () => {
  const odd = { 'red.png': plain(10, 7, RED), 'blue.png': plain(10, 7, BLUE) };
  const sized = { ...codes, sizing: cutTo(4) };

  it('writes images and codes in that size, and sizes that were asked for as ever', async () => {
    const { request } = own(odd, [edit], { codes: sized });
    const { splits } = await packDataset(request);
    const sample = openEditDataset(splits[0].list).read(0);
    expect(sample.source).toEqual({ height: 1, width: 2, codes: Int32Array.of(200, 200) });
    expect(sample.target).toMatchObject({ height: 1, width: 2 });
    expect(await decodeImage(sample.sourcePng as Uint8Array, 'here')).toMatchObject({ width: 8, height: 4 });
    const whole = { ...codes, sizing: cutTo(8) };
    const asked = own(odd, [edit], { codes: whole, size: { width: 12, height: 8 } });
    expect(openEditDataset((await packDataset(asked.request)).splits[0].list).read(0).source).toMatchObject({
      width: 3,
    });
  });

  it('is another dataset with other rules, and has the digest that it had if there are none', async () => {
    const { request } = own(odd, [edit], { codes: sized });
    await packDataset(request);
    expect(await packDataset(request)).toMatchObject({ was_there: true });
    const other = { ...request, codes: { ...codes, sizing: cutTo(2) } };
    expect(await refusal(other)).toContain('a dataset of other images, instructions, size or codes');
  });

  it('reports which line has an image that the processor refuses', async () => {
    const { request } = own(odd, [edit], { codes: { ...codes, sizing: cutTo(8) } });
    expect(await refusal(request)).toMatch(/too small, .*edits\.jsonl:1/);
  });
});

describe('packDataset, in codes', () => {
  it('writes what src/data reads, with everything of the line', async () => {
    const { request } = own(pair, [edit, { source: 'blue.png', instruction: 'make it red', split: 'prompts' }]);
    const report = await packDataset(request);
    expect(report).toMatchObject({
      kind: 'edits',
      words: 5,
      was_there: false,
      splits: [
        { split: 'train', samples: 1, labelled: 1 },
        { split: 'prompts', samples: 1, labelled: 0 },
      ],
    });
    expect(openEditDataset(report.splits[0].list).tokenizer).toBe(codes.id);
    const labelled = openEditDataset(report.splits[0].list).read(0);
    expect(labelled).toMatchObject({
      id: 'samples/000000.npz',
      instruction: 'make it blue',
      rationale: 'blue it is',
      source: { height: 1, width: 2, codes: Int32Array.of(200, 200) },
      target: { height: 1, width: 2, codes: Int32Array.of(0, 0) },
    });
    expect((await decodeImage(labelled.sourcePng!, 'x')).data.subarray(0, 3)).toEqual(Uint8Array.of(...RED));
    expect((await decodeImage(labelled.targetPng!, 'x')).data.subarray(0, 3)).toEqual(Uint8Array.of(...BLUE));
    expect(openEditDataset(report.splits[1].list).read(0)).toMatchObject({
      instruction: 'make it red',
      source: { codes: Int32Array.of(0, 0) },
      target: null,
      targetPng: null,
      rationale: null,
    });
    const words = JSON.parse(readFileSync(join(request.out, 'tokenizer.json'), 'utf8')) as unknown;
    expect(words).toEqual(['blue', 'is', 'it', 'make', 'red']);
    for (const { list } of report.splits) {
      expect(await checkDataset(list)).toMatchObject({ kind: 'edits', problems: [] });
    }
    writeFileSync(join(request.out, 'train/samples/000000.npz'), 'x');
    expect(() => openEditDataset(report.splits[0].list).read(0)).toThrow('a sample is not the one that was listed');
  });

  it('keeps images and codes together if there are more than are encoded at once', async () => {
    const shades = Array.from({ length: 70 }, (_, i) => i);
    const files = Object.fromEntries(shades.map((i) => [`${i}.png`, plain(4, 4, [i, 0, 0])]));
    const lines = shades.map((i) => ({
      source: `${i}.png`,
      instruction: `${i}`,
      ...(i % 3 === 0 ? { edited: `${69 - i}.png` } : {}),
    }));
    const { request } = own(files, lines);
    const done: number[] = [];
    const { splits } = await packDataset({ ...request, onProgress: (count) => done.push(count) });
    const source = openEditDataset(splits[0].list);
    const read = shades.map((i) => source.read(i));
    expect(read.map(({ instruction }) => Number(instruction))).toEqual(shades);
    expect(read.map((sample) => sample.source.codes[0])).toEqual(shades);
    expect(read.map((sample) => sample.target?.codes[0] ?? null)).toEqual(
      shades.map((i) => (i % 3 === 0 ? 69 - i : null)),
    );
    expect(splits[0].labelled).toBe(24);
    expect(done.at(-1)).toBe(70);
  });

  it('brings images of one shape to one size', async () => {
    const files = { ...pair, 'large.png': plain(17, 8, BLUE) };
    const { request } = own(files, [{ ...edit, edited: 'large.png' }], { size: { width: 8, height: 8 } });
    expect(await refusal(request)).toContain(
      'the source has 8x4 pixels, the edited image 17x8; allowed: the same shape',
    );
    const larger = own({ ...pair, 'large.png': plain(160, 81, BLUE) }, [{ ...edit, edited: 'large.png' }], {
      size: { width: 8, height: 8 },
    });
    const { splits } = await packDataset(larger.request);
    const { source, target } = openEditDataset(splits[0].list).read(0);
    expect([source, target]).toMatchObject([
      { height: 2, width: 2 },
      { height: 2, width: 2 },
    ]);
  });

  it('rejects images that do not go together or cannot be cut, with the line', async () => {
    const { request } = own({ ...pair, 'small.png': plain(4, 4, RED) }, [edit, { ...edit, edited: 'small.png' }]);
    expect(await refusal(request)).toContain(
      `${request.instructions}:2: the source has 8x4 pixels, the edited image 4x4`,
    );
    expect(await refusal({ ...request, size: { width: 8, height: 8 } })).toContain('allowed: the same shape');
    const odd = own({ 'odd.png': plain(8, 6, RED) }, [{ source: 'odd.png', instruction: 'x' }]);
    expect(await refusal(odd.request)).toContain(`${odd.request.instructions}:1: the images have 8x6 pixels`);
    expect(readdirSync(odd.folder)).toEqual(['edits.jsonl', 'odd.png']);
  });
});

describe('packDataset, of images', () => {
  it('writes each image of a split once', async () => {
    const lines = [
      edit,
      { ...edit, instruction: 'again' },
      { source: 'red.png', instruction: 'x', split: 'validation' },
    ];
    const { request } = own(pair, lines, { codes: null });
    const report = await packDataset(request);
    expect(report).toMatchObject({ kind: 'images', words: null });
    expect(report.splits.map(({ split, samples }) => [split, samples])).toEqual([
      ['train', 2],
      ['validation', 1],
    ]);
    const images = await readImages(openImageDataset(report.splits[0].list), [0, 1]);
    expect(images.map(({ data }) => [...data.subarray(0, 3)])).toEqual([RED, BLUE]);
    expect(existsSync(join(request.out, 'tokenizer.json'))).toBe(false);
  });

  it('scales and crops at the middle, and turns photographs upright', async () => {
    // Columns of red, green and blue, 4 pixels each; the camera lay on its side.
    const colours = [RED, [0, 200, 0], BLUE] as const;
    const data = Uint8Array.from(
      { length: 12 * 4 * 3 },
      (_, i) => colours[Math.floor((Math.floor(i / 3) % 12) / 4)][i % 3],
    );
    const photo = await sharp(data, { raw: { width: 12, height: 4, channels: 3 } })
      .withMetadata({ orientation: 6 })
      .jpeg({ quality: 100, chromaSubsampling: '4:4:4' })
      .toBuffer();
    const { request } = own({ 'photo.jpg': photo }, [{ source: 'photo.jpg', instruction: 'x' }], { codes: null });
    const read = async (out: string): Promise<RgbImage> =>
      (await readImages(openImageDataset(join(out, 'train')), [0]))[0];
    await packDataset(request);
    const upright = await read(request.out);
    expect(upright).toMatchObject({ width: 4, height: 12 });
    const dominant = (image: RgbImage, row: number): number => {
      const pixel = image.data.subarray(row * image.width * 3, row * image.width * 3 + 3);
      return pixel.indexOf(Math.max(...pixel));
    };
    expect([1, 6, 10].map((row) => dominant(upright, row))).toEqual([0, 1, 2]);
    const out = `${request.out}_square`;
    await packDataset({ ...request, out, size: { width: 2, height: 2 } });
    const square = await read(out);
    expect(square).toMatchObject({ width: 2, height: 2 });
    expect([0, 1].map((row) => dominant(square, row))).toEqual([1, 1]);
  });
});

describe('packDataset, again', () => {
  it('finds the same dataset made, and changes nothing', async () => {
    const { request, folder } = own(pair, [edit]);
    const first = await packDataset(request);
    writeFileSync(join(request.out, 'mark'), '');
    expect(await packDataset(request)).toEqual({ ...first, was_there: true });
    expect(existsSync(join(request.out, 'mark'))).toBe(true);
    expect(readdirSync(folder).sort()).toEqual(['blue.png', 'edits.jsonl', 'out', 'red.png']);
  });

  it.each<readonly [string, (own: Own) => PackRequest]>([
    ['another size', ({ request }) => ({ ...request, size: { width: 4, height: 4 } })],
    ['other codes', ({ request }) => ({ ...request, codes: { ...codes, id: 'b'.repeat(64) } })],
    ['no codes', ({ request }) => ({ ...request, codes: null })],
    [
      'another picture of that name',
      ({ request, folder }) => (writeFiles(folder, { 'red.png': plain(8, 4, [9, 9, 9]) }), request),
    ],
    [
      'another instruction',
      ({ request }) => (writeFileSync(request.instructions, jsonLines([{ ...edit, instruction: 'x' }])), request),
    ],
  ])('refuses to change it for %s', async (_name, change) => {
    const made = own(pair, [edit]);
    await packDataset(made.request);
    const before = readFileSync(join(made.request.out, 'train/samples/000000.npz'));
    expect(await refusal(change(made))).toContain(`${made.request.out}: the folder has a dataset of other`);
    expect(readFileSync(join(made.request.out, 'train/samples/000000.npz'))).toEqual(before);
  });

  it('rejects a folder of something else', async () => {
    const { request } = own(pair, [edit]);
    mkdirSync(request.out);
    writeFileSync(join(request.out, 'notes.txt'), '');
    expect(await refusal(request)).toContain(`${request.out}: there is something else here`);
  });

  it('removes what a killed one left, and not what another one is making', async () => {
    const { request, folder } = own(pair, [edit]);
    mkdirSync(join(folder, `.out.making-${hostname()}-999999999-0123abcd`));
    // One of a process that lives, and one of another machine, which may live.
    const others = [`${hostname()}-${process.ppid}`, 'elsewhere-999999999'].map((by) => `.out.making-${by}-0123abcd`);
    for (const name of others) mkdirSync(join(folder, name));
    await packDataset(request);
    expect(readdirSync(folder).filter((name) => name.startsWith('.'))).toEqual(others.sort());
  });

  it('leaves nothing behind where it fails', async () => {
    const { request, folder } = own(pair, [edit]);
    const broken = { ...codes, encode: () => Promise.reject(new Error('no memory')) };
    expect(await refusal({ ...request, codes: broken })).toBe('Error: no memory');
    expect(readdirSync(folder).sort()).toEqual(['blue.png', 'edits.jsonl', 'red.png']);
  });
});
