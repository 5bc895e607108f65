import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { BinaryWriter } from '@bufbuild/protobuf/wire';
import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import { ConfigError } from '../../../../src/core/errors.js';
import {
  findBoxes,
  inReadingOrder,
  scaleBox,
  unclip,
  type Box,
} from '../../../../src/rewards/terms/ocr/paddle/boxes.js';
import {
  decodeCtc,
  charactersOf,
  findPaddleFiles,
  onnxMetadata,
  readDictionary,
  detectorSize,
  lineInput,
  lineWidth,
  toPlanes,
} from '../../../../src/rewards/terms/ocr/paddle/engine.js';

describe('greedy CTC', () => {
  const characters = ['', 'a', 'b', 'c'];
  /** One step per class number, at this probability. */
  const steps = (...best: readonly (readonly [number, number])[]): Float32Array => {
    const out = new Float32Array(best.length * 4);
    best.forEach(([index, probability], i) => {
      out.fill((1 - probability) / 3, i * 4, i * 4 + 4);
      out[i * 4 + index] = probability;
    });
    return out;
  };

  it.each([
    [
      'merges repeats and drops blanks',
      [
        [0, 0.9],
        [1, 0.9],
        [1, 0.6],
        [0, 0.9],
        [2, 0.7],
      ],
      'ab',
      0.8,
    ],
    [
      'keeps a letter that is doubled across a blank',
      [
        [1, 1],
        [0, 1],
        [1, 0.5],
      ],
      'aa',
      0.75,
    ],
    [
      'reads nothing from blanks',
      [
        [0, 1],
        [0, 1],
      ],
      '',
      0,
    ],
    [
      'takes neighbours without a blank',
      [
        [3, 1],
        [2, 1],
        [3, 1],
      ],
      'cbc',
      1,
    ],
    ['reads nothing from no steps', [], '', 0],
  ] as const)('%s', (_, best, text, confidence) => {
    const line = decodeCtc(steps(...best), 4, characters);
    expect(line.text).toBe(text);
    expect(line.confidence).toBeCloseTo(confidence, 6);
  });
});

describe('boxes of a probability map', () => {
  const map = (width: number, height: number, ...filled: readonly (readonly [Box, number])[]) => {
    const data = new Float32Array(width * height);
    for (const [{ left, top, right, bottom }, probability] of filled) {
      for (let y = top; y < bottom; y++) data.fill(probability, y * width + left, y * width + right);
    }
    return { width, height, data };
  };
  const box = (left: number, top: number, right: number, bottom: number): Box => ({ left, top, right, bottom });

  it('moves each side out by area * 1.5 / perimeter', () => {
    // 20 x 10: 200 * 1.5 / 60 = 5
    expect(unclip(box(20, 20, 40, 30), 100, 100)).toEqual(box(15, 15, 45, 35));
    expect(unclip(box(2, 2, 22, 12), 24, 100)).toEqual(box(0, 0, 24, 17));
    expect(findBoxes(map(100, 60, [box(20, 20, 40, 30), 0.9]))).toEqual([box(15, 15, 45, 35)]);
  });

  it('joins what touches at a corner and keeps apart what does not', () => {
    expect(findBoxes(map(60, 40, [box(4, 4, 12, 12), 0.9], [box(12, 12, 20, 20), 0.9]))).toHaveLength(1);
    expect(findBoxes(map(60, 40, [box(4, 4, 12, 12), 0.9], [box(14, 14, 22, 22), 0.9]))).toHaveLength(2);
  });

  it('leaves faint pixels out of a region: they neither widen nor join what is sure', () => {
    const [left, right] = [box(10, 10, 30, 20), box(34, 10, 54, 20)];
    const joinedBy = (probability: number): readonly Box[] =>
      findBoxes(map(70, 40, [box(8, 8, 56, 22), 0.05], [box(30, 10, 34, 20), probability], [left, 0.9], [right, 0.9]));
    expect(joinedBy(0.29)).toEqual([box(5, 5, 35, 25), box(29, 5, 59, 25)]);
    expect(joinedBy(0.31)).toHaveLength(1);
  });

  it('drops what is unsure or thin', () => {
    expect(findBoxes(map(60, 40, [box(4, 4, 24, 14), 0.5]))).toEqual([]);
    expect(findBoxes(map(60, 40, [box(4, 4, 24, 6), 0.9]))).toEqual([]);
    expect(findBoxes({ width: 60, height: 40, data: new Float32Array(2400).fill(Number.NaN) })).toEqual([]);
  });

  it('reads rows from the top, each from the left', () => {
    const [a, b, c, d] = [box(50, 11, 90, 21), box(2, 10, 40, 20), box(2, 30, 40, 40), box(50, 29, 90, 41)];
    expect(inReadingOrder([a, c, d, b])).toEqual([b, a, c, d]);
  });

  it('scales to whole pixels inside the image', () => {
    const sizes = [
      { width: 64, height: 32 },
      { width: 32, height: 16 },
    ] as const;
    expect(scaleBox(box(3, 3, 9, 9), ...sizes)).toEqual(box(1, 1, 5, 5));
    expect(scaleBox(box(63.9, 31.9, 64, 32), ...sizes)).toEqual(box(31, 15, 32, 16));
  });
});

