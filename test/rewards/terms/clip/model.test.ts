import { cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ConfigError, EngineError } from '../../../../src/core/errors.js';
import { ClipModel } from '../../../../src/rewards/terms/clip/model.js';
import { clipScore } from '../../../../src/rewards/terms/clip.js';
import { cosine } from '../../../../src/rewards/terms/clip/model.js';
import { testFolders } from '../../../support/folder.js';
import { drawPicture, fixture, tinyClip, type Picture } from './pictures.js';

const newFolder = testFolders('clip');

/** The tiny CLIP in another folder, with some files taken away. */
function tinyWithout(...names: readonly string[]): string {
  const folder = newFolder();
  cpSync(tinyClip, folder, { recursive: true });
  for (const name of names) rmSync(join(folder, name));
  return folder;
}

const halves = ['onnx/text_model.onnx', 'onnx/vision_model.onnx'];

describe.each([
  ['two graphs', tinyWithout('onnx/model.onnx')],
  ['one graph of both halves', tinyWithout(...halves)],
])('a CLIP export with %s', (_name, folder) => {
  let model: ClipModel;
  beforeAll(async () => {
    model = await ClipModel.open(folder);
  });
  afterAll(() => model.close());

  it("gives transformers' cosines", async () => {
    const { images, cosines } = fixture<{ images: readonly Picture[]; cosines: readonly number[][] }>('cosines.json');
    const prompts = fixture<readonly { prompt: string }[]>('tokens.json').map(({ prompt }) => prompt);
    for (const [i, picture] of images.entries()) {
      const image = await model.imageEmbedding(drawPicture(picture));
      for (const [j, prompt] of prompts.entries()) {
        expect(Math.abs(cosine(image, await model.textEmbedding(prompt)) - cosines[i][j])).toBeLessThan(1e-4);
      }
    }
  });

  it('computes a prompt once', () => {
    expect(model.textEmbedding('the sky')).toBe(model.textEmbedding('the sky'));
    expect(model.textEmbedding('the sea')).not.toBe(model.textEmbedding('the sky'));
  });
});

describe('opening a CLIP export', () => {
  it('finds the graph beside config.json too, as optimum-cli writes it', async () => {
    const folder = tinyWithout('onnx/model.onnx', ...halves);
    cpSync(join(tinyClip, 'onnx/model.onnx'), join(folder, 'model.onnx'));
    await (await ClipModel.open(folder)).close();
  });

  it.each([
    ['no graph', () => tinyWithout('onnx/model.onnx', ...halves), /no onnx\/model\.onnx, nor text_model\.onnx/],
    ['no config.json', () => tinyWithout('config.json'), /no config\.json/],
    ['no preprocessor_config.json', () => tinyWithout('preprocessor_config.json'), /no preprocessor_config\.json/],
    ['no tokenizer', () => tinyWithout('tokenizer.json'), /no tokenizer\.json/],
    [
      'another kind of model',
      () => changed('config.json', /"model_type": "clip"/, '"model_type": "siglip"'),
      /another kind of model/,
    ],
    [
      'pixels of another size than the graph takes',
      () => changed('preprocessor_config.json', /32/g, '48'),
      /does not run on 48x48 pixels/,
    ],
    ['the vision half in place of the text half', swapped, /no text_embeds/],
  ])('refuses %s', async (_name, make, message) => {
    const opening = ClipModel.open(make());
    await expect(opening).rejects.toThrow(ConfigError);
    await expect(opening).rejects.toThrow(message);
  });

  it('refuses a broken graph', async () => {
    const folder = tinyWithout();
    writeFileSync(join(folder, halves[0]), 'no graph');
    await expect(ClipModel.open(folder)).rejects.toThrow(EngineError);
  });

  function changed(name: string, from: RegExp, to: string): string {
    const folder = tinyWithout();
    writeFileSync(join(folder, name), readFileSync(join(folder, name), 'utf8').replace(from, to));
    return folder;
  }

  function swapped(): string {
    const folder = tinyWithout();
    cpSync(join(tinyClip, halves[1]), join(folder, halves[0]));
    return folder;
  }
});

describe("CLIP's score", () => {
  it.each([
    [-0.3, 0],
    [0, 0],
    [0.2, 0.5],
    [0.4, 1],
    [0.9, 1],
  ])('of cosine %d is %d', (value, score) => {
    expect(clipScore(value)).toBeCloseTo(score, 12);
  });

  it('knows no cosine of a vector without length', () => {
    expect(cosine(Float32Array.of(3, 4), Float32Array.of(4, 3))).toBeCloseTo(0.96, 12);
    expect(cosine(Float32Array.of(0, 0), Float32Array.of(4, 3))).toBeNaN();
  });
});
