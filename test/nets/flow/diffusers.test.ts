/** Models that diffusers saved; scripts/fixtures/flow.py makes them and what they are compared with. */
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { must } from '../../../src/core/errors.js';
import { readSafetensors, readSafetensorsIndex } from '../../../src/core/safetensors.js';
import { Session } from '../../../src/engines/onnx/session.js';
import { mul, sumAll } from '../../../src/graph/build.js';
import { gradients } from '../../../src/graph/differentiate.js';
import { Graph } from '../../../src/graph/ir.js';
import { checkFlowTransformer, openFlowTransformer } from '../../../src/nets/flow/files.js';
import { POSITION_TABLE } from '../../../src/nets/flow/names.js';
import { flowInputs, velocity } from '../../../src/nets/flow/transformer.js';

const fixtures = fileURLToPath(new URL('./fixtures', import.meta.url));
const GRID = { batch: 2, rows: 3, columns: 4, textTokens: 5 };
const GRADIENT = 'gradient:';

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

describe.each(['flux', 'flux_guidance', 'flux_ip_adapter', 'flux_joint', 'qwen_image', 'sd3', 'sd3_medium'])(
  'a model that diffusers saved: %s',
  (name) => {
    const folder = join(fixtures, name);

    it('has the velocity of diffusers to 1e-5 and its gradients to 1e-4 of the largest', async () => {
      const { config, weights } = openFlowTransformer(folder);
      const file = join(folder, 'expected.safetensors');
      const expected = readSafetensors(file, [...readSafetensorsIndex(file).entries.keys()]);
      const of = (tensor: string): Float32Array => must(expected.get(tensor), tensor).data;
      const graph = new Graph('flow');
      const out = velocity(graph, config, GRID, flowInputs(graph, config, GRID));
      const loss = sumAll(mul(out, graph.constant(of('projection'), out.shape)));
      // The table of positions is no parameter in torch.
      const parameters = [...graph.parameters.keys()].filter((parameter) => parameter !== POSITION_TABLE);
      const slopes = gradients(
        loss,
        parameters.map((parameter) => must(graph.parameters.get(parameter), parameter)),
      );
      const session = await Session.compile(graph, {
        out,
        ...Object.fromEntries(parameters.map((parameter, i) => [`${GRADIENT}${parameter}`, slopes[i]])),
      });
      const found = await session.run(
        Object.fromEntries(graph.inputs.map((input) => [input.name, of(input.name)])),
        weights,
      );
      await session.dispose();
      expect(worst(found['out'] as Float32Array, of('output'))).toBeLessThan(1e-5);
      const known = [...expected.keys()].filter((tensor) => tensor.startsWith(GRADIENT));
      // What torch has no gradient for, no parameter of the graph is either; a few of its gradients are zero.
      const read = new Set(parameters.map((parameter) => `${GRADIENT}${parameter}`));
      expect([...read].filter((tensor) => !known.includes(tensor))).toEqual([]);
      for (const tensor of known) {
        if (read.has(tensor)) expect(worst(found[tensor] as Float32Array, of(tensor)), tensor).toBeLessThan(1e-4);
        else {
          expect(
            of(tensor).every((x) => x === 0),
            tensor,
          ).toBe(true);
        }
      }
    });

    it('is described without reading its weights', () => {
      expect(checkFlowTransformer(folder)).toEqual(openFlowTransformer(folder).config);
    });
  },
);

describe.each(['flux', 'qwen_image'])('a second picture beside the first: %s', (name) => {
  it('is looked at as by diffusers', async () => {
    const folder = join(fixtures, name);
    const { config, weights } = openFlowTransformer(folder);
    const read = (file: string) => {
      const path = join(folder, file);
      return readSafetensors(path, [...readSafetensorsIndex(path).entries.keys()]);
    };
    const [inputs, expected] = [read('expected.safetensors'), read('expected_second.safetensors')];
    const graph = new Graph('second');
    const shape = { ...GRID, hasSecond: true };
    const session = await Session.compile(graph, {
      out: velocity(graph, config, shape, flowInputs(graph, config, shape)),
    });
    const feeds = graph.inputs.map(({ name: input }) => {
      const from = input === 'second' ? expected : inputs;
      return [input, must(from.get(input), input).data] as const;
    });
    const { out } = await session.run(Object.fromEntries(feeds), weights);
    await session.dispose();
    expect(worst(out as Float32Array, must(expected.get('output'), 'output').data)).toBeLessThan(1e-5);
  });
});
