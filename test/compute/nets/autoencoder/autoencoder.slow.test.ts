/** Models that diffusers saved; test/fixture_scripts/autoencoder.py makes them and what they are compared with. */
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { must } from '../../../../src/core/errors.js';
import { encodeSafetensors, readSafetensors, readSafetensorsIndex } from '../../../../src/core/safetensors.js';
import { Session } from '../../../../src/compute/onnx/session.js';
import { add, concat, mul, sumAll } from '../../../../src/compute/graph/build.js';
import { gradients } from '../../../../src/compute/graph/differentiate.js';
import { Graph } from '../../../../src/compute/graph/ir.js';
import {
  autoencoderParameters,
  decodeLatents,
  encodeImages,
  initAutoencoder,
} from '../../../../src/compute/nets/autoencoder/autoencoder.js';
import { openAutoencoder } from '../../../../src/models/networks/autoencoder.js';
import {
  autoencoderConfigJson,
  readAutoencoderConfig,
  reduction,
} from '../../../../src/compute/nets/autoencoder/config.js';

const fixtures = fileURLToPath(new URL('./fixtures', import.meta.url));
const GRADIENT = 'gradient:';

/** The largest difference, of the largest number that is expected, which counts as 0.1 at least: some gradients are zero but for rounding. */
function worst(found: ArrayLike<number>, expected: ArrayLike<number>): number {
  expect(found.length).toBe(expected.length);
  let [difference, largest] = [0, 0.1];
  for (let i = 0; i < expected.length; i++) {
    difference = Math.max(difference, Math.abs(found[i] - expected[i]));
    largest = Math.max(largest, Math.abs(expected[i]));
  }
  return difference / largest;
}

describe.each(['two_levels', 'no_attention'])('an autoencoder that diffusers saved: %s', (name) => {
  const folder = join(fixtures, name);
  const { config, weights } = openAutoencoder(folder);

  it('has the moments, images and gradients of diffusers to 2e-5 of the largest', async () => {
    const file = join(folder, 'expected.safetensors');
    const expected = readSafetensors(file, [...readSafetensorsIndex(file).entries.keys()]);
    const of = (tensor: string): Float32Array => must(expected.get(tensor), tensor).data;
    const graph = new Graph('autoencoder');
    const side = reduction(config);
    const { mean, logVariance } = encodeImages(config, graph.input('pictures', [2, 3, 8, 12]));
    const moments = concat([mean, logVariance], 1);
    const decoded = decodeLatents(config, graph.input('latents', [2, config.latent_channels, 8 / side, 12 / side]));
    const loss = add(
      sumAll(mul(moments, graph.constant(of('of_moments'), moments.shape))),
      sumAll(mul(decoded, graph.constant(of('of_decoded'), decoded.shape))),
    );
    const parameters = [...graph.parameters.keys()];
    const slopes = gradients(loss, [...graph.parameters.values()]);
    const session = await Session.compile(graph, {
      moments,
      decoded,
      ...Object.fromEntries(parameters.map((parameter, i) => [`${GRADIENT}${parameter}`, slopes[i]])),
    });
    const found = await session.run({ pictures: of('pictures'), latents: of('latents') }, weights);
    await session.dispose();
    const compared = [...expected.keys()].filter((tensor) => tensor in found);
    expect(compared).toHaveLength(2 + autoencoderParameters(config).size);
    expect([...expected.keys()].filter((tensor) => tensor.startsWith(GRADIENT) && !(tensor in found))).toEqual([]);
    for (const tensor of compared) expect(worst(found[tensor] as Float32Array, of(tensor)), tensor).toBeLessThan(2e-5);
  });

  it('reads back the config that it writes', () => {
    expect(readAutoencoderConfig(JSON.parse(autoencoderConfigJson(config)), '')).toEqual(config);
  });

  it('begins as weights of the same names and shapes, norms at one', () => {
    const begun = initAutoencoder(config, 1);
    for (const [parameter, { shape }] of weights) expect(begun.get(parameter)?.shape, parameter).toEqual(shape);
    expect(begun.get('encoder.conv_norm_out.weight')!.data.every((x) => x === 1)).toBe(true);
    expect(begun.get('encoder.conv_norm_out.bias')!.data.every((x) => x === 0)).toBe(true);
    expect(begun.get('decoder.conv_out.weight')!.data.every((x) => x !== 0)).toBe(true);
  });
});

it('reads weights whose attention has the names of former days', () => {
  const folder = mkdtempSync(join(tmpdir(), 'editrl-autoencoder-'));
  try {
    cpSync(join(fixtures, 'two_levels'), folder, { recursive: true });
    const { weights } = openAutoencoder(folder);
    const former = new Map(
      [...weights].map(([name, tensor]) => [
        name
          .replace('.to_q.', '.query.')
          .replace('.to_k.', '.key.')
          .replace('.to_v.', '.value.')
          .replace('.to_out.0.', '.proj_attn.'),
        tensor,
      ]),
    );
    writeFileSync(join(folder, 'diffusion_pytorch_model.safetensors'), encodeSafetensors(former));
    expect(openAutoencoder(folder).weights).toEqual(weights);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

it.each<[string, Record<string, unknown>, RegExp]>([
  ['another class', { _class_name: 'AutoencoderTiny' }, /_class_name.*allowed: AutoencoderKL/],
  ['another activation', { act_fn: 'gelu' }, /act_fn/],
  ['another kind of level', { down_block_types: ['AttnDownEncoderBlock2D'] }, /down_block_types\.0/],
  [
    'groups that do not divide the channels',
    { norm_num_groups: 3 },
    /has 4, which is not a multiple of norm_num_groups 3/,
  ],
])('rejects %s', (_name, change, message) => {
  const json = JSON.parse(readFileSync(join(fixtures, 'two_levels', 'config.json'), 'utf8')) as Record<string, unknown>;
  expect(() => readAutoencoderConfig({ ...json, ...change }, 'there')).toThrow(message);
});
