/** The VQ autoencoder's loss and gradient against plain loops in float64, where the straight-through rule is written out. */
import { describe, expect, it } from 'vitest';
import { RandomStream } from '../../../src/core/random.js';
import type { FloatTensor } from '../../../src/core/safetensors.js';
import { Session } from '../../../src/compute/onnx/session.js';
import { gradients } from '../../../src/compute/graph/differentiate.js';
import { Graph } from '../../../src/compute/graph/ir.js';
import {
  autoencoderLoss,
  CODEBOOK,
  imageTokenizerParameters,
  initImageTokenizer,
  patchSize,
  type ImageTokenizerConfig,
} from '../../../src/compute/nets/image_tokenizer.js';

const config: ImageTokenizerConfig = { codebook_size: 5, patch: 1, hidden: 4, code_dim: 2, commitment_weight: 0.4 };
const [rows, pixels] = [9, patchSize(config)];
const weights = initImageTokenizer(config, 4);
for (const [name, { data }] of weights) {
  const stream = new RandomStream('bias', name);
  if (name.endsWith('bias')) data.forEach((_, i) => (data[i] = 0.3 * stream.normal()));
}
const noise = new RandomStream('patches');
const patches = Float32Array.from({ length: rows * pixels }, () => noise.uniform());

type Rows = number[][];
type Get = (name: string) => ArrayLike<number>;
const from =
  (map: ReadonlyMap<string, { readonly data: ArrayLike<number> }>): Get =>
  (name) =>
    map.get(name)!.data;

function linear(x: Rows, get: Get, name: string): Rows {
  const bias = Array.from(get(`${name}.bias`));
  const weight = get(`${name}.weight`);
  return x.map((row) => bias.map((b, o) => row.reduce((sum, v, i) => sum + v * weight[o * row.length + i], b)));
}
const each = (x: Rows, f: (v: number) => number): Rows => x.map((row) => row.map(f));
const logistic = (v: number): number => 1 / (1 + Math.exp(-v));
const silu = (v: number): number => v * logistic(v);
const meanSquare = (a: Rows, b: Rows): number =>
  a.flatMap((row, n) => row.map((v, i) => (v - b[n][i]) ** 2)).reduce((sum, v) => sum + v, 0) /
  (a.length * a[0].length);

const x: Rows = Array.from({ length: rows }, (_, n) => [...patches.subarray(n * pixels, (n + 1) * pixels)]);

function encode(get: Get): Rows {
  const hidden = linear(
    each(x, (v) => 2 * v - 1),
    get,
    'encoder.fc1',
  );
  return linear(each(hidden, silu), get, 'encoder.fc2');
}
function codesOf(get: Get): number[] {
  const codebook = get(CODEBOOK);
  return encode(get).map((z) => {
    const distances = Array.from({ length: 5 }, (_, k) =>
      z.reduce((sum, v, i) => sum + (v - codebook[k * 2 + i]) ** 2, 0),
    );
    return distances.indexOf(Math.min(...distances));
  });
}
const vectorsOf = (get: Get, codes: readonly number[]): Rows =>
  codes.map((k) => [0, 1].map((i) => get(CODEBOOK)[k * 2 + i]));
const decode = (get: Get, e: Rows): Rows =>
  each(linear(each(linear(e, get, 'decoder.fc1'), silu), get, 'decoder.fc2'), logistic);

const fixed = from(weights);
const codes = codesOf(fixed);
const [z0, e0] = [encode(fixed), vectorsOf(fixed, codes)];

/**
 * What the gradient is the derivative of: codes stay; stop(.) holds the value at the present weights; the decoder reads
 * stop(e - z) + z for the encoder and e for the codebook's own reconstruction gradient.
 */
function surrogate(get: Get, decoderReads: 'z' | 'e'): number {
  const z = encode(get);
  const e = vectorsOf(get, codes);
  const through = decoderReads === 'z' ? z.map((row, n) => row.map((v, i) => v + e0[n][i] - z0[n][i])) : e0;
  return meanSquare(decode(get, through), x) + meanSquare(e, z0) + config.commitment_weight * meanSquare(z, e0);
}

async function run(): Promise<{
  loss: number;
  reconstruction: number;
  codes: number[];
  d: (name: string) => Float32Array;
}> {
  const graph = new Graph('autoencoder');
  const made = autoencoderLoss(config, graph.input('patches', [rows, pixels]));
  const names = [...graph.parameters.keys()];
  const found = gradients(made.loss, [...graph.parameters.values()]);
  const { loss, reconstruction } = made;
  const d = Object.fromEntries(names.map((name, i) => [`d:${name}`, found[i]]));
  const session = await Session.compile(graph, { loss, reconstruction, codes: made.codes, ...d }, { threads: 1 });
  const out = await session.run({ patches }, weights);
  await session.dispose();
  return {
    loss: (out.loss as Float32Array)[0],
    reconstruction: (out.reconstruction as Float32Array)[0],
    codes: [...(out.codes as BigInt64Array)].map(Number),
    d: (name) => out[`d:${name}`] as Float32Array,
  };
}

describe('the VQ autoencoder', () => {
  it('takes the nearest codes, and its loss follows the formula', async () => {
    const found = await run();
    expect(found.codes).toEqual(codes);
    expect(new Set(codes).size).toBeGreaterThan(1);
    const reconstruction = meanSquare(decode(fixed, e0), x);
    expect(found.reconstruction).toBeCloseTo(reconstruction, 6);
    expect(found.loss).toBeCloseTo(reconstruction + 1.4 * meanSquare(z0, e0), 5);
  });

  it('has every parameter of a checkpoint, each with a gradient', async () => {
    const found = await run();
    for (const [name, shape] of imageTokenizerParameters(config)) {
      expect(found.d(name), name).toHaveLength(shape.reduce((a, b) => a * b, 1));
    }
  });

  it.each([...weights.keys()])('gradient of %s: straight through to the encoder, none through stop', async (name) => {
    const found = (await run()).d(name);
    const moved = new Map<string, { data: Float64Array }>(
      [...weights].map(([key, tensor]: [string, FloatTensor]) => [key, { data: Float64Array.from(tensor.data) }]),
    );
    const { data } = moved.get(name)!;
    // the codebook learns from its distance to the encoder alone: the decoder's gradient passes it by
    const reads = name === CODEBOOK ? 'e' : 'z';
    data.forEach((w, i) => {
      const at = (step: number): number => {
        data[i] = w + step;
        const value = surrogate(from(moved), reads);
        data[i] = w;
        return value;
      };
      const numeric = (at(1e-5) - at(-1e-5)) / 2e-5;
      expect(Math.abs(found[i] - numeric), `element ${i}`).toBeLessThan(1e-5);
    });
  });
});
