/** Models that diffusers saved; test/fixture_scripts/flow.py makes them and what they are compared with. */
import { cpSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { must } from '../../../../src/core/errors.js';
import {
  encodeSafetensors,
  readSafetensors,
  readSafetensorsIndex,
  type FloatTensor,
} from '../../../../src/core/safetensors.js';
import { Session } from '../../../../src/compute/onnx/session.js';
import { mul, sumAll } from '../../../../src/compute/graph/build.js';
import { gradients } from '../../../../src/compute/graph/differentiate.js';
import { Graph, type Value } from '../../../../src/compute/graph/ir.js';
import { checkFlowTransformer, openFlowTransformer } from '../../../../src/models/networks/flow.js';
import { POSITION_TABLE } from '../../../../src/compute/nets/flow/config.js';
import { flowInputs, velocity } from '../../../../src/compute/nets/flow/transformer.js';
import { testFolders } from '../../../support/folder.js';

const newFolder = testFolders('flow-diffusers');
const fixtures = fileURLToPath(new URL('./fixtures', import.meta.url));
const GRID = { batch: 2, rows: 3, columns: 4, textTokens: 5 };
const GRADIENT = 'gradient:';

const readAll = (file: string): ReadonlyMap<string, FloatTensor> =>
  readSafetensors(file, [...readSafetensorsIndex(file).entries.keys()]);

/** What a graph computes besides the velocity: gradients of a sum of it, times `projection`, by the names that fixtures have them under. */
function slopesOf(graph: Graph, out: Value, projection: Float32Array): Map<string, Value> {
  const loss = sumAll(mul(out, graph.constant(projection, out.shape)));
  // The table of positions is no parameter in torch.
  const parameters = [...graph.parameters.keys()].filter((parameter) => parameter !== POSITION_TABLE);
  const slopes = gradients(
    loss,
    parameters.map((parameter) => must(graph.parameters.get(parameter), parameter)),
  );
  return new Map(parameters.map((parameter, i) => [`${GRADIENT}${parameter}`, slopes[i]]));
}

/** Angles of up to 1000 are rounded to 6e-5 before the sinusoids that the first layer over noise levels reads. */
const toleranceOf = (tensor: string): number => (/(timestep|guidance)_embedder\.linear_1/.test(tensor) ? 1e-4 : 2e-5);

/** Compares gradients with torch's. */
function expectSlopes(found: Readonly<Record<string, unknown>>, expected: ReadonlyMap<string, FloatTensor>): void {
  const known = [...expected.keys()].filter((tensor) => tensor.startsWith(GRADIENT));
  // What torch has no gradient for, no parameter of the graph is either; a few of its gradients are zero.
  const read = new Set(Object.keys(found).filter((tensor) => tensor.startsWith(GRADIENT)));
  expect([...read].filter((tensor) => !known.includes(tensor))).toEqual([]);
  for (const tensor of known) {
    const wanted = must(expected.get(tensor), tensor).data;
    if (read.has(tensor)) {
      expect(worst(found[tensor] as Float32Array, wanted), tensor).toBeLessThan(toleranceOf(tensor));
    } else {
      expect(
        wanted.every((x) => x === 0),
        tensor,
      ).toBe(true);
    }
  }
}

/** The largest difference, of the largest number that is expected; that counts as 0.1 at least, since some gradients are zero but for rounding. */
function worst(found: ArrayLike<number>, expected: ArrayLike<number>): number {
  expect(found.length).toBe(expected.length);
  let [difference, largest] = [0, 0.1];
  for (let i = 0; i < expected.length; i++) {
    difference = Math.max(difference, Math.abs(found[i] - expected[i]));
    largest = Math.max(largest, Math.abs(expected[i]));
  }
  return difference / largest;
}

describe.each([
  'flux',
  'flux_guidance',
  'flux_ip_adapter',
  'flux_joint',
  'qwen_image',
  'qwen_clean',
  'sd3',
  'sd3_medium',
  'flux2',
  'flux2_guidance',
  'flux2_joint',
])('a model that diffusers saved: %s', (name) => {
  const folder = join(fixtures, name);

  it('has the velocity of diffusers to 5e-6 and its gradients to 2e-5 of the largest', async () => {
    const { config, weights } = openFlowTransformer(folder);
    const expected = readAll(join(folder, 'expected.safetensors'));
    const of = (tensor: string): Float32Array => must(expected.get(tensor), tensor).data;
    const graph = new Graph('flow');
    const out = velocity(graph, config, GRID, flowInputs(graph, config, GRID));
    const session = await Session.compile(graph, {
      out,
      ...Object.fromEntries(slopesOf(graph, out, of('projection'))),
    });
    const found = await session.run(
      Object.fromEntries(graph.inputs.map((input) => [input.name, of(input.name)])),
      weights,
    );
    await session.dispose();
    expect(worst(found['out'] as Float32Array, of('output'))).toBeLessThan(5e-6);
    expectSlopes(found, expected);
  });

  it('is described without reading its weights', () => {
    expect(checkFlowTransformer(folder)).toEqual(openFlowTransformer(folder).config);
  });
});

const SECOND = { ...GRID, hasSecond: true };
const SEVERAL = {
  ...SECOND,
  further: [
    { rows: 5, columns: 2 },
    { rows: 2, columns: 7 },
  ],
};

describe.each([
  ['a second picture beside the first', 'flux', 'second', SECOND],
  ['a second picture beside the first', 'qwen_image', 'second', SECOND],
  ['a second picture beside the first', 'qwen_clean', 'second', SECOND],
  ['a second picture beside the first', 'flux2', 'second', SECOND],
  ['three pictures of several sizes beside the first', 'qwen_image', 'several', SEVERAL],
  ['three pictures of several sizes beside the first', 'flux2', 'several', SEVERAL],
  ['three pictures of several sizes beside the first', 'qwen_clean', 'several', SEVERAL],
])('%s: %s', (_, name, what, shape) => {
  it('equals the result of diffusers', async () => {
    const folder = join(fixtures, name);
    const { config, weights } = openFlowTransformer(folder);
    const [inputs, expected] = [
      readAll(join(folder, 'expected.safetensors')),
      readAll(join(folder, `expected_${what}.safetensors`)),
    ];
    const graph = new Graph('second');
    const out = velocity(graph, config, shape, flowInputs(graph, config, shape));
    // Gradients are compared for models that are trained with several pictures.
    const compares = [...expected.keys()].some((tensor) => tensor.startsWith(GRADIENT));
    expect(compares).toBe(name === 'qwen_clean' || name === 'flux2');
    const slopes = compares ? slopesOf(graph, out, must(inputs.get('projection'), 'projection').data) : [];
    const session = await Session.compile(graph, { out, ...Object.fromEntries(slopes) });
    const feeds = graph.inputs.map(({ name: input }) => {
      const from = input === 'second' ? expected : inputs;
      return [input, must(from.get(input), input).data] as const;
    });
    const found = await session.run(Object.fromEntries(feeds), weights);
    await session.dispose();
    if (compares) expectSlopes(found, expected);
    expect(worst(found['out'] as Float32Array, must(expected.get('output'), 'output').data)).toBeLessThan(5e-6);
  });
});

it('rejects tensors of FLUX.2 that it does not read', () => {
  const folder = newFolder();
  const from = join(fixtures, 'flux2');
  cpSync(join(from, 'config.json'), join(folder, 'config.json'));
  const file = 'diffusion_pytorch_model.safetensors';
  const bias = { shape: [24], data: new Float32Array(24) };
  writeFileSync(
    join(folder, file),
    encodeSafetensors(new Map([...readAll(join(from, file)), ['x_embedder.bias', bias]])),
  );
  expect(() => openFlowTransformer(folder)).toThrow('unused tensors: x_embedder.bias');
});

it('rejects more images than a model takes', () => {
  const { config } = openFlowTransformer(join(fixtures, 'flux'));
  const graph = new Graph('several');
  expect(() => velocity(graph, config, SEVERAL, flowInputs(graph, config, SEVERAL))).toThrow(
    '3 reference images, but the model takes only one',
  );
});
