/** A model of transformers; test/fixture_scripts/clip_training.py makes it and what it is compared with. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { must } from '../../../../src/core/errors.js';
import { readSafetensors } from '../../../../src/core/safetensors.js';
import { Session } from '../../../../src/compute/onnx/session.js';
import { gradients } from '../../../../src/compute/graph/differentiate.js';
import { Graph, type Value } from '../../../../src/compute/graph/ir.js';
import { clipInputs, embedImages, embedTexts, initClip } from '../../../../src/compute/nets/clip/clip.js';
import { clipConfigJson, type ClipConfig } from '../../../../src/compute/nets/clip/config.js';
import { contrastiveLoss } from '../../../../src/compute/nets/clip/loss.js';

const fixtures = fileURLToPath(new URL('./fixtures', import.meta.url));
const weights = readSafetensors(join(fixtures, 'model.safetensors'));
const expected = readSafetensors(join(fixtures, 'expected.safetensors'));
const of = (name: string): Float32Array => must(expected.get(name), name).data;
const BATCH = 3;
const GRADIENT = 'gradient:';

const tower = {
  hidden_size: 12,
  intermediate_size: 20,
  num_hidden_layers: 2,
  num_attention_heads: 3,
  hidden_act: 'gelu_pytorch_tanh',
  layer_norm_eps: 1e-5,
} as const;
const config: ClipConfig = {
  projection_dim: 6,
  text: { ...tower, vocab_size: 11, max_position_embeddings: 7, bos_token_id: 9, eos_token_id: 10 },
  vision: { ...tower, image_size: 8, patch_size: 4 },
};

/** The largest difference, of the largest number that is expected, which counts as 0.1 at least. */
function worst(found: ArrayLike<number>, wanted: ArrayLike<number>): number {
  expect(found.length).toBe(wanted.length);
  let [difference, largest] = [0, 0.1];
  for (let i = 0; i < wanted.length; i++) {
    difference = Math.max(difference, Math.abs(found[i] - wanted[i]));
    largest = Math.max(largest, Math.abs(wanted[i]));
  }
  return difference / largest;
}

async function computed(held: number | null): Promise<Readonly<Record<string, Float32Array>>> {
  const graph = new Graph('clip');
  const { ids, pixels } = clipInputs(graph, config, BATCH);
  const [texts, pictures] = [embedTexts(config, ids), embedImages(config, pixels)];
  const { loss, matched } = contrastiveLoss(pictures, texts, held);
  const parameters = [...graph.parameters];
  const slopes = gradients(
    loss,
    parameters.map(([, value]) => value),
  );
  const outputs: Record<string, Value> = { texts, pictures, loss, matched };
  parameters.forEach(([name], i) => (outputs[GRADIENT + name] = slopes[i]));
  const session = await Session.compile(graph, outputs, { threads: 1 });
  const feeds = { input_ids: BigInt64Array.from(of('ids'), BigInt), pixel_values: of('pixels') };
  const found = (await session.run(feeds, weights)) as Record<string, Float32Array>;
  await session.dispose();
  return found;
}

describe('a CLIP of transformers', () => {
  it('has the embeddings, the loss and the gradients of transformers to 2e-5 of the largest', async () => {
    const found = await computed(null);
    for (const name of ['texts', 'pictures', 'loss']) expect(worst(found[name], of(name))).toBeLessThan(2e-5);
    const names = [...expected.keys()].filter((name) => name.startsWith(GRADIENT));
    expect(names.length).toBe(weights.size);
    for (const name of names) expect([name, worst(found[name], of(name)) < 2e-5]).toEqual([name, true]);
  });

  it('is penalized where the matched cosine is not what it is held to', async () => {
    const [free, held] = [await computed(null), await computed(0.3)];
    expect(held['loss'][0]).toBeCloseTo(free['loss'][0] + 10 * (free['matched'][0] - 0.3) ** 2, 5);
    expect(worst(held[`${GRADIENT}logit_scale`], free[`${GRADIENT}logit_scale`])).toBeLessThan(1e-5);
  });

  it('is described as transformers describes it', () => {
    type Json = Record<string, unknown>;
    const theirs = JSON.parse(readFileSync(join(fixtures, 'config.json'), 'utf8')) as Json;
    const ours = JSON.parse(clipConfigJson(config)) as Json;
    for (const half of ['text_config', 'vision_config']) {
      // Each half's own, which transformers leaves at 512 in a whole model.
      const { projection_dim: space, ...rest } = ours[half] as Json;
      expect(space).toBe(6);
      expect(theirs[half]).toMatchObject(rest);
      delete ours[half];
    }
    expect(theirs).toMatchObject(ours);
  });

  it('begins with all its weights, and others for another seed', () => {
    const begun = initClip(config, 20, 1);
    expect([...begun.keys()].sort()).toEqual([...weights.keys()].sort());
    for (const [name, { shape }] of weights) expect([name, begun.get(name)?.shape]).toEqual([name, shape]);
    expect(Math.exp(must(begun.get('logit_scale'), 'the scale').data[0])).toBeCloseTo(20, 4);
    const name = 'visual_projection.weight';
    expect(initClip(config, 20, 2).get(name)?.data).not.toEqual(begun.get(name)?.data);
    expect(initClip(config, 20, 1).get(name)?.data).toEqual(begun.get(name)?.data);
  });
});
