import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { must } from '../../../../src/core/errors.js';
import { readSafetensors, readSafetensorsIndex } from '../../../../src/core/safetensors.js';
import { Graph } from '../../../../src/compute/graph/ir.js';
import { openFlowTransformer } from '../../../../src/models/networks/flow.js';
import { POSITION_TABLE } from '../../../../src/compute/nets/flow/config.js';
import {
  flowInputs,
  flowLinearLayers,
  flowParameters,
  initFlowTransformer,
  velocity,
} from '../../../../src/compute/nets/flow/transformer.js';
import { trainedPart } from '../../../../src/train/policies/flow/load.js';

const folder = fileURLToPath(new URL('./fixtures/sd3_medium', import.meta.url));
const { config, weights } = openFlowTransformer(folder);
const GRID = { batch: 1, rows: 2, columns: 2, textTokens: 3 };

it('begins the table of positions as diffusers does', () => {
  const begun = must(initFlowTransformer(config, 0, (name) => name === POSITION_TABLE).get(POSITION_TABLE), 'a table');
  const stored = must(weights.get(POSITION_TABLE), 'a table');
  expect(begun.shape).toEqual(stored.shape);
  const worst = begun.data.reduce((most, x, i) => Math.max(most, Math.abs(x - stored.data[i])), 0);
  expect(worst).toBeLessThan(1e-6);
});

it('trains all but that table', () => {
  const trained = trainedPart({ weights, trains: 'all' });
  expect([...weights.keys()].filter((name) => !trained.has(name))).toEqual([POSITION_TABLE]);
});

it('has the tensors that diffusers stores, and LoRA beside its linear layers', () => {
  const stored = readSafetensorsIndex(join(folder, 'diffusion_pytorch_model.safetensors')).entries;
  expect([...flowParameters(config).keys()].sort()).toEqual([...stored.keys()].sort());
  const file = join(folder, 'diffusion_pytorch_model.safetensors');
  const matrices = [...readSafetensors(file, [...stored.keys()])].filter(([, { shape }]) => shape.length === 2);
  expect([...flowLinearLayers(config)].sort()).toEqual(matrices.map(([name]) => name).sort());
});

it('rejects an image that is larger than its table, and a second one', () => {
  const draw = (shape: Parameters<typeof velocity>[2]): unknown => {
    const graph = new Graph('flow');
    return velocity(graph, config, shape, flowInputs(graph, config, shape));
  };
  expect(() => draw({ ...GRID, columns: 8 })).toThrow("larger than the model's 7 x 7 positions");
  expect(() => draw({ ...GRID, hasSecond: true })).toThrow('for which the model has no positions');
});
