import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { must } from '../../../../src/core/errors.js';
import { readSafetensors, readSafetensorsIndex } from '../../../../src/core/safetensors.js';
import { Session } from '../../../../src/compute/onnx/session.js';
import { Graph } from '../../../../src/compute/graph/ir.js';
import type { FlowTransformerConfig } from '../../../../src/compute/nets/flow/config.js';
import { openFlowTransformer } from '../../../../src/models/networks/flow.js';
import { flowInputs, velocity } from '../../../../src/compute/nets/flow/transformer.js';

const folder = fileURLToPath(new URL('./fixtures/flux', import.meta.url));
const GRID = { batch: 2, rows: 3, columns: 4, textTokens: 5 };

it('leads to a predicted sample by (x - x0) / sigma, and by no level of noise below 0.05', async () => {
  const { config, weights } = openFlowTransformer(folder);
  const file = join(folder, 'expected.safetensors');
  const given = readSafetensors(file, [...readSafetensorsIndex(file).entries.keys()]);
  const sigma = Float32Array.of(0.01, 0.4);
  const run = async (of: FlowTransformerConfig): Promise<{ out: Float32Array; hidden: Float32Array }> => {
    const graph = new Graph('flow');
    const session = await Session.compile(graph, { out: velocity(graph, of, GRID, flowInputs(graph, of, GRID)) });
    const feeds = Object.fromEntries(
      graph.inputs.map(({ name }) => [name, name === 'sigma' ? sigma : must(given.get(name), name).data]),
    );
    const { out } = await session.run(feeds, weights);
    await session.dispose();
    return { out: (out as Float32Array).slice(), hidden: must(given.get('hidden'), 'hidden').data };
  };
  const { out: clean } = await run(config);
  const { out, hidden } = await run({ ...config, prediction: 'sample' });
  const tokens = GRID.rows * GRID.columns;
  const [wide, narrow] = [hidden, out].map(({ length }) => length / (GRID.batch * tokens));
  out.forEach((v, i) => {
    const token = Math.floor(i / narrow);
    // The first channels of the input are the sample's.
    const x = hidden[token * wide + (i % narrow)];
    expect(v).toBeCloseTo((x - clean[i]) / [0.05, 0.4][Math.floor(token / tokens)], 3);
  });
});
