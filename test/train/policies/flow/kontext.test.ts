/** An edit of a small FLUX.1-Kontext, from image and words to image; test/fixture_scripts/kontext_pipeline.py makes what it is compared with. */
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { must } from '../../../../src/core/errors.js';
import type { RgbImage } from '../../../../src/core/images/image.js';
import { GivenNoise } from '../../../support/given_noise.js';
import { readSafetensors, readSafetensorsIndex } from '../../../../src/core/safetensors.js';
import { mul, sumAll } from '../../../../src/compute/graph/build.js';
import { gradients } from '../../../../src/compute/graph/differentiate.js';
import { Graph } from '../../../../src/compute/graph/ir.js';
import { flowInputs, velocity } from '../../../../src/compute/nets/flow/transformer.js';
import { Session } from '../../../../src/compute/onnx/session.js';
import { openFlowTransformer } from '../../../../src/models/networks/flow.js';
import { partFolder, readPipeline } from '../../../../src/models/pipeline.js';
import { AutoencoderCodec } from '../../../../src/train/environments/image_codec.js';
import { PipelineTextEncoder } from '../../../../src/train/environments/pipeline_text.js';
import { pack, unpack, type FlowCondition } from '../../../../src/train/policies/flow/batch.js';
import {
  editCondition,
  requireReadsEncoded,
  requireReadsStates,
  sourceInputOf,
} from '../../../../src/train/policies/flow/editor.js';
import { checkPipeline, pipelineSchedule } from '../../../../src/train/policies/flow/pipeline.js';
import { microBatches, modelFeeds } from '../../../../src/train/policies/flow/rows.js';
import { FlowSampler } from '../../../../src/train/policies/flow/sampler.js';
import { testFolder } from '../../../support/folder.js';

const cpu = { provider: 'cpu', threads: 1 } as const;
const GUIDANCE = 2.5;
const GRADIENT = 'gradient:';

const made = join(import.meta.dirname, 'fixtures', 'flux');
const file = join(made, 'expected_kontext.safetensors');
const expected = readSafetensors(file, [...readSafetensorsIndex(file).entries.keys()]);
const of = (name: string): Float32Array => must(expected.get(name), name).data;

/** The same parts in a folder of the other class. */
function kontext(): string {
  const folder = join(testFolder('kontext'), 'pipeline');
  cpSync(made, folder, { recursive: true });
  const index = join(folder, 'model_index.json');
  writeFileSync(index, readFileSync(index, 'utf8').replace('"FluxPipeline"', '"FluxKontextPipeline"'));
  return folder;
}

const pipeline = readPipeline(kontext());
const { config, weights } = openFlowTransformer(partFolder(pipeline, 'transformer'));
const codec = AutoencoderCodec.open(partFolder(pipeline, 'vae'), cpu);
const input = sourceInputOf(config, codec, 'here');
const image: RgbImage = { width: 12, height: 16, data: Uint8Array.from(of('image')) };

/** The largest difference, of the largest number that is expected; that counts as 0.1 at least. */
function worst(found: ArrayLike<number>, wanted: Float32Array): number {
  expect(found.length).toBe(wanted.length);
  const largest = wanted.reduce((most, x) => Math.max(most, Math.abs(x)), 0.1);
  return wanted.reduce((most, x, i) => Math.max(most, Math.abs(x - found[i])), 0) / largest;
}

async function condition(): Promise<{ readonly flow: FlowCondition; readonly text: Float32Array }> {
  const encoder = new PipelineTextEncoder(pipeline, cpu);
  requireReadsEncoded(config, encoder, 'here');
  const read = await encoder.encode("A red  door, and BAT's naïve 2 signs");
  const [source] = await codec.encode([image]);
  await encoder.dispose();
  expect(worst(pack(source, input.patch), of('source'))).toBeLessThan(5e-6);
  expect(worst(read.pooled ?? [], of('pooled'))).toBeLessThan(5e-6);
  return { flow: editCondition(read, [source], input, config), text: read.text };
}

describe('FLUX.1-Kontext', () => {
  it('is a FLUX that reads its source as further tokens', () => {
    expect(input).toEqual({ patch: 2, source: 'tokens', several: false });
    expect(() => checkPipeline(pipeline, 'flux', GUIDANCE)).not.toThrow();
  });

  it('edits as the pipeline of diffusers in four steps, from image and words to image', async () => {
    const { flow } = await condition();
    const sigmas = pipelineSchedule(pipeline).sigmas(4, 12);
    expect(worst(sigmas, of('sigmas'))).toBeLessThan(1e-6);
    const sampler = new FlowSampler({ config, batch: 1, session: cpu });
    const random = new GivenNoise(of('noise'));
    const how = {
      sigmas: () => sigmas,
      guidance: GUIDANCE,
      noiseLevel: 0,
      fraction: 1,
      window: null,
      sameLatent: false,
    };
    const request = { prompts: [{ flow }], answersPerPrompt: 1, how, random: () => random };
    const [[{ latents }]] = await sampler.sample(request, weights);
    await sampler.dispose();
    expect(worst(latents, of('latents'))).toBeLessThan(1e-5);
    const [edited] = await codec.decode([unpack(latents, { channels: 4, width: 6, height: 8 }, 2)]);
    const bytes = of('edited');
    expect(new Set(edited.data).size).toBeGreaterThan(20);
    edited.data.forEach((byte, at) => {
      expect(Math.abs(byte - 255 * bytes[(at % 3) * 192 + Math.floor(at / 3)])).toBeLessThan(0.6);
    });
  });

  it('has the velocity and the gradients of diffusers', async () => {
    const { flow, text } = await condition();
    expect(worst(text, of('text'))).toBeLessThan(2e-5);
    // T5's states are 2e-5 apart, so the transformer gets those of diffusers here.
    const row = { condition: { ...flow, text: of('text') }, sigma: 0.75, x: of('noise') };
    const [{ shape }] = microBatches([row], config, 1);
    const graph = new Graph('kontext');
    const out = velocity(graph, config, shape, flowInputs(graph, config, shape));
    const parameters = [...graph.parameters];
    const slopes = gradients(
      sumAll(mul(out, graph.constant(of('projection'), out.shape))),
      parameters.map(([, value]) => value),
    );
    const named = Object.fromEntries(parameters.map(([name], i) => [GRADIENT + name, slopes[i]]));
    const session = await Session.compile(graph, { out, ...named });
    const found = await session.run(modelFeeds([row], config, shape, GUIDANCE), weights);
    await session.dispose();
    expect(worst(found['out'] as Float32Array, of('velocity'))).toBeLessThan(1e-5);
    const known = [...expected.keys()].filter((name) => name.startsWith(GRADIENT));
    expect(known.sort()).toEqual(Object.keys(named).sort());
    // Two of the 128 frequencies that torch computes are off by their last bit, which counts in sinusoids of 1000 times the guidance.
    for (const name of known) {
      const most = name.includes('embedder.linear_1') ? 2e-4 : 2e-5;
      expect(worst(found[name] as Float32Array, of(name)), name).toBeLessThan(most);
    }
  });

  it('is rejected for hidden states, and with another text encoder', () => {
    expect(() => requireReadsStates(config, 'here')).toThrow('pooled text vector');
    const other = { width: 24, pooledWidth: 11 };
    expect(() => requireReadsEncoded(config, other, 'here')).toThrow(
      'a pooled vector of 11; the model expects 24 and 8',
    );
  });
});
