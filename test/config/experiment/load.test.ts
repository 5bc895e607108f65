import { resolve } from 'node:path';
import { describe, expect, it } from 'vitest';
import { loadExperiment } from '../../../src/config/experiment/load.js';
import { loadConfig, loadReferenced } from '../../../src/config/load.js';
import { getPath } from '../../../src/core/schema/walk.js';
import { allCellsDiffer } from './large.js';
import { experimentLoader, experimentWriter } from './loader.js';

const load = experimentLoader();
const experimentFile = experimentWriter();
const names = async (text: string): Promise<string[]> => (await load(text)).cells.map(({ run_name }) => run_name);
const ab = `a: { x: {}, y: { parameters+: { a: 1 } } }, b: { '1': {}, '2': { seed: 2 } }`;

describe('a matrix', () => {
  it('names cells alike however axes are written', async () => {
    const one = await names(`{ name: 'n', base: base, axes: { ${ab} } }`);
    expect(one).toEqual(['n__a-x__b-1', 'n__a-x__b-2', 'n__a-y__b-1', 'n__a-y__b-2']);
    const other = `b: { '2': { seed: 2 }, '1': {} }, a: { y: { parameters+: { a: 1 } }, x: {} }`;
    expect(await names(`{ name: 'n', base: base, axes: { ${other} } }`)).toEqual(one);
  });

  it('gives what a config gives', async () => {
    const file = 'configs/sft_s__rl_s.jsonnet';
    const env = { APP__REWARD_FUNCTION_API_BASE: 'http://judge:4877' };
    const config = await loadConfig({ file, env });
    const { cells } = await loadExperiment({ file, env });
    expect(cells[0].config).toEqual(config);
  });

  it.each([
    ['exclude', `exclude: [{ a: 'x' }]`, ['a-y__b-1', 'a-y__b-2']],
    ['exclude and include', `exclude: [{}], include: [{ a: 'x' }]`, ['a-x__b-1', 'a-x__b-2']],
    ['zip', `zip: [{ a: ['x', 'y'], b: ['2', '1'] }]`, ['a-x__b-2', 'a-y__b-1']],
    ['one_factor', `design: 'one_factor', baseline: { a: 'x', b: '1' }`, ['a-x__b-1', 'a-x__b-2', 'a-y__b-1']],
    ['repetitions', `design: 'one_factor', baseline: { a: 'x' }`, ['a-x__b-1', 'a-x__b-2', 'a-y__b-1', 'a-y__b-2']],
  ])('%s', async (_, options, expected) => {
    expect(await names(`{ base: base, axes: { ${ab} }, ${options} }`)).toEqual(expected.map((name) => `exp__${name}`));
  });

  it('leaves one out', async () => {
    const axes = ['a', 'b', 'c'].map((axis) => `${axis}: { off: {}, on: { parameters+: { ${axis}: 1 } } }`).join(', ');
    const found = await load(
      `{ base: base, axes: { ${axes} }, design: 'leave_one_out', baseline: { a: 'off', b: 'off', c: 'off' } }`,
    );
    const ons = found.cells.map(({ axes: cell }) => Object.values(cell).filter((value) => value === 'on').length);
    expect(ons.sort()).toEqual([0, 2, 2, 2, 3]);
  });

  it('overrides some cells and says what differs from the baseline', async () => {
    const { cells } = await load(
      `{ base: base, axes: { ${ab} }, baseline: { a: 'x' }, overrides: [{ cell: { a: 'y', b: '2' }, set: { num_iterations: 7 } }] }`,
    );
    expect(cells[3].config.settings.num_iterations).toBe(7);
    expect(cells[0].differs).toEqual({});
    expect(cells[3].differs).toMatchObject({ num_iterations: 7 });
    expect(cells[3].differs).not.toHaveProperty('seed');
  });

  it.each([
    [
      'a clash',
      `axes: { a: { x: { seed: 1 } }, b: { y: { seed: 2 } } }`,
      /'a' and 'b' set seed differently: a 'x' to 1, b 'y' to 2/,
    ],
    ['a name', `axes: { a: { 'x y': {} } }`, /value 'x y' cannot be part of a run_name; allowed: letters/],
    ['a word', `axes: { a: { toString: {} } }`, /value 'toString' cannot be part of a run_name; it is reserved/],
    ['a long name', `axes: { a: { ${'x'.repeat(96)}: {} } }`, /at most 96/],
    ['equal names', `axes: { a: { '1': {}, '1__b-1': {} }, b: { '1': {}, '1__b-1': {} } }`, /two cells have the name/],
    ['an unknown key', `axes: {}, desing: 'product'`, /desing: unknown key; did you mean design/],
    ['an unknown value', `axes: { ${ab} }, exclude: [{ a: 'z' }]`, /axis 'a' has no value 'z'/],
    [
      'a baseline that names one of zipped axes',
      `axes: { ${ab} }, zip: [{ a: ['x', 'y'], b: ['1', '2'] }], design: 'one_factor', baseline: { a: 'x' }`,
      /baseline: its values of a and b do not go together in zip/,
    ],
    ['an unpaired zip', `axes: { ${ab} }, zip: [['a', 'b']]`, /cannot be paired/],
    [
      'invalid cells',
      `axes: { a: { x: { sed: 1 }, y: { sed: 2 }, z: { sed: 3 }, w: { sed: 4 } } }`,
      /4 of 4 runs are not valid[^]*did you mean seed[^]*and 1 more/,
    ],
  ])('rejects %s', async (_, options, message) => {
    await expect(load(`{ base: base, ${options} }`)).rejects.toThrow(message);
  });

  it('takes axes that extend one section, or refer to what is below', async () => {
    const axes = `a: { x: { parameters+: { list+: [1] } } }, b: { y: { parameters+: { list+: [2], rate: super.rate * 3 } } }`;
    const { cells } = await load(`{ base: base { parameters+: { list: [0] } }, axes: { ${axes} } }`);
    expect(cells[0].config.settings).toMatchObject({ parameters: { list: [0, 1, 2], rate: 3 } });
  });

  it('plans 100 cells', async () => {
    await allCellsDiffer(load, [5, 5, 4]);
  });
});

