import { cpSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { QwenTextEncoder } from '../../../src/train/environments/qwen_text.js';
import { testFolders } from '../../support/folder.js';

interface Expected {
  readonly prompt: string;
  readonly length: number;
  /** The last tokens of the embeddings that diffusers' QwenImagePipeline makes. */
  readonly last: readonly (readonly number[])[];
}

const newFolder = testFolders('qwen-text');
const folder = join(import.meta.dirname, 'qwen_text');
const expected = JSON.parse(readFileSync(join(folder, 'expected.json'), 'utf8')) as Record<'short' | 'long', Expected>;
const cpu = { provider: 'cpu' } as const;
const worst = (found: Float32Array, wanted: readonly number[]): number =>
  Math.max(...wanted.map((value, i) => Math.abs(value - found[i])));

describe("Qwen-Image's text encoder", () => {
  it.each(['short', 'long'] as const)('reads a %s prompt as diffusers', async (which) => {
    const encoder = new QwenTextEncoder(join(folder, 'text_encoder'), cpu);
    const { prompt, length, last } = expected[which];
    const { text, pooled, unread } = await encoder.encode(prompt);
    expect([encoder.width, encoder.pooledWidth, pooled]).toEqual([16, 0, null]);
    expect(text).toHaveLength(16 * length);
    // As many tokens are cut as one letter a token and the template leave over.
    expect(unread > 0).toBe(which === 'long');
    expect(await encoder.unread(prompt)).toBe(unread);
    expect(worst(text.slice(-16 * last.length), last.flat())).toBeLessThan(1e-4);
    await encoder.dispose();
  });

  it('is stored in float16 if asked to, and tries again after a failure', async () => {
    const copy = newFolder();
    for (const part of ['text_encoder', 'tokenizer']) {
      cpSync(join(folder, part), join(copy, part), { recursive: true });
    }
    const encoder = new QwenTextEncoder(join(copy, 'text_encoder'), cpu, 'float16');
    const weights = join(copy, 'text_encoder', 'model.safetensors');
    renameSync(weights, `${weights}.away`);
    await expect(encoder.encode('a sign')).rejects.toThrow();
    renameSync(`${weights}.away`, weights);
    const { prompt, last } = expected.short;
    expect(worst((await encoder.encode(prompt)).text.slice(-16 * last.length), last.flat())).toBeLessThan(0.05);
    await encoder.dispose();
  });

  it('may have its tokenizer in its own folder', async () => {
    const copy = newFolder();
    for (const part of ['text_encoder', 'tokenizer']) cpSync(join(folder, part), copy, { recursive: true });
    const encoder = new QwenTextEncoder(copy, cpu);
    expect(await encoder.unread('a sign')).toBe(0);
  });

  it('is rejected if it is another model', () => {
    const copy = newFolder();
    writeFileSync(join(copy, 'config.json'), JSON.stringify({ model_type: 'llama' }));
    expect(() => new QwenTextEncoder(copy)).toThrow('model_type "llama" is not a supported text encoder');
  });
});
