/**
 * A transformer that scripts/export_edit_transformer wrote, made by
 *
 *   scripts/export_edit_transformer test/nets/flow/fixtures/qwen_image test/policies/flow/fixtures/exported_edit
 *
 * and one of qwen_clean in the same way.
 */
import { cpSync, mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import { must } from '../../../src/core/errors.js';
import { toPlanes, type Planes } from '../../../src/core/planes.js';
import { RandomStream } from '../../../src/core/random.js';
import { readSafetensors, readSafetensorsIndex } from '../../../src/core/safetensors.js';
import { pixelCodec } from '../../../src/environments/picture_codec.js';
import { FlowEditor, type Edit } from '../../../src/policies/flow/editor.js';
import { openExportedFlow } from '../../../src/policies/flow/exported.js';
import { checkFrozenFlow, loadFlow, openFlowModel, openFrozenFlow } from '../../../src/policies/flow/load.js';
import type { FlowRow } from '../../../src/policies/flow/rows.js';
import { FlowSampler } from '../../../src/policies/flow/sampler.js';

const saved = join(import.meta.dirname, '..', '..', 'nets', 'flow', 'fixtures', 'qwen_image');
const exported = join(import.meta.dirname, 'fixtures', 'exported_edit');
const session = { threads: 1 };
const [CHANNELS, WIDTH, ROWS, COLUMNS] = [12, 10, 3, 4];
const open: { dispose(): Promise<void> }[] = [];
const root = mkdtempSync(join(tmpdir(), 'editrl-exported-'));

afterAll(async () => {
  await Promise.all(open.map((one) => one.dispose()));
  rmSync(root, { recursive: true });
});

/** The largest difference, of the largest number that is expected. */
function worst(found: ArrayLike<number>, expected: ArrayLike<number>): number {
  expect(found.length).toBe(expected.length);
  const all = Array.from(expected);
  return Math.max(...all.map((x, i) => Math.abs(x - found[i]))) / Math.max(...all.map(Math.abs));
}

function sampler(folder: string): { readonly velocities: (rows: readonly FlowRow[]) => Promise<Float32Array[]> } {
  const model = openFrozenFlow(folder, session);
  const made = new FlowSampler({ ...model, batch: 2, session });
  open.push(made);
  return { velocities: (rows) => made.velocities(rows, null, model.weights) };
}

/** A noisy picture beside one that is seen, or none, and a text whose last tokens are padding. */
function row(seed: number, seen: boolean, textTokens: number, said?: number): FlowRow {
  const stream = new RandomStream('exported', seed);
  const numbers = (length: number): Float32Array => Float32Array.from({ length }, () => stream.normal());
  const latents = ROWS * COLUMNS * CHANNELS;
  const condition = {
    rows: ROWS,
    columns: COLUMNS,
    text: numbers(textTokens * WIDTH),
    ...(said === undefined ? {} : { textTokens: said }),
    pooled: null,
    imageFeatures: null,
    context: new Float32Array(0),
    ...(seen ? { kept: { shown: numbers(latents), painted: new Float32Array(latents).fill(1) } } : {}),
  };
  return { condition, sigma: 0.1 + 0.8 * stream.uniform(), x: numbers(latents) };
}

const FURTHER = [
  { rows: 5, columns: 2 },
  { rows: 2, columns: 7 },
];

const SIDE = 8;

function edit(seed: number, tokens: number): Edit {
  const stream = new RandomStream('edit', seed);
  const picture: Planes = toPlanes({
    width: SIDE,
    height: SIDE,
    data: Uint8Array.from({ length: SIDE * SIDE * 3 }, () => stream.integer(256)),
  });
  const states = Float32Array.from({ length: tokens * WIDTH }, () => stream.normal());
  return {
    source: picture,
    states: { width: WIDTH, states, ids: new Int32Array(tokens) },
    random: new RandomStream('noise', seed),
  };
}

function editor(folder: string): FlowEditor {
  const made = FlowEditor.open(folder, pixelCodec, { type: 'qwen', steps: 4, guidance: null, batch: 2, session });
  open.push(made);
  return made;
}

describe('a transformer that was exported', () => {
  it.each([
    ['with a second picture and padding', true, [5, 3]],
    ['with a second picture', true, []],
    ['with padding alone', false, [4]],
    ['of one picture', false, []],
  ])('has the velocity of its weights to 1e-4, %s', async (_, seen, said) => {
    const rows = [0, 1, 2].map((seed) => row(seed, seen, 6, said[seed % 2] ?? said[0]));
    const [own, other] = [await sampler(saved).velocities(rows), await sampler(exported).velocities(rows)];
    rows.forEach((_row, i) => expect(worst(other[i], own[i])).toBeLessThan(1e-4));
    expect(own[0]).not.toEqual(own[1]);
  });

  it.each([
    ['one noise level for all tokens', 'qwen_image', 'exported_edit', 'second', []],
    ['none for the second picture', 'qwen_clean', 'exported_clean', 'second', []],
    ['further pictures of other sizes', 'qwen_image', 'exported_edit', 'several', FURTHER],
    ['no noise in further pictures', 'qwen_clean', 'exported_clean', 'several', FURTHER],
  ])('has that of diffusers to 1e-4, with %s', async (_, weights, graph, shown, further) => {
    const read = (file: string) => {
      const path = join(saved, '..', weights, file);
      return readSafetensors(path, [...readSafetensorsIndex(path).entries.keys()]);
    };
    const [given, beside] = [read('expected.safetensors'), read(`expected_${shown}.safetensors`)];
    const of = (from: typeof given, name: string): Float32Array => must(from.get(name), name).data;
    const { file } = openExportedFlow(join(exported, '..', graph), session);
    open.push(must(file, 'a graph'));
    const feeds = {
      hidden: of(given, 'hidden'),
      second: of(beside, 'second'),
      text: of(given, 'text'),
      sigma: of(given, 'sigma'),
    };
    const shape = { batch: 2, rows: ROWS, columns: COLUMNS, textTokens: 5, hasSecond: true, further };
    const found = await must(file, 'a graph').velocity(feeds, shape);
    expect(worst(found, of(beside, 'output'))).toBeLessThan(1e-4);
    // Without these pictures it is another one.
    const alone = await must(file, 'a graph').velocity(feeds, { ...shape, hasSecond: false, further: [] });
    expect(worst(alone, of(given, 'output'))).toBeLessThan(1e-4);
  });

  it('draws the pictures of its weights to half a step, whatever else is drawn', async () => {
    const edits = () => [edit(1, 5), edit(2, 21), edit(3, 5)];
    const [own, other] = [await editor(saved).draw(edits()), await editor(exported).draw(edits())];
    own.forEach((picture, i) => {
      const steps = picture.data.map((x, at) => 127.5 * Math.abs(x - other[i].data[at]));
      expect(Math.max(...steps)).toBeLessThan(0.5);
    });
    expect((await editor(exported).draw([edit(3, 5)]))[0].data).toEqual(other[2].data);
  });

  it('cannot be trained', () => {
    expect(() => openFlowModel(exported)).toThrow('was exported: it draws, and nothing of it can be trained');
    const training = { trains: 'lora', lora: null, imagePrompt: null, seed: 1 } as const;
    expect(() => loadFlow(exported, training)).toThrow('nothing of it can be trained');
    checkFrozenFlow(exported, null);
  });
});

describe('an export that is none', () => {
  const folder = join(root, 'export');
  beforeEach(() => {
    rmSync(folder, { recursive: true, force: true });
    cpSync(exported, folder, { recursive: true });
  });

  const config = (changes: object): void => {
    const json = JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8')) as object;
    writeFileSync(join(folder, 'config.json'), JSON.stringify({ ...json, ...changes }));
  };
  /** What the graph gives for a picture of one token in the config's own widths. */
  const asked = async (): Promise<unknown> => {
    const { config: says, file } = openExportedFlow(folder, session);
    const graph = must(file, 'a graph');
    open.push(graph);
    const feeds = {
      hidden: new Float32Array(says.in_channels),
      text: new Float32Array(says.joint_attention_dim),
      sigma: new Float32Array(1),
    };
    return graph.velocity(feeds, { batch: 1, rows: 1, columns: 1, textTokens: 1 });
  };

  it.each(['model.onnx', 'model.onnx.data'])('lacks %s', (file) => {
    rmSync(join(folder, file));
    expect(() => openFrozenFlow(folder, session)).toThrow(`the exported transformer lacks ${file}`);
    expect(() => checkFrozenFlow(folder, null)).toThrow(`the exported transformer lacks ${file}`);
  });

  it('is of another class', () => {
    config({ _class_name: 'FluxTransformer2DModel', patch_size: 1 });
    expect(() => openFrozenFlow(folder, session)).toThrow(
      'only plain transformers of the class QwenImageTransformer2DModel are exported',
    );
  });

  it('says other widths than its graph has', async () => {
    config({ joint_attention_dim: 11, in_channels: 9 });
    await expect(asked()).rejects.toThrow(
      'hidden is 12 wide, and by config.json 9; second is 12 wide, and by config.json 9; text is 10 wide, and by config.json 11',
    );
  });

  it('gives tokens of another width than it says', async () => {
    config({ out_channels: 1 });
    await expect(asked()).rejects.toThrow('velocity has the shape [1, 1, 12], and by config.json [1, 1, 4]');
  });

  it('takes other inputs', async () => {
    cpSync(
      join(import.meta.dirname, '..', '..', 'environments', 'flow_parts', 'image', 'model.onnx'),
      join(folder, 'model.onnx'),
    );
    await expect(asked()).rejects.toThrow(
      'it takes pixels; expected: hidden, second, text, text_padding, sigma, cos, sin',
    );
  });

  it('has an operator that this runtime has not', async () => {
    const graph = readFileSync(join(folder, 'model.onnx')).toString('latin1').replaceAll('Softmax', 'Softmix');
    writeFileSync(join(folder, 'model.onnx'), graph, 'latin1');
    await expect(asked()).rejects.toThrow(/provider cpu cannot open this model: .*Softmix/);
  });

  it('ends early', async () => {
    truncateSync(join(folder, 'model.onnx.data'), 1000);
    await expect(asked()).rejects.toThrow(/provider cpu cannot open this model: .*External initializer/);
  });
});