describe('--set', () => {
  it('reaches every cell, over its axes and beside what cells share', async () => {
    const text = `{ base: base + { launch+: { devices: [] } }, axes: { ${ab} } }`;
    const file = experimentFile(text);
    const sets = ['parameters.a=5', 'launch.env={"A":"1"}', 'num_iterations=20'];
    const [plain, set] = await Promise.all([
      loadExperiment({ file, env: {} }),
      loadExperiment({ file, env: {}, sets }),
    ]);
    for (const [index, { config }] of set.cells.entries()) {
      const { settings } = plain.cells[index].config;
      const parameters = getPath(settings, 'parameters') as object;
      expect(config.sets).toEqual(sets);
      expect(config.settings).toEqual({
        ...settings,
        num_iterations: 20,
        parameters: { ...parameters, a: 5 },
        launch: { ...settings.launch, env: { A: '1' } },
      });
    }
    await expect(loadExperiment({ file, env: {}, sets: ['run_name=x'] })).rejects.toThrow('named after its axes');
    await expect(loadExperiment({ file, env: {}, sets: ['sed=1'] })).rejects.toThrow('did you mean seed?');
  });

  it('is for a config what it is for a run; of it, where runs lie reaches the parents', async () => {
    const [file, overlays] = ['configs/sft_s__rl_s.jsonnet', ['configs/lib/tiny.libsonnet']];
    const sets = ['seed=7', 'base_exp_dir=/elsewhere'];
    const { cells, parents } = await loadExperiment({ file, overlays, sets, env: {} });
    const config = await loadConfig({ file, overlays, sets, env: {} });
    expect(cells[0].config.settings).toEqual(config.settings);
    const reference = { run: 'sft_s', config: 'sft_s.jsonnet' };
    const made = await loadReferenced(config, reference, {});
    const planned = parents.find(({ run_name }) => run_name === 'sft_s')?.config;
    for (const settings of [made.settings, planned?.settings]) {
      expect(settings).toMatchObject({ seed: 42, base_exp_dir: '/elsewhere' });
    }
    expect((await loadReferenced(made, { run: 'tiny_vq', config: 'tiny_vq.jsonnet' }, {})).settings).toMatchObject({
      base_exp_dir: '/elsewhere',
    });
    const moved = { ...config, settings: { ...config.settings, base_exp_dir: '/now/here' } };
    expect((await loadReferenced(moved, reference, {})).settings.base_exp_dir).toBe('/now/here');
    const without = await loadReferenced({ ...config, sets: ['seed=7'] }, reference, {});
    expect(without.settings.base_exp_dir).toBe('runs/tiny');
  });
});

