import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { RgbImage } from '../../../src/core/images/image.js';
import { checkDataset, findDatalists } from '../../../src/data/check.js';
import { openEditDataset, openImageDataset, readImages } from '../../../src/data/edits.js';
import type { CodeGrid } from '../../../src/data/types.js';
import { editData, imageData, tinyDatalist, type ImageTokenizerLike } from '../../../src/data/tiny/dataset.js';
import { pathIn } from '../../../src/data/tiny/build.js';
import { instructionOf, parseInstruction, planEdit, rationaleOf } from '../../../src/data/tiny/edits.js';
import { EDIT_SETS, EDIT_SPLITS, splitOf, type SplitName } from '../../../src/data/tiny/generate.js';
import { readScene, sceneOf } from '../../../src/rewards/rule_judge/read_scene.js';
import { decodePlainPng } from '../../../src/core/images/png.js';
import { DEFAULT_GEOMETRY, sceneKey, type Scene } from '../../../src/data/tiny/world.js';

/** Quantises the mean colour of each cell; enough to tell that source and target codes belong to their images. */
class MeanColours implements ImageTokenizerLike {
  readonly id: string;
  readonly batches: number[] = [];

  constructor(id = 'mean-colours') {
    this.id = id;
  }

  async encode(images: readonly RgbImage[]): Promise<CodeGrid[]> {
    this.batches.push(images.length);
    return images.map((image) => this.codes(image));
  }

  codes(image: RgbImage): CodeGrid {
    const sums = new Float64Array(16);
    image.data.forEach((value, at) => {
      const pixel = Math.floor(at / 3);
      const cell = Math.floor((pixel % 32) / 8) + 4 * Math.floor(pixel / 256);
      sums[cell] += value * (1 + (at % 3));
    });
    return { height: 4, width: 4, codes: Int32Array.from(sums, (sum) => Math.round(sum / 3000)) };
  }
}

const sizes = { train: 40, prompts: 300, validation: 40, truth: 30 };
const root = join(mkdtempSync(join(tmpdir(), 'editrl-tiny-')), 'tiny');
const tokenizer = new MeanColours();

beforeAll(async () => {
  await imageData.makeIn(root, { count: 90 });
  await editData(tokenizer).makeIn(root, { sizes });
});
afterAll(() => {
  rmSync(join(root, '..'), { recursive: true, force: true });
});

function sceneIn(png: Uint8Array | null): Scene {
  const image = png === null ? null : decodePlainPng(png);
  if (image === null) throw new Error('no picture');
  return sceneOf(readScene(image, DEFAULT_GEOMETRY));
}

