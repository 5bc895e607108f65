import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import { DataError } from '../../src/core/errors.js';
import { loadVisionTokenizer } from '../../src/environments/vision_tokens.js';
import { emu3Folder, expectedOfEmu3, gridOf } from '../recipes/image_edit_tokens/emu3_fixture.js';

describe('an exported image tokenizer', () => {
  const tokenizer = loadVisionTokenizer(emu3Folder('vision'), { provider: 'cpu', threads: 1 });
  afterAll(() => tokenizer.dispose());
  const { encoded, decoded } = expectedOfEmu3;
  const image = ({ height, width, pixels }: typeof encoded) => ({ height, width, data: Uint8Array.from(pixels) });

  it('says what it is', () => {
    expect(tokenizer.config).toEqual({ codebook_size: 40, patch: 2 });
    expect(tokenizer.id).toMatch(/^[0-9a-f]{64}$/);
  });

  it("gives torch's codes", async () => {
    expect(await tokenizer.encode([image(encoded)])).toEqual([gridOf(encoded.codes)]);
  });

  it("gives torch's pixels", async () => {
    expect(await tokenizer.decode([gridOf(decoded.codes)])).toEqual([image(decoded)]);
    expect(new Set(decoded.pixels).size).toBeGreaterThan(20);
  });

  it('computes every image for itself, whatever its size and company', async () => {
    const other = gridOf([[1, 2, 3, 4, 5]]);
    const [alone] = await tokenizer.decode([other]);
    const [first, second] = await tokenizer.decode([gridOf(decoded.codes), other]);
    expect(second).toEqual(alone);
    expect(first).toEqual(image(decoded));
    expect(alone).toMatchObject({ height: 2, width: 10 });
    expect(await tokenizer.decode([])).toEqual([]);
  });

  it('works again after it was disposed of', async () => {
    const before = await tokenizer.encode([image(encoded)]);
    await tokenizer.dispose();
    expect(await tokenizer.encode([image(encoded)])).toEqual(before);
  });

  it('refuses what it has no code or no patch for', async () => {
    await expect(tokenizer.decode([gridOf([[40]])])).rejects.toThrow('there is no code 40: the image tokenizer has 40');
    const odd = { width: 3, height: 2, data: new Uint8Array(18) };
    await expect(tokenizer.encode([odd])).rejects.toThrow(DataError);
  });
});

describe('a folder that is no exported image tokenizer', () => {
  const root = mkdtempSync(join(tmpdir(), 'editrl-vision-'));
  const folder = join(root, 'vision');
  beforeEach(() => {
    rmSync(folder, { recursive: true, force: true });
    cpSync(emu3Folder('vision'), folder, { recursive: true });
  });
  afterAll(() => rmSync(root, { recursive: true }));
  const config = { model_type: 'exported_image_tokenizer', codebook_size: 40, patch: 2 };
  const normalisation = { image_mean: [0.5, 0.5, 0.5], image_std: [0.5, 0.5, 0.5] };
  const write = (json: object): void => writeFileSync(join(folder, 'config.json'), JSON.stringify(json));
  const load = () => loadVisionTokenizer(folder, {});

  it('is refused with what it lacks', () => {
    rmSync(join(folder, 'decoder.onnx'));
    expect(load).toThrow('the exported image tokenizer lacks decoder.onnx');
    write(config);
    expect(load).toThrow(/image_mean: /);
    write({ ...config, ...normalisation, image_std: [0.5, 0, 0.5] });
    expect(load).toThrow(/image_std\.1: /);
    rmSync(join(folder, 'config.json'));
    expect(load).toThrow('there is no config.json');
  });

  it('says so where its graphs are not those of an image tokenizer', async () => {
    write({ ...config, ...normalisation, patch: 4 });
    await expect(load().decode([gridOf([[1]])])).rejects.toThrow(
      'pixels have the shape [1, 3, 2, 2]; expected: [1, 3, 4, 4]',
    );
    cpSync(emu3Folder('vision', 'encoder.onnx'), join(folder, 'decoder.onnx'));
    await expect(load().decode([gridOf([[1]])])).rejects.toThrow(
      'the decoder takes pixels and gives codes; it has to take codes and give pixels',
    );
    writeFileSync(join(folder, 'decoder.onnx'), 'no model');
    await expect(load().decode([gridOf([[1]])])).rejects.toThrow('cannot open this model');
  });

  it('is another one where a file or a setting is another', () => {
    const before = load().id;
    write({ ...config, ...normalisation });
    const other = load().id;
    expect(loadVisionTokenizer(emu3Folder('vision'), {}).id).toBe(before);
    cpSync(emu3Folder('vision', 'encoder.onnx'), join(folder, 'decoder.onnx'));
    expect(new Set([before, other, load().id]).size).toBe(3);
  });
});
