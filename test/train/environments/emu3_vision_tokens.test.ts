import { cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { RandomStream } from '../../../src/core/random.js';
import { CheckpointError, DataError, must } from '../../../src/core/errors.js';
import { Session } from '../../../src/compute/onnx/session.js';
import { Graph } from '../../../src/compute/graph/ir.js';
import { readConfig } from '../../../src/models/files.js';
import { openEmu3Vision } from '../../../src/models/networks/emu3_vision.js';
import { readEmu3Processor, toNetwork } from '../../../src/models/images/emu3_processor.js';
import { patchOf } from '../../../src/compute/nets/emu3_vision/config.js';
import { encodeImages } from '../../../src/compute/nets/emu3_vision/tokenizer.js';
import { CODEBOOK } from '../../../src/compute/nets/image_tokenizer.js';
import {
  describeVisionTokenizer,
  loadVisionTokenizer,
  visionTokenizerTypes,
} from '../../../src/train/environments/vision_tokens.js';
import { emu3Folder, expectedOfEmu3, gridOf } from '../../recipes/image_edit_tokens/emu3_fixture.js';
import { testFolders } from '../../support/folder.js';

const newFolder = testFolders('emu3-vision');
const published = join(import.meta.dirname, '../../compute/nets/emu3_vision/fixtures/published');
const { encoded, decoded } = expectedOfEmu3;
const imageOf = ({ height, width, pixels }: typeof encoded) => ({ height, width, data: Uint8Array.from(pixels) });

/** The published folder with other settings. */
function changed(file: string, changes: Readonly<Record<string, unknown>>): string {
  const folder = newFolder();
  cpSync(published, folder, { recursive: true });
  const json = JSON.parse(readFileSync(join(folder, file), 'utf8')) as Record<string, unknown>;
  writeFileSync(join(folder, file), JSON.stringify({ ...json, ...changes }));
  return folder;
}

describe('the image tokenizer within an Emu3 of transformers', () => {
  const tokenizer = loadVisionTokenizer(emu3Folder('model'), { provider: 'cpu', threads: 1 });
  afterAll(() => tokenizer.dispose());

  it("gives torch's codes and torch's pixels", async () => {
    expect(await tokenizer.encode([imageOf(encoded)])).toEqual([gridOf(encoded.codes)]);
    expect(await tokenizer.decode([gridOf(decoded.codes)])).toEqual([imageOf(decoded)]);
  });

  it('finds the codes of more places than are compared with the codebook at once', async () => {
    const stream = new RandomStream(3, 'image');
    const image = { width: 48, height: 50, data: Uint8Array.from({ length: 3 * 48 * 50 }, () => stream.integer(256)) };
    const [grid] = await tokenizer.encode([image]);
    const { config, weights } = openEmu3Vision(emu3Folder('model'), readConfig(emu3Folder('model')));
    const graph = new Graph('vectors');
    const vectors = encodeImages(config, graph.input('pixels', [1, 3, image.height, image.width]));
    const session = await Session.compile(graph, { vectors }, { threads: 1 });
    const { levels } = readEmu3Processor(emu3Folder('model'), patchOf(config));
    const found = (await session.run({ pixels: toNetwork(levels, image) }, weights)).vectors as Float32Array;
    await session.dispose();
    const table = must(weights.get(CODEBOOK), CODEBOOK).data;
    const [codes, width] = [config.codebook_size, config.embed_dim];
    const distance = (place: number, code: number): number =>
      Array.from({ length: width }, (_, i) => (found[place * width + i] - table[code * width + i]) ** 2).reduce(
        (a, b) => a + b,
      );
    const nearest = Array.from({ length: 600 }, (_, place) => {
      const all = Array.from({ length: codes }, (_code, code) => distance(place, code));
      return all.indexOf(Math.min(...all));
    });
    expect([...grid.codes]).toEqual(nearest);
  });

  it('computes every image for itself, also of callers at one time, and again after it was disposed of', async () => {
    const other = gridOf([[1, 2, 3, 4, 5]]);
    const [alone] = await tokenizer.decode([other]);
    const [[first, second], [third]] = await Promise.all([
      tokenizer.decode([gridOf(decoded.codes), other]),
      tokenizer.decode([other]),
    ]);
    expect([first, second, third]).toEqual([imageOf(decoded), alone, alone]);
    await tokenizer.dispose();
    expect(await tokenizer.encode([imageOf(encoded)])).toEqual([gridOf(encoded.codes)]);
    expect(await tokenizer.decode([])).toEqual([]);
  });

  it('rejects what it has no code or no patch for', async () => {
    await expect(tokenizer.decode([gridOf([[40]])])).rejects.toThrow(
      'code 40 does not exist; the image tokenizer has 40',
    );
    const odd = { width: 3, height: 2, data: new Uint8Array(18) };
    await expect(tokenizer.encode([odd])).rejects.toThrow(DataError);
  });
});

describe('the image tokenizer as BAAI published it', () => {
  it("brings images to its processor's size", () => {
    const { sizing } = loadVisionTokenizer(published, {});
    expect(sizing?.rules).toEqual({ factor: 8, limits: { min_pixels: 1024, max_pixels: 4096 }, longest: 5, least: 8 });
    const image = { width: 100, height: 33, data: new Uint8Array(3 * 100 * 33) };
    expect(sizing?.fit(image, 'here')).toMatchObject({ width: 96, height: 32 });
    const plain = loadVisionTokenizer(changed('preprocessor_config.json', { do_resize: false }), {});
    expect(plain.sizing).toBeNull();
  });

  it('is another one where a weight or the colors are others', () => {
    const { id } = loadVisionTokenizer(published, {});
    expect(loadVisionTokenizer(changed('config.json', { dropout: 0.1 }), {}).id).toBe(id);
    const colours = changed('preprocessor_config.json', { image_mean: [0.5, 0.5, 0.4] });
    expect(loadVisionTokenizer(colours, {}).id).not.toBe(id);
  });

  it('needs to know how images are prepared', () => {
    const folder = changed('config.json', {});
    rmSync(join(folder, 'preprocessor_config.json'));
    for (const open of [describeVisionTokenizer, (one: string) => loadVisionTokenizer(one, {})]) {
      expect(() => open(folder)).toThrow('there is no preprocessor_config.json');
    }
  });
});

it('names the kinds that are covered', () => {
  const folder = changed('config.json', { model_type: 'chameleon_vqgan' });
  expect(() => describeVisionTokenizer(folder)).toThrow(CheckpointError);
  expect(() => describeVisionTokenizer(folder)).toThrow(
    'the image tokenizer is a "chameleon_vqgan"; allowed: Emu3VisionVQ, emu3_vqgan, emu3, and those trained by editrl',
  );
  expect(visionTokenizerTypes).toHaveLength(3);
});
