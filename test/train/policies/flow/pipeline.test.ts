/** A small Stable Diffusion 3 and a small FLUX as diffusers saves them; test/fixture_scripts/sd3_pipeline.py makes them and what they are compared with. */
import { cpSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { must, type EditrlError } from '../../../../src/core/errors.js';
import { floatsToHalves, HalfTensor, halvesToFloats } from '../../../../src/core/half.js';
import type { RandomStream } from '../../../../src/core/random.js';
import { GivenNoise } from '../../../support/given_noise.js';
import { readSafetensors, readSafetensorsIndex, safetensorsPieces } from '../../../../src/core/safetensors.js';
import { AutoencoderCodec } from '../../../../src/train/environments/image_codec.js';
import { PipelineTextEncoder } from '../../../../src/train/environments/pipeline_text.js';
import { partFolder, readPipeline } from '../../../../src/models/pipeline.js';
import { openFlowTransformer } from '../../../../src/models/networks/flow.js';
import { flowCondition } from '../../../../src/train/policies/flow/image_model.js';
import { pack, unpack } from '../../../../src/train/policies/flow/batch.js';
import { checkPipeline, pipelineSchedule } from '../../../../src/train/policies/flow/pipeline.js';
import { FlowSampler } from '../../../../src/train/policies/flow/sampler.js';
import { openTextEncoder } from '../../../../src/recipes/shared/flow/parts.js';
import { flowEngine } from '../../../../src/config/schema/model.js';
import { testFolders } from '../../../support/folder.js';

const folder = join(import.meta.dirname, 'fixtures', 'sd3');
const file = join(folder, 'expected.safetensors');
const expected = readSafetensors(file, [...readSafetensorsIndex(file).entries.keys()]);
const prompts = JSON.parse(readFileSync(join(folder, 'prompts.json'), 'utf8')) as Readonly<
  Record<'short' | 'long' | 'empty', string>
>;
const of = (name: string): Float32Array => must(expected.get(name), name).data;
const emptyFolder = testFolders('pipeline');
/** What float32 leaves of T5's states, whose scores are not scaled: torch's own are 3e-6 from those of float64. */
const STATES = 2e-5;
const cpu = { provider: 'cpu', threads: 1 } as const;

/** The largest difference, of the largest number that is expected. */
function worst(found: ArrayLike<number>, wanted: Float32Array): number {
  expect(found.length).toBe(wanted.length);
  const largest = wanted.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
  return wanted.reduce((most, x, i) => Math.max(most, Math.abs(x - found[i])), 0) / largest;
}

/** The folder with a file changed. */
function changed(name: string, change: (json: Record<string, unknown>) => object, from = folder): string {
  const copy = join(emptyFolder(), 'copy');
  cpSync(from, copy, { recursive: true });
  const json = JSON.parse(readFileSync(join(copy, name), 'utf8')) as Record<string, unknown>;
  writeFileSync(join(copy, name), JSON.stringify(change(json)));
  return copy;
}

const withoutT5 = (json: Record<string, unknown>): object => ({
  ...json,
  text_encoder_3: [null, null],
  tokenizer_3: [null, null],
});

describe('the text encoders of a pipeline', () => {
  it.each(['short', 'long', 'empty'] as const)('read a prompt as diffusers: %s', async (which) => {
    const encoder = new PipelineTextEncoder(readPipeline(folder), cpu);
    const { text, pooled } = await encoder.encode(prompts[which]);
    expect([encoder.width, encoder.pooledWidth]).toEqual([24, 11]);
    expect(worst(text, of(`text:${which}`))).toBeLessThan(STATES);
    expect(worst(pooled ?? [], of(`pooled:${which}`))).toBeLessThan(1e-5);
    await encoder.dispose();
  });

  it('go without T5, whose tokens are zeros then', async () => {
    const copy = changed('model_index.json', withoutT5);
    for (const part of ['text_encoder_3', 'tokenizer_3']) rmSync(join(copy, part), { recursive: true });
    const encoder = new PipelineTextEncoder(readPipeline(copy), cpu);
    const { text, pooled } = await encoder.encode(prompts.short);
    expect(worst(text, of('without_t5:short'))).toBeLessThan(1e-5);
    expect(worst(pooled ?? [], of('pooled:short'))).toBeLessThan(1e-5);
    expect(text.slice(-24).every((x) => x === 0)).toBe(true);
    await encoder.dispose();
  });

  it('read the prompt of no words again where that failed', async () => {
    const copy = changed('model_index.json', (json) => json);
    const encoder = new PipelineTextEncoder(readPipeline(copy), cpu);
    const weights = join(copy, 'text_encoder_2', 'model.safetensors');
    renameSync(weights, `${weights}.away`);
    await expect(encoder.blank()).rejects.toThrow();
    renameSync(`${weights}.away`, weights);
    expect(worst((await encoder.blank()).text, of('text:empty'))).toBeLessThan(STATES);
    await encoder.dispose();
  });

  it('give T5 as many tokens as diffusers, whatever its tokenizer says', async () => {
    const copy = changed('tokenizer_3/tokenizer_config.json', (json) => ({ ...json, model_max_length: 40 }));
    const encoder = new PipelineTextEncoder(readPipeline(copy), cpu);
    expect(worst((await encoder.encode(prompts.short)).text, of('text:short'))).toBeLessThan(STATES);
    await encoder.dispose();
  });

  it('are stored in float16, and say then what they say with the same numbers in float32', async () => {
    const [copy, texts] = [
      changed('model_index.json', (json) => json),
      ['text_encoder', 'text_encoder_2', 'text_encoder_3'],
    ];
    const weightsOf = (part: string) => join(copy, part, 'model.safetensors');
    for (const part of texts) {
      const rounded = [...readSafetensors(weightsOf(part))].map(([name, { shape, data }]) => {
        return [name, { shape, data: halvesToFloats(floatsToHalves(data)) }] as const;
      });
      writeFileSync(weightsOf(part), Buffer.concat(safetensorsPieces(new Map(rounded), { format: 'pt' })));
    }
    const [half, wide] = (['float16', 'float32'] as const).map(
      (held) => new PipelineTextEncoder(readPipeline(copy), cpu, held),
    );
    const widened = vi.spyOn(HalfTensor.prototype, 'data', 'get');
    await half.encode(prompts.empty);
    expect(widened).not.toHaveBeenCalled();
    widened.mockRestore();
    for (const which of ['short', 'long'] as const) {
      const [found, wanted] = [await half.encode(prompts[which]), await wide.encode(prompts[which])];
      expect(worst(found.text, wanted.text)).toBeLessThan(STATES);
      expect(worst(found.pooled ?? [], wanted.pooled!)).toBeLessThan(1e-5);
    }
    const large = new Map(readSafetensors(weightsOf('text_encoder_3')));
    const name = 'encoder.block.0.layer.0.SelfAttention.q.weight';
    must(large.get(name), name).data[1] = -70_000;
    writeFileSync(weightsOf('text_encoder_3'), Buffer.concat(safetensorsPieces(large)));
    const engine = { ...flowEngine.parse({ provider: 'cpu' }), dtype: 'float16' } as const;
    const refused = openTextEncoder(copy, engine, () => copy);
    await expect(refused.encode(prompts.short)).rejects.toThrow(`tensor ${name} contains -70000, beyond 65504`);
    await Promise.all([half, wide, refused].map((one) => one.dispose().catch(() => undefined)));
  });

  it('say how much of a prompt none of them reads', async () => {
    const encoder = new PipelineTextEncoder(readPipeline(folder), cpu);
    expect(await encoder.unread(prompts.short)).toBe(0);
    expect(await encoder.unread(prompts.long)).toBeGreaterThan(100);
    await encoder.dispose();
  });
});

it('paints the image of diffusers from the same noise, under guidance', async () => {
  const pipeline = readPipeline(folder);
  const encoder = new PipelineTextEncoder(pipeline, cpu);
  const { config, weights } = openFlowTransformer(partFolder(pipeline, 'transformer'));
  const codec = AutoencoderCodec.open(partFolder(pipeline, 'vae'), cpu);
  const sigmas = pipelineSchedule(pipeline).sigmas(4, 12);
  expect(worst(sigmas, of('sigmas'))).toBeLessThan(1e-6);
  const size = { channels: 4, height: 8, width: 6 };
  const { text, pooled } = await encoder.blank();
  const condition = flowCondition(await encoder.encode(prompts.short), size, 2);
  const sampler = new FlowSampler({ config, batch: 1, session: cpu });
  const noise = pack({ ...size, data: of('noise') }, 2);
  const how = { sigmas: () => sigmas, guidance: 4.5, noiseLevel: 0, fraction: 1, window: null, sameLatent: false };
  const [[{ latents }]] = await sampler.sample(
    {
      prompts: [{ flow: { ...condition, without: { text, pooled } } }],
      answersPerPrompt: 1,
      how,
      random: () => new GivenNoise(noise),
    },
    weights,
  );
  expect(worst(unpack(latents, size, 2).data, of('latents'))).toBeLessThan(1e-4);
  const [{ data }] = await codec.decode([unpack(latents, size, 2)]);
  // Bytes, row by row; diffusers has planes of numbers from 0 to 1.
  const image = of('picture');
  const bytes = Float32Array.from({ length: data.length }, (_, at) => 255 * image[(at % 3) * 192 + Math.floor(at / 3)]);
  expect(new Set(data).size).toBeGreaterThan(20);
  bytes.forEach((byte, at) => expect(Math.abs(byte - data[at])).toBeLessThan(0.6));
  await Promise.all([encoder.dispose(), codec.dispose(), sampler.dispose()]);
});

it('reads and paints like FLUX, whose tokens come from T5 alone and whose guidance is an input', async () => {
  const pipeline = readPipeline(join(import.meta.dirname, 'fixtures', 'flux'));
  const path = join(pipeline.folder, 'expected.safetensors');
  const wanted = readSafetensors(path, [...readSafetensorsIndex(path).entries.keys()]);
  const numbers = (name: string): Float32Array => must(wanted.get(name), name).data;
  const encoder = new PipelineTextEncoder(pipeline, cpu);
  const read = await encoder.encode(prompts.short);
  expect([encoder.width, encoder.pooledWidth]).toEqual([24, 8]);
  expect(worst(read.text, numbers('text'))).toBeLessThan(STATES);
  expect(worst(read.pooled ?? [], numbers('pooled'))).toBeLessThan(1e-5);
  const sigmas = pipelineSchedule(pipeline).sigmas(4, 12);
  expect(worst(sigmas, numbers('sigmas'))).toBeLessThan(1e-6);
  const { config, weights } = openFlowTransformer(partFolder(pipeline, 'transformer'));
  const sampler = new FlowSampler({ config, batch: 1, session: cpu });
  const how = { sigmas: () => sigmas, guidance: 3.5, noiseLevel: 0, fraction: 1, window: null, sameLatent: false };
  const flow = flowCondition(read, { width: 6, height: 8 }, 2);
  const random = (): RandomStream => new GivenNoise(numbers('noise'));
  const [[{ latents }]] = await sampler.sample({ prompts: [{ flow }], answersPerPrompt: 1, how, random }, weights);
  expect(worst(latents, numbers('latents'))).toBeLessThan(1e-4);
  checkPipeline(pipeline, 'flux', 3.5);
  await Promise.all([encoder.dispose(), sampler.dispose()]);
});

describe('the noise levels of a pipeline', () => {
  const levels = (copy: string): readonly number[] => pipelineSchedule(readPipeline(copy)).sigmas(4, 12);
  const flux = join(import.meta.dirname, 'fixtures', 'flux');
  const scheduler = 'scheduler/scheduler_config.json';

  it('are shifted as its scheduler says', () => {
    const shifted = levels(changed(scheduler, (json) => ({ ...json, shift: 2 })));
    // The least level, 0.001, is shifted twice.
    const once = 0.002 / 1.001;
    expect(shifted[3]).toBeCloseTo((2 * once) / (1 + once), 9);
    expect(shifted).not.toEqual(levels(folder));
  });

  it('of FLUX fall evenly before a shift that is the same for all images, as those of schnell', () => {
    const fixed = { use_dynamic_shifting: false };
    const even = levels(changed(scheduler, (json) => ({ ...json, ...fixed, shift: 1 }), flux));
    expect(even).toEqual([1, 0.75, 0.5, 0.25, 0]);
    const shifted = levels(changed(scheduler, (json) => ({ ...json, ...fixed, shift: 3 }), flux));
    [1, 0.9, 0.75, 0.5, 0].forEach((level, i) => expect(shifted[i]).toBeCloseTo(level, 12));
  });

  it('need numbers where they follow the size of an image', () => {
    const silent = changed(scheduler, (json) => ({ ...json, max_shift: null }), flux);
    expect(() => levels(silent)).toThrow('the scheduler shifts noise levels by image size');
  });
});

describe('a pipeline that is not supported is rejected', () => {
  const [index, scheduler] = ['model_index.json', 'scheduler/scheduler_config.json'];
  const [clip, t5] = ['text_encoder/config.json', 'text_encoder_3/config.json'];
  it.each<[string, string, object, string]>([
    ['another class', index, { _class_name: 'SanaPipeline' }, "'SanaPipeline' is not supported"],
    ['a part of another class', index, { vae: ['diffusers', 'AutoencoderDC'] }, 'vae is AutoencoderDC'],
    ['a part that is missing', index, { text_encoder: [null, null] }, 'text_encoder is none'],
    ['a part that is not known', index, { image_encoder: ['transformers', 'Siglip'] }, 'image_encoder is Siglip'],
    ['half of T5', index, { tokenizer_3: [null, null] }, 'it has only one of'],
    ['a part in another form', index, { vae: 'AutoencoderKL' }, 'vae is not [library, class]'],
    ['second attentions not asked for', 'transformer/config.json', { dual_attention_layers: [] }, 'attn2.'],
    ['another scheduler', scheduler, { use_karras_sigmas: true }, 'use_karras_sigmas: only false'],
    ['a key of the scheduler', scheduler, { warp: 1 }, 'Unrecognized key: "warp"'],
    ['a shift by size', scheduler, { use_dynamic_shifting: true }, 'use_dynamic_shifting: only false'],
    ['another T5', t5, { feed_forward_proj: 'relu' }, 'feed_forward_proj: only gated-gelu'],
    ['a key of T5', t5, { sparse: 1 }, 'T5: Unrecognized key: "sparse"'],
    ['a key of a CLIP', clip, { quantization_config: {} }, 'CLIP: Unrecognized key: "quantization_config"'],
    ['CLIPs of two lengths', 'tokenizer_2/tokenizer_config.json', { model_max_length: 12 }, '16 and 12 tokens'],
    ['a CLIP with fewer places', clip, { max_position_embeddings: 12 }, 'CLIP has 12 places'],
    ['a CLIP of other sizes', 'text_encoder_2/config.json', { hidden_size: 16 }, 'the config needs'],
    ['fewer words than tokens', clip, { vocab_size: 500 }, '520 tokens, and the model 500'],
  ])('%s', (_name, name, change, message) => {
    const copy = changed(name, (json) => ({ ...json, ...change }));
    expect(() => checkPipeline(readPipeline(copy), 'sd3', null)).toThrow(message);
  });

  it.each<[string, string]>([
    ['text_encoder_3', 'or set text_encoder_3 and tokenizer_3 to [null, null] there: it works without T5'],
    ['vae', 'Copy the whole model.'],
  ])('a part that is named and not there: %s', (part, next) => {
    const copy = changed('model_index.json', (json) => json);
    rmSync(join(copy, part), { recursive: true });
    try {
      void new PipelineTextEncoder(readPipeline(copy));
      expect.unreachable();
    } catch (error) {
      expect((error as EditrlError).toText()).toContain(
        `model_index.json names ${part}, but these folders are missing`,
      );
      expect((error as EditrlError).toText()).toContain(next);
    }
  });

  it('lists all missing files of its text parts at once', () => {
    const copy = changed('model_index.json', (json) => json);
    for (const file of ['text_encoder/config.json', 'text_encoder_3/model.safetensors', 'tokenizer_2/tokenizer.json']) {
      rmSync(join(copy, file), { force: true });
    }
    expect(() => new PipelineTextEncoder(readPipeline(copy))).toThrow(
      'missing: text_encoder/config.json, tokenizer_2/tokenizer.json, the weights of text_encoder_3',
    );
  });

  it.each([
    ['model.fp16.safetensors', 'model.safetensors'],
    ['model.safetensors.index.fp16.json', 'model.safetensors.index.json'],
  ])('weights under the name of a variant: %s', (variant, plain) => {
    const copy = changed('model_index.json', (json) => json);
    const part = join(copy, 'text_encoder_3');
    renameSync(join(part, 'model.safetensors'), join(part, variant));
    writeFileSync(join(part, 'model.fp16-00001-of-00002.safetensors'), '');
    try {
      void new PipelineTextEncoder(readPipeline(copy));
      expect.unreachable();
    } catch (error) {
      expect((error as EditrlError).toText()).toContain(`found: ${variant}, a variant under another name`);
      expect((error as EditrlError).toText()).toContain(`Rename ${variant} to ${plain}.`);
    }
  });

  it('CLIPs that are wider together than what the model reads', () => {
    const copy = changed('model_index.json', withoutT5);
    const config = join(copy, 'transformer', 'config.json');
    const json = JSON.parse(readFileSync(config, 'utf8')) as object;
    writeFileSync(config, JSON.stringify({ ...json, joint_attention_dim: 19 }));
    expect(() => new PipelineTextEncoder(readPipeline(copy))).toThrow(
      'its CLIPs make 20 numbers of a token, and the model reads 19',
    );
  });

  it('a tensor that nothing reads', () => {
    const copy = changed('model_index.json', (json) => json);
    const weights = join(copy, 'text_encoder_3', 'model.safetensors');
    cpSync(join(copy, 'text_encoder', 'model.safetensors'), weights);
    expect(() => new PipelineTextEncoder(readPipeline(copy))).toThrow('unused tensors: text_model.');
  });

  it('another family than the settings say', () => {
    expect(() => checkPipeline(readPipeline(folder), 'tiny', null)).toThrow(
      "environment.model_type is 'tiny', but the model is a StableDiffusion3Pipeline",
    );
    expect(() => checkPipeline(readPipeline(folder), 'sd3', 4.5)).not.toThrow();
  });
});