describe('inputs of the networks', () => {
  it.each([
    [
      { width: 64, height: 64 },
      { width: 256, height: 256 },
    ],
    [
      { width: 512, height: 300 },
      { width: 1024, height: 608 },
    ],
    [
      { width: 768, height: 768 },
      { width: 768, height: 768 },
    ],
    [
      { width: 3000, height: 2000 },
      { width: 1536, height: 1024 },
    ],
    [
      { width: 400, height: 3 },
      { width: 800, height: 32 },
    ],
  ])('the detector sees %j as %j', (image, seen) => {
    expect(detectorSize(image)).toEqual(seen);
  });

  it.each([
    [{ width: 100, height: 24 }, 200],
    [{ width: 1, height: 100 }, 1],
    [{ width: 10_000, height: 4 }, 2880],
  ])('a line of %j is %d pixels wide', (line, width) => {
    expect(lineWidth(line)).toBe(width);
  });

  it('puts blue first, normalized, and fills lines up with zeros', async () => {
    const image = { width: 1, height: 1, data: Uint8Array.of(255, 0, 51) };
    const planes = toPlanes(image, { mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.25] }, 2);
    expect([...planes].map((x) => Number(x.toFixed(5)))).toEqual([-0.6, 0, -1, 0, 2, 0]);
    const { data, shape } = await lineInput(image, { left: 0, top: 0, right: 1, bottom: 1 });
    expect(shape).toEqual([1, 3, 48, 320]);
    expect(data[48]).toBe(0);
    expect(data[0]).toBeCloseTo(-0.6, 5);
  });
});

describe('the folder of an export', () => {
  let folder: string;
  const folders: string[] = [];
  const write = (...names: readonly string[]): void => names.forEach((name) => writeFileSync(join(folder, name), 'x'));
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'editrl-paddle-'));
    folders.push(folder);
  });
  afterAll(() => folders.forEach((each) => rmSync(each, { recursive: true })));

  it.each([
    [['det.onnx', 'rec.onnx', 'dict.txt']],
    [
      [
        'ch_PP-OCRv4_det_infer.onnx',
        'ch_PP-OCRv4_rec_infer.onnx',
        'ch_ppocr_mobile_v2.0_cls_infer.onnx',
        'ppocr_keys_v1.txt',
      ],
    ],
    [['PP-OCRv5_mobile_det.onnx', 'en_PP-OCRv4_mobile_rec.onnx', 'en_dict.txt', 'README.txt']],
  ])('knows %j', (names) => {
    write(...names);
    const { detector, recognizer, dictionary } = findPaddleFiles(folder);
    expect(detector).toMatch(/det[^/]*\.onnx$/);
    expect(recognizer).toMatch(/rec[^/]*\.onnx$/);
    expect(dictionary).toMatch(/(dict|keys_v1)\.txt$/);
  });

  it.each([
    ['holds no rec.onnx', ['det.onnx', 'dict.txt', 'direct.onnx']],
    ['holds several (a_det.onnx, b_det.onnx)', ['a_det.onnx', 'b_det.onnx', 'rec.onnx', 'dict.txt']],
  ])('reports that it %s', (problem, names) => {
    write(...names);
    expect(() => findPaddleFiles(folder)).toThrow(ConfigError);
    expect(() => findPaddleFiles(folder)).toThrow(problem);
  });

  it('fits a dictionary to the classes of the recognizer', () => {
    const dictionary = { text: 'a\r\nb\nc\n', where: 'dict.txt' };
    expect(charactersOf(dictionary, 4)).toEqual(['', 'a', 'b', 'c']);
    expect(charactersOf(dictionary, 5)).toEqual(['', 'a', 'b', 'c', ' ']);
    expect(() => charactersOf(dictionary, 97)).toThrow('has 3 characters, but the recognizer has 97 classes');
  });

  it('takes the dictionary from its file, or from the metadata of the recognizer', () => {
    const entry = (key: string, value: string) =>
      new BinaryWriter().tag(1, 2).string(key).tag(2, 2).string(value).finish();
    const model = new BinaryWriter().tag(1, 0).int64(8).tag(7, 2).bytes(new Uint8Array(500).fill(0x72));
    for (const pair of [entry('framework', 'x'), entry('character', 'a\nb')]) model.tag(14, 2).bytes(pair);
    const bytes = model.finish();
    expect([...onnxMetadata(bytes)]).toEqual([
      ['framework', 'x'],
      ['character', 'a\nb'],
    ]);
    write('det.onnx');
    const recognizer = join(folder, 'rec.onnx');
    writeFileSync(recognizer, bytes);
    expect(readDictionary(findPaddleFiles(folder))).toEqual({ text: 'a\nb', where: recognizer });
    writeFileSync(join(folder, 'dict.txt'), 'c');
    expect(readDictionary(findPaddleFiles(folder))).toEqual({ text: 'c', where: join(folder, 'dict.txt') });
    rmSync(join(folder, 'dict.txt'));
    writeFileSync(recognizer, new BinaryWriter().tag(1, 0).int64(8).finish());
    const read = () => readDictionary(findPaddleFiles(folder));
    expect(read).toThrow('has no dict.txt, and no characters in the metadata of its recognizer');
  });
});
