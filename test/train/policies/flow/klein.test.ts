/** Edits of a small FLUX.2-klein, from images and words to image; test/fixture_scripts/klein_pipeline.py makes what they are compared with. */
import { cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { must } from '../../../../src/core/errors.js';
import type { RgbImage } from '../../../../src/core/images/image.js';
import { GivenNoise } from '../../../support/given_noise.js';
import { readSafetensors, readSafetensorsIndex } from '../../../../src/core/safetensors.js';
import { openFlowTransformer } from '../../../../src/models/networks/flow.js';
import { partFolder, readPipeline } from '../../../../src/models/pipeline.js';
import { AutoencoderCodec } from '../../../../src/train/environments/image_codec.js';
import { PipelineTextEncoder } from '../../../../src/train/environments/pipeline_text.js';
import { pack, unpack } from '../../../../src/train/policies/flow/batch.js';
import { editCondition, requireReadsEncoded, sourceInputOf } from '../../../../src/train/policies/flow/editor.js';
import { flowCondition } from '../../../../src/train/policies/flow/image_model.js';
import { flowModelTypes } from '../../../../src/train/policies/flow/model_types.js';
import { checkPipeline, pipelineSchedule } from '../../../../src/train/policies/flow/pipeline.js';
import { FlowSampler } from '../../../../src/train/policies/flow/sampler.js';
import { testFolders } from '../../../support/folder.js';

const cpu = { provider: 'cpu', threads: 1 } as const;
const newFolder = testFolders('klein');
const made = join(import.meta.dirname, 'fixtures', 'klein');
const file = join(made, 'expected.safetensors');
const expected = readSafetensors(file, [...readSafetensorsIndex(file).entries.keys()]);
const of = (name: string): Float32Array => must(expected.get(name), name).data;

const pipeline = readPipeline(made);
const { config, weights } = openFlowTransformer(partFolder(pipeline, 'transformer'));
const codec = AutoencoderCodec.open(partFolder(pipeline, 'vae'), cpu);
const input = sourceInputOf(config, codec, 'here');
const PROMPT = "A red  door, and BAT's naïve 2 signs";
const LONG = 'a red door by the sea '.repeat(40);
const image = (name: string, width: number, height: number): RgbImage => ({
  width,
  height,
  data: Uint8Array.from(of(name)),
});
const images = [image('image_0', 12, 16), image('image_1', 8, 12)];

/** The largest difference, of the largest number that is expected; that counts as 0.1 at least. */
function worst(found: ArrayLike<number>, wanted: Float32Array): number {
  expect(found.length).toBe(wanted.length);
  const largest = wanted.reduce((most, x) => Math.max(most, Math.abs(x)), 0.1);
  return wanted.reduce((most, x, i) => Math.max(most, Math.abs(x - found[i])), 0) / largest;
}

/** A copy of the pipeline with another file. */
function changed(path: string, change: (text: string) => string): string {
  const folder = join(newFolder(), 'klein');
  cpSync(made, folder, { recursive: true });
  writeFileSync(join(folder, path), change(readFileSync(join(folder, path), 'utf8')));
  return folder;
}

describe('the text of FLUX.2-klein', () => {
  it('is the states of three layers, padding included', async () => {
    const encoder = new PipelineTextEncoder(pipeline, cpu);
    expect(() => requireReadsEncoded(config, encoder, 'here')).not.toThrow();
    const [short, long, empty] = [
      await encoder.encode(PROMPT),
      await encoder.encode(LONG),
      await encoder.blank(),
    ] as const;
    await encoder.dispose();
    expect([short.pooled, short.unread, empty.unread]).toEqual([null, 0, 0]);
    // Each character is a token of these letters, beside those of the template.
    expect(long.unread).toBeGreaterThan(LONG.length - 512);
    expect(worst(short.text, of('text_short'))).toBeLessThan(5e-6);
    expect(worst(long.text.slice(-8 * 24), of('text_long'))).toBeLessThan(5e-6);
    expect(worst(empty.text.slice(-8 * 24), of('text_empty'))).toBeLessThan(5e-6);
  });

  it('needs a model with enough layers, a template and a padding token', () => {
    const shallow = changed('text_encoder/config.json', (text) =>
      JSON.stringify({ ...(JSON.parse(text) as object), num_hidden_layers: 27, layer_types: null }),
    );
    expect(() => new PipelineTextEncoder(readPipeline(shallow))).toThrow(
      'the model has 27 layers, and FLUX.2 reads the states after layer 27, which must not be the last',
    );
    const silent = changed('tokenizer/tokenizer_config.json', (text) =>
      JSON.stringify({ ...(JSON.parse(text) as object), pad_token: null }),
    );
    expect(() => new PipelineTextEncoder(readPipeline(silent))).toThrow('no padding token');
    const bare = changed('model_index.json', (text) => text);
    rmSync(join(bare, 'tokenizer', 'chat_template.jinja'));
    expect(() => new PipelineTextEncoder(readPipeline(bare))).toThrow('no chat template');
  });
});

describe('FLUX.2-klein', () => {
  it.each([
    ['no image with guidance', 'none', 4],
    ['one image without guidance', 'one', null],
    ['two images with guidance', 'two', 4],
  ] as const)('edits %s as the pipeline of diffusers in four steps', async (_, name, guidance) => {
    expect(input).toEqual({ patch: 1, source: 'tokens', several: true });
    const encoder = new PipelineTextEncoder(pipeline, cpu);
    const [text, blank] = [await encoder.encode(PROMPT), guidance === null ? null : await encoder.blank()];
    await encoder.dispose();
    const [source, second] = await codec.encode(images);
    const shown = [...pack(source, 1), ...pack(second, 1)];
    expect(worst(shown, of('shown'))).toBeLessThan(5e-6);
    const flow =
      name === 'none'
        ? { ...flowCondition(text, source, input.patch), ...(blank === null ? {} : { without: blank }) }
        : editCondition(text, name === 'one' ? [source] : [source, second], input, config, blank);
    const sigmas = pipelineSchedule(pipeline).sigmas(4, 12);
    expect(worst(sigmas, of('sigmas'))).toBeLessThan(1e-6);
    const sampler = new FlowSampler({ config, batch: 1, session: cpu });
    const random = new GivenNoise(of('noise'));
    const how = { sigmas: () => sigmas, guidance, noiseLevel: 0, fraction: 1, window: null, sameLatent: false };
    const request = { prompts: [{ flow }], answersPerPrompt: 1, how, random: () => random };
    const [[{ latents }]] = await sampler.sample(request, weights);
    await sampler.dispose();
    expect(worst(latents, of(`latents_${name}`))).toBeLessThan(5e-6);
    const [edited] = await codec.decode([unpack(latents, { channels: 12, width: 3, height: 4 }, 1)]);
    const bytes = of(`edited_${name}`);
    expect(new Set(edited.data).size).toBeGreaterThan(20);
    edited.data.forEach((byte, at) => {
      expect(Math.abs(byte - 255 * bytes[(at % 3) * 192 + Math.floor(at / 3)])).toBeLessThan(0.6);
    });
  });

  it.each([
    [4, 1024],
    [28, 4096],
    [50, 4300],
    [50, 6000],
  ])('has the noise levels of the pipeline for %i steps and %i tokens', (steps, tokens) => {
    const found = flowModelTypes.flux2.sigmas(steps, tokens);
    expect(worst(found, of(`sigmas_${steps}_${tokens}`))).toBeLessThan(1e-6);
  });

  it('has no guidance if it is distilled', () => {
    expect(() => checkPipeline(pipeline, 'flux2', 4)).not.toThrow();
    const distilled = changed('model_index.json', (text) =>
      text.replace('"is_distilled": false', '"is_distilled": true'),
    );
    expect(() => checkPipeline(readPipeline(distilled), 'flux2', null)).not.toThrow();
    expect(() => checkPipeline(readPipeline(distilled), 'flux2', 4)).toThrow(
      'environment.guidance_scale is set, but the model was distilled and has no guidance',
    );
  });

  it('is rejected with parts of another model', () => {
    const other = changed('model_index.json', (text) => text.replace('AutoencoderKLFlux2', 'AutoencoderKL'));
    expect(() => readPipeline(other)).toThrow('vae is AutoencoderKL; allowed: AutoencoderKLFlux2');
    expect(() => checkPipeline(pipeline, 'flux', null)).toThrow(
      "environment.model_type is 'flux', but the model is a Flux2KleinPipeline",
    );
  });
});