describe('parents', () => {
  it('are those of reward terms too, with the axes that reach them', async () => {
    const [config, tiny] = ['configs/sft_s__rl_s.jsonnet', 'configs/lib/tiny.libsonnet'].map((path) => resolve(path));
    const terms = `[{ name: 'viescore', weight: 0.5 }, { name: 'clip', weight: 0.5, model: { run: 'my_clip', config: 'tiny_vq.jsonnet' } }]`;
    const { cells, parents } = await load(
      `{ base: (import '${config}') + (import '${tiny}') + { reward+: { terms: ${terms} } }, share: ['seed'], axes: { seed: { '1': { seed: 1 } } } }`,
    );
    expect(cells[0].parents).toContain('my_clip__seed-1');
    expect(parents.map(({ run_name }) => run_name)).toContain('my_clip__seed-1');
    expect(cells[0].config.settings).toMatchObject({
      reward: { terms: [{}, { model: { run: 'my_clip__seed-1' } }] },
    });
  });
});

describe('a measure', () => {
  const tiny = (more: string): string =>
    `{ name: 'm', base: (import '${resolve('configs/sft_s__rl_s.jsonnet')}') + (import '${resolve('configs/lib/tiny.libsonnet')}'),
       axes: { reward: { viescore: { reward+: { mode: 'viescore' } }, ground: { reward+: { mode: 'ground_score' } } } }, ${more} }`;

  it('is that of every cell, with its fields, and of no parent; it decides no result', async () => {
    const [plain, measured] = [await load(tiny('')), await load(tiny("measure: 'viescore'"))];
    expect(measured.measure).toEqual([{ name: 'viescore' }]);
    expect(plain.measure).toEqual([]);
    for (const [i, { config }] of measured.cells.entries()) {
      expect(getPath(config.settings, 'validation.measure')).toEqual([{ name: 'viescore' }]);
      expect(config.resultHash).toBe(plain.cells[i].config.resultHash);
    }
    for (const { config } of measured.parents) expect(getPath(config.settings, 'validation.measure') ?? []).toEqual([]);
    const several = await load(tiny("measure: ['viescore', { name: 'image_similarity', to: 'truth' }]"));
    expect(several.measure).toMatchObject([{ name: 'viescore' }, { name: 'image_similarity', to: 'truth' }]);
  });

  it('has the fields of the term of its name that the cells are trained on, if that is the same in all of them', async () => {
    const cell = (to: string): string =>
      `{ reward+: { mode: null, terms: [{ name: 'image_similarity', to: '${to}', weight: 1 }] } }`;
    const trained = (other: string): ReturnType<typeof load> =>
      load(`{ name: 'm', base: (import '${resolve('configs/sft_s__rl_s.jsonnet')}') + (import '${resolve('configs/lib/tiny.libsonnet')}'),
        axes: { on: { a: ${cell('truth')}, b: ${other} } }, measure: 'image_similarity' }`);
    expect((await trained(cell('truth'))).measure).toMatchObject([{ name: 'image_similarity', to: 'truth' }]);
    await expect(trained(cell('source'))).rejects.toThrow(/^measure: .*different fields/);
    await expect(trained('{ reward+: { mode: "viescore" } }')).rejects.toThrow(/different fields/);
  });

  it.each([
    ["measure: 'beauty'", 'measure.0.name: found "beauty"'],
    ["measure: 'format_accuracy'", "'format_accuracy' compares with a labeled answer in words"],
    ["measure: ['viescore', 'viescore']", "found 'viescore' again"],
  ])('%s is rejected', async (more, message) => {
    await expect(load(tiny(more))).rejects.toThrow(message);
  });

  it('leaves a wrong value in place of the section to be reported', async () => {
    const base = `(import '${resolve('configs/text_start.jsonnet')}') + (import '${resolve('configs/lib/text_tiny.libsonnet')}') + { validation: 5 }`;
    await expect(load(`{ name: 'm', base: ${base}, measure: 'word_overlap' }`)).rejects.toThrow(
      'validation: found 5; allowed: an object',
    );
  });

  it('is rejected if nothing scores answers, and where words are asked about images', async () => {
    await expect(load(`{ base: base, axes: { ${ab} }, measure: 'viescore' }`)).rejects.toThrow(
      "found with cells of task 'external', which has no answers to score",
    );
    await expect(
      loadConfig({
        file: 'configs/text_plain.jsonnet',
        overlays: ['configs/lib/tiny.libsonnet'],
        sets: ['validation.measure=viescore'],
      }),
    ).rejects.toThrow(
      "validation.measure: 'viescore' reads an image, but the answers of task 'text_answers' are words",
    );
  });
});
