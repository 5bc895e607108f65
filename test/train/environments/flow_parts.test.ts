import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { FlowImageEncoder, FlowTextEncoder } from '../../../src/train/environments/flow_parts.js';
import { EmbeddingModel } from '../../../src/rewards/terms/clip/model.js';
import { drawPicture, fixture, tinyClip, tinySiglip, type Picture } from '../../rewards/terms/clip/pictures.js';

interface Expected {
  readonly prompts: { readonly short: string; readonly long: string };
  readonly flux_text: Readonly<
    Record<string, { readonly text: readonly (readonly number[])[]; readonly pooled: readonly number[] }>
  >;
  readonly qwen_text: { readonly length: number; readonly last: readonly (readonly number[])[] };
}

const at = (...path: string[]): string => join(import.meta.dirname, 'flow_parts', ...path);
const expected = JSON.parse(readFileSync(at('expected.json'), 'utf8')) as Expected;
const cpu = { provider: 'cpu' } as const;

function expectClose(found: ArrayLike<number>, wanted: readonly number[], within: number): void {
  expect(found.length).toBe(wanted.length);
  const furthest = Math.max(...wanted.map((value, i) => Math.abs(value - found[i])));
  expect(furthest).toBeLessThan(within);
  expect(new Set(wanted).size).toBeGreaterThan(wanted.length / 4);
}

describe('parts of a flow model that scripts/export_flow_parts wrote', () => {
  it.each(['short', 'long'] as const)("reads a %s prompt as FLUX's encoders in transformers", async (which) => {
    const encoder = new FlowTextEncoder(at('flux_text'), cpu);
    const prompt = expected.prompts[which];
    const { text, pooled } = await encoder.encode(prompt);
    expect([encoder.width, encoder.pooledWidth]).toEqual([8, 8]);
    expectClose(text, expected.flux_text[prompt].text.flat(), 1e-4);
    expectClose(pooled ?? [], expected.flux_text[prompt].pooled, 1e-4);
    await encoder.dispose();
  });

  it("reads a prompt as Qwen-Image's encoder: in its template, whose first tokens are left out", async () => {
    const encoder = new FlowTextEncoder(at('qwen_text'), cpu);
    const { text, pooled } = await encoder.encode(expected.prompts.short);
    expect([encoder.width, encoder.pooledWidth, pooled]).toEqual([16, 0, null]);
    const { length, last } = expected.qwen_text;
    expect(text).toHaveLength(16 * length);
    expectClose(text.slice(-16 * last.length), last.flat(), 1e-4);
    // Another prompt has as many tokens as it has.
    expect((await encoder.encode(`${expected.prompts.short}!`)).text).toHaveLength(16 * (length + 1));
    await encoder.dispose();
  });

  it('cuts a prompt that is longer than the model reads', async () => {
    const encoder = new FlowTextEncoder(at('qwen_text'), cpu);
    const long = 'x'.repeat(1200);
    const { text, unread } = await encoder.encode(long);
    expect(text).toHaveLength(16 * 1024);
    expect(unread).toBeGreaterThan(0);
    expect([await encoder.unread(long), await encoder.unread('x')]).toEqual([unread, 0]);
    await encoder.dispose();
  });
});

describe('what looks at a style image', () => {
  it('may be a SigLIP as it is: what its pooling head gives in transformers', async () => {
    const { images, features } = fixture<{ images: readonly Picture[]; features: readonly number[][] }>(
      'siglip_cosines.json',
    );
    const encoder = new FlowImageEncoder(tinySiglip, cpu);
    expect(encoder.width).toBe(8);
    for (const [i, image] of images.entries()) {
      expectClose(await encoder.encode(drawPicture(image)), features[i], 1e-5);
    }
    await encoder.dispose();
  });

  it('may be a CLIP as it is: its projection, as the reward computes it', async () => {
    const model = await EmbeddingModel.open(tinyClip);
    const encoder = new FlowImageEncoder(tinyClip, cpu);
    const image = drawPicture({ width: 64, height: 48, kind: 'bands' });
    expectClose(await encoder.encode(image), [...(await model.imageEmbedding(image))], 1e-4);
    expect(encoder.width).toBe(8);
    await Promise.all([encoder.dispose(), model.close()]);
  });

  it('is refused before it is asked', () => {
    const root = mkdtempSync(join(tmpdir(), 'editrl-looks-'));
    onTestFinished(() => rmSync(root, { recursive: true }));
    const changed = (changes: object): string => {
      const folder = mkdtempSync(join(root, 'looks-'));
      cpSync(tinySiglip, folder, { recursive: true });
      const config = JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8')) as { vision_config: object };
      const vision_config = { ...config.vision_config, ...changes };
      writeFileSync(join(folder, 'config.json'), JSON.stringify({ ...config, vision_config }));
      return folder;
    };
    expect(() => new FlowImageEncoder(changed({ vision_use_head: false }))).toThrow('nothing makes one vector');
    expect(() => new FlowImageEncoder(changed({ image_size: 23 }))).toThrow('brought to 20x20 pixels');
    expect(() => new FlowImageEncoder(changed({ intermediate_size: 17 }))).toThrow('the config asks for [17, 8]');
  });
});

describe('a folder that is no such part', () => {
  const root = mkdtempSync(join(tmpdir(), 'editrl-parts-'));
  const folder = join(root, 'part');
  beforeEach(() => {
    rmSync(folder, { recursive: true, force: true });
    cpSync(at('flux_text'), folder, { recursive: true });
  });
  afterAll(() => rmSync(root, { recursive: true }));

  it('is refused by the name of the part', () => {
    expect(() => new FlowImageEncoder(folder)).toThrow('this folder holds another kind of model: model_type is');
    rmSync(join(folder, 'model.onnx'));
    expect(() => new FlowTextEncoder(folder)).toThrow('the text encoder lacks model.onnx');
  });

  it('is refused by the part that its file lacks, and asked again when that is mended', async () => {
    const config = JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8')) as object;
    writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
    cpSync(at('qwen_text', 'model.onnx'), join(folder, 'model.onnx'));
    const encoder = new FlowTextEncoder(folder, cpu);
    await expect(encoder.encode('a sign')).rejects.toThrow();
    writeFileSync(join(folder, 'model.onnx'), 'no model');
    const damaged = new FlowTextEncoder(folder, cpu);
    await expect(damaged.encode('a sign')).rejects.toThrow('model.onnx');
    cpSync(at('flux_text', 'model.onnx'), join(folder, 'model.onnx'));
    expect((await damaged.encode('a sign')).pooled).toHaveLength(8);
    await Promise.all([encoder.dispose(), damaged.dispose()]);
  });
});