describe('the tiny datasets', () => {
  it('hold edits whose parts agree, and answers only where the split has them', () => {
    for (const set of EDIT_SETS) {
      for (const split of EDIT_SPLITS) {
        const edits = openEditDataset(tinyDatalist(root, set, split));
        expect(edits.length).toBe(sizes[split]);
        for (let i = 0; i < edits.length; i++) {
          const sample = edits.read(i);
          const source = sceneIn(sample.sourcePng);
          const edit = parseInstruction(sample.instruction, DEFAULT_GEOMETRY);
          const plan = edit === null ? null : planEdit(source, edit);
          if (plan === null) throw new Error(`${sample.id} cannot be carried out`);
          expect(instructionOf(plan.edit, DEFAULT_GEOMETRY)).toBe(sample.instruction);
          expect(sample.source).toEqual(tokenizer.codes(decodePlainPng(sample.sourcePng!) as RgbImage));
          const labelled = split === 'train' || split === 'validation';
          expect([sample.target !== null, sample.rationale !== null]).toEqual([labelled, labelled]);
          expect(sample.targetPng !== null).toBe(split !== 'prompts');
          if (sample.targetPng !== null) expect(sceneKey(sceneIn(sample.targetPng))).toBe(sceneKey(plan.expected));
          if (labelled) {
            expect(sample.target).toEqual(tokenizer.codes(decodePlainPng(sample.targetPng as Uint8Array) as RgbImage));
            expect(sample.rationale).toBe(rationaleOf(plan));
          }
        }
      }
    }
  });

  it('share no scene between splits, sources, results and tokenizer images alike', async () => {
    const splitsOfScene = new Map<string, Set<SplitName>>();
    const note = (scene: Scene, split: SplitName): void => {
      expect(splitOf(scene)).toBe(split);
      const key = sceneKey(scene);
      splitsOfScene.set(key, (splitsOfScene.get(key) ?? new Set()).add(split));
    };
    for (const set of EDIT_SETS) {
      for (const split of EDIT_SPLITS) {
        const edits = openEditDataset(tinyDatalist(root, set, split));
        for (let i = 0; i < edits.length; i++) {
          const sample = edits.read(i);
          const source = sceneIn(sample.sourcePng);
          const edit = parseInstruction(sample.instruction, DEFAULT_GEOMETRY);
          const plan = edit === null ? null : planEdit(source, edit);
          note(source, split);
          if (plan !== null) note(plan.expected, split);
        }
      }
    }
    const images = openImageDataset(tinyDatalist(root, 'images', 'train'));
    expect(images.length).toBe(90);
    for (let i = 0; i < images.length; i++) note(sceneIn(images.read(i).bytes), 'images');
    expect([...splitsOfScene.values()].every((splits) => splits.size === 1)).toBe(true);
    expect((await readImages(images, [0]))[0]).toMatchObject({ width: 32, height: 32 });
  });

  it('list half of the labeled edits again, for runs that see both sets', () => {
    for (const set of EDIT_SETS) {
      const [all, half] = (['train', 'train_half'] as const).map((split) =>
        openEditDataset(tinyDatalist(root, set, split)),
      );
      expect(half.length).toBe(20);
      for (let i = 0; i < half.length; i++) expect(half.read(i)).toEqual({ ...all.read(i), id: half.read(i).id });
    }
  });

  it('are recognised when finished; other options or another tokenizer have a folder of their own', async () => {
    expect(imageData.find(root, {})).toBeNull();
    expect(editData(new MeanColours('another')).find(root, { sizes })).toBeNull();
    const [images, edits] = [
      imageData.find(root, { count: 90 }),
      editData(new MeanColours('mean-colours')).find(root, { sizes }),
    ];
    expect([images, edits].map((folder) => folder !== null && existsSync(join(folder, 'made.json')))).toEqual([
      true,
      true,
    ]);
    const list = tinyDatalist(root, 's', 'train');
    const before = statSync(list).ino;
    await editData(new MeanColours()).makeIn(root, { sizes });
    expect(statSync(list).ino).toBe(before);
    const small = { train: 2, prompts: 2, validation: 2, truth: 2 };
    await editData(new MeanColours('another')).makeIn(root, { sizes: small });
    await imageData.makeIn(root, { count: 3 });
    // What is there is not touched: the links lead where they led, and each config to its own.
    expect(openEditDataset(list).length).toBe(40);
    expect(statSync(list).ino).toBe(before);
    const other = editData(new MeanColours('another')).find(root, { sizes: small });
    expect(openEditDataset(pathIn(other, root, list)).length).toBe(2);
    expect(
      openImageDataset(pathIn(imageData.find(root, { count: 3 }), root, tinyDatalist(root, 'images', 'train'))).length,
    ).toBe(3);
    for (const folder of [other, imageData.find(root, { count: 3 })]) rmSync(folder ?? '', { recursive: true });
  });

  it('are found below the root alone', () => {
    expect(pathIn('/data/tiny/edits-1', '/data/tiny', '/data/tiny/s/train')).toBe('/data/tiny/edits-1/s/train');
    expect(pathIn('/data/tiny/edits-1', '/data/tiny', '/data/tiny_2/s/train')).toBe('/data/tiny_2/s/train');
    expect(pathIn(null, '/data/tiny', '/data/tiny/s/train')).toBe('/data/tiny/s/train');
    for (const own of ['/data/tiny/mine/train', '/data/tiny/edits-1/s/train']) {
      expect(pathIn('/data/tiny/edits-2', '/data/tiny', own)).toBe(own);
    }
  });

  it('are the same bytes whenever they are made', async () => {
    const again = join(root, '..', 'tiny-again');
    await editData(new MeanColours()).makeIn(again, { sizes: { ...sizes, prompts: 20 } });
    for (const sample of ['s/train/samples/000007.npz', 'c/prompts/samples/000011.npz']) {
      expect(readFileSync(join(again, sample))).toEqual(readFileSync(join(root, sample)));
    }
  });

  it('leave nothing half made when making them fails, and clear away what a killed process left', async () => {
    const other = join(root, '..', 'tiny-other');
    const broken: ImageTokenizerLike = {
      id: 'broken',
      encode: async () => {
        throw new Error('out of memory');
      },
    };
    mkdirSync(join(other, `.making-${hostname()}-999999999-0123abcd`, 's'), { recursive: true });
    await expect(editData(broken).makeIn(other, { sizes })).rejects.toThrow('out of memory');
    expect(readdirSync(other)).toEqual([]);
    await imageData.makeIn(other, { count: 3 });
    const place = basename(imageData.find(other, { count: 3 }) ?? '');
    expect(readdirSync(other).sort()).toEqual(['images', place].sort());
  });

  it('pass their own check', async () => {
    const lists = findDatalists(root);
    expect(lists).toHaveLength(11);
    const edits = await checkDataset(tinyDatalist(root, 'c', 'validation'));
    expect(edits).toMatchObject({ kind: 'edits', samples: 40, labelled: 40, sizes: ['4x4'], problems: [] });
    const images = await checkDataset(tinyDatalist(root, 'images', 'train'));
    expect(images).toMatchObject({ kind: 'images', samples: 90, sizes: ['32x32'], problems: [] });
    const file = join(root, 's', 'truth', 'samples', '000003.npz');
    const bytes = readFileSync(file);
    writeFileSync(file, bytes.subarray(0, bytes.length / 2));
    const broken = await checkDataset(tinyDatalist(root, 's', 'truth'));
    expect(broken.problems.map(({ where }) => where)).toEqual([file]);
    expect(broken.problems[0].message).toContain('is not the one that was listed');
    writeFileSync(file, bytes);
  });
});
