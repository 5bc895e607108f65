import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import type * as jsonnet from '../../../src/config/jsonnet.js';
import { afterAll, describe, expect, it, vi } from 'vitest';

const evaluations = vi.hoisted(() => ({ count: 0 }));
vi.mock('../../../src/config/jsonnet.js', async (original) => {
  const real = await original<typeof jsonnet>();
  return {
    ...real,
    evaluateSnippet: (request: Parameters<typeof real.evaluateSnippet>[0]) => {
      evaluations.count += 1;
      return real.evaluateSnippet(request);
    },
  };
});
const { loadExperiment } = await import('../../../src/config/experiment/load.js');
const { loadConfig } = await import('../../../src/config/load.js');

const folder = mkdtempSync(join(tmpdir(), 'editrl-matrix-'));
afterAll(() => rmSync(folder, { recursive: true }));

const base = `{
  run_name: std.extVar('APP__RUN_NAME'), task: 'external', num_iterations: 10, launch: { command: ['true'] },
  lr:: 1, parameters: { rate: $.lr, named: 'x__' + $.run_name },
}`;
let files = 0;
function experiment(text: string, others: Record<string, string> = {}): string {
  const here = join(folder, String((files += 1)));
  mkdirSync(here);
  for (const [name, content] of Object.entries(others)) writeFileSync(join(here, name), content);
  const file = join(here, 'exp.jsonnet');
  writeFileSync(file, `local base = ${base};\n${text}`);
  return file;
}
const load = (text: string, others: Record<string, string> = {}) =>
  loadExperiment({ file: experiment(text, others), env: {} });
const names = async (text: string): Promise<string[]> => (await load(text)).cells.map(({ run_name }) => run_name);
const ab = `a: { x: {}, y: { parameters+: { a: 1 } } }, b: { '1': {}, '2': { seed: 2 } }`;

describe('a matrix', () => {
  it('binds names and settings late, in one evaluation', async () => {
    evaluations.count = 0;
    const { cells } = await load(`{ base: base, axes: { lr: { '5': { lr: 5 } } } }`);
    expect(evaluations.count).toBe(1);
    expect(cells[0].config.settings).toMatchObject({
      run_name: 'exp__lr-5',
      parameters: { rate: 5, named: 'x__exp__lr-5' },
    });
    expect(Object.isFrozen(cells[0].config.settings)).toBe(true);
  });

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

  it('samples the same cells for the same seed', async () => {
    const values = Array.from({ length: 40 }, (_, i) => `'${i}': { seed: ${i} }`).join(', ');
    const drawn = (seed: number) =>
      names(`{ base: base, axes: { s: { ${values} } }, sample: 5, sample_seed: ${seed} }`);
    expect(await drawn(1)).toHaveLength(5);
    expect(await drawn(1)).toEqual(await drawn(1));
    expect(await drawn(1)).not.toEqual(await drawn(2));
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
    ['a name', `axes: { a: { 'x y': {} } }`, /value 'x y' cannot be part/],
    ['a long name', `axes: { a: { ${'x'.repeat(96)}: {} } }`, /at most 96/],
    ['equal names', `axes: { a: { '1': {}, '1__b-1': {} }, b: { '1': {}, '1__b-1': {} } }`, /two cells have the name/],
    ['an unknown key', `axes: {}, desing: 'product'`, /desing: unknown key; did you mean design/],
    ['an unknown value', `axes: { ${ab} }, exclude: [{ a: 'z' }]`, /axis 'a' has no value 'z'/],
    ['an unpaired zip', `axes: { ${ab} }, zip: [['a', 'b']]`, /cannot be paired/],
    [
      'invalid cells',
      `axes: { a: { x: { sed: 1 }, y: { sed: 2 }, z: { sed: 3 }, w: { sed: 4 } } }`,
      /4 of 4 runs are not valid[^]*did you mean seed[^]*and 1 more/,
    ],
  ])('refuses %s', async (_, options, message) => {
    await expect(load(`{ base: base, ${options} }`)).rejects.toThrow(message);
  });

  it('takes axes that extend one section, or refer to what is below', async () => {
    const axes = `a: { x: { parameters+: { list+: [1] } } }, b: { y: { parameters+: { list+: [2], rate: super.rate * 3 } } }`;
    const { cells } = await load(`{ base: base { parameters+: { list: [0] } }, axes: { ${axes} } }`);
    expect(cells[0].config.settings).toMatchObject({ parameters: { list: [0, 1, 2], rate: 3 } });
  });

  it('plans 1,000 cells', async () => {
    const values = (n: number, key: string) =>
      Array.from({ length: n }, (_, i) => `'${i}': { parameters+: { ${key}: ${i} } }`).join(', ');
    const { cells } = await load(
      `{ base: base, axes: { a: { ${values(10, 'a')} }, b: { ${values(10, 'b')} }, c: { ${values(10, 'c')} } } }`,
    );
    expect(new Set(cells.map(({ config }) => config.resultHash)).size).toBe(1000);
  });
});

describe('a large matrix', () => {
  const series = (n: number, value: (i: number) => string): string =>
    Array.from({ length: n }, (_, i) => `'${i}': { ${value(i)} }`).join(', ');
  const cases: Record<string, { axes: string; extra?: string; more?: string }> = {
    'axes apart': {
      axes: `a: { ${series(10, (i) => `seed: ${i}`)} }, b: { ${series(10, (i) => `num_iterations: ${i + 1}`)} }`,
    },
    'a section read by another': {
      axes: `a: { ${series(10, (i) => `lr:: ${i}`)} }, b: { ${series(10, (i) => `seed: ${i}`)} }`,
      extra: `{ num_iterations: $.lr + 1 }`,
    },
    'reading by turns': {
      axes: `a: { ${series(10, (i) => `seed: ${i}`)} }, b: { ${series(10, (i) => `lr:: ${i}`)} }`,
      extra: `{ num_iterations: if $.lr > 7 then 1 + $.seed else 3 }`,
    },
    'empty values': {
      axes: `a: { '-': {}, ${series(9, (i) => `lr:: ${i + 2}`)} }, b: { ${series(10, (i) => `seed: ${i}`)} }`,
      extra: `{ num_iterations: 1 + $.lr }`,
    },
    'fields that only some values have': {
      axes: `a: { ${series(9, (i) => `extra:: ${i}`)}, z: {} }, b: { ${series(10, (i) => `seed: ${i}`)} }`,
      extra: `{ num_iterations: if std.objectHasAll($, 'extra') then 5 else 6 }`,
    },
    'what is below': {
      axes: `a: { ${series(10, (i) => `parameters+: { a: super.rate + ${i} }`)} }, b: { ${series(10, (i) => `lr: super.lr + ${i}, base_exp_dir: super.base_exp_dir + '/${i}'`)} }`,
      extra: `{ base_exp_dir: 'x' + $.lr }`,
    },
    'the name': {
      axes: `a: { ${series(10, (i) => `seed: ${i}`)} }, b: { ${series(10, (i) => `num_iterations: ${i + 1}`)} }`,
      extra: `{ base_exp_dir: 'of_' + $.run_name }`,
    },
    overrides: {
      axes: `a: { ${series(10, (i) => `seed: ${i}`)} }, b: { ${series(10, (i) => `lr:: ${i}`)} }`,
      more: `overrides: [{ cell: { a: '3' }, set: { num_iterations: 77 } }],`,
    },
  };
  for (const [label, { axes, extra = '{}', more = '' }] of Object.entries(cases)) {
    it(`of ${label} is what its cells are`, async () => {
      const text = (exclude: string): string =>
        `local extra = ${extra}; { base: base + extra, ${more} axes: { ${axes} }, exclude: [${exclude}] }`;
      const half = (of: readonly number[]): string => of.map((b) => `{ b: '${b}' }`).join(', ');
      evaluations.count = 0;
      const { cells } = await load(text(''));
      expect(cells).toHaveLength(100);
      expect(evaluations.count).toBe(1);
      const [one, other] = await Promise.all([load(text(half([0, 1, 2, 3, 4]))), load(text(half([5, 6, 7, 8, 9])))]);
      const whole = new Map([...one.cells, ...other.cells].map((cell) => [cell.run_name, cell]));
      for (const { run_name, config } of cells) {
        expect(config.settings).toEqual(whole.get(run_name)?.config.settings);
        expect(config.resultHash).toBe(whole.get(run_name)?.config.resultHash);
      }
    });
  }

  it('whose base is an axis is what its cells are', async () => {
    const overlay = { 'more.libsonnet': `{ base_exp_dir: 'of_' + $.lr }` };
    const matrix = (only: string): string =>
      `{ base: 'r', with: ['more.libsonnet'], axes: { r: { one: base, two: base + { lr: 7 } }, b: { ${series(40, (i) => `seed: ${i}`)} } }, exclude: [${only}] }`;
    const { cells } = await load(matrix(''), overlay);
    expect(cells).toHaveLength(80);
    const [one, two] = await Promise.all([
      load(matrix(`{ r: 'two' }`), overlay),
      load(matrix(`{ r: 'one' }`), overlay),
    ]);
    const whole = new Map([...one.cells, ...two.cells].map(({ run_name, config }) => [run_name, config.settings]));
    for (const { run_name, config } of cells) expect(config.settings).toEqual(whole.get(run_name));
    expect(two.cells[0].config.settings.base_exp_dir).toBe('of_7');
  });

  it('says what is wrong with a cell as a small one does', async () => {
    const axes = `a: { ${series(10, (i) => `seed: ${i}`)} }, b: { ${series(10, (i) => `lr:: if self.seed == 3 then error 'no three' else ${i}`)} }`;
    await expect(load(`{ base: base, axes: { ${axes} } }`)).rejects.toThrow('no three');
    // A combination that no cell has may be as wrong as it likes.
    const { cells } = await load(`{ base: base, axes: { ${axes} }, exclude: [{ a: '3' }] }`);
    expect(cells).toHaveLength(90);
  });
});

describe('parents', () => {
  it('are shared, carry the axes that reach them, and take their values', async () => {
    const { cells, parents } = await loadExperiment({ file: 'experiments/earl_table.jsonnet', env: {} });
    expect(cells).toHaveLength(30);
    expect(parents.map(({ run_name }) => run_name).sort()).toEqual(
      ['sft_s', 'sft_sc2stage', 'sft_sc', 'sft_think_s', 'tiny_vq'].flatMap((name) =>
        [1, 2, 3].map((seed) => `${name}__seed-${seed}`),
      ),
    );
    for (const { run_name, config } of parents) expect(config.settings.seed).toBe(Number(run_name.slice(-1)));
    const cell = cells.find(({ run_name }) => run_name === 'earl_table__recipe-sft_sc__rl_c__seed-2');
    expect(cell?.parents).toEqual(['tiny_vq__seed-2', 'sft_sc__seed-2']);
  });

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

  it('with different codes do not share a folder of samples', async () => {
    const [config, tiny] = ['configs/sft_s.jsonnet', 'configs/lib/tiny.libsonnet'].map((path) => resolve(path));
    const axis = (more: string): string =>
      `{ base: (import '${config}') + (import '${tiny}'), share: ['vq'], axes: { vq: { [v]: { environment+: ${more} } for v in ['1', '2'] } } }`;
    await expect(load(axis(`{ engine+: { threads: 1 } }`))).rejects.toThrow(
      /different image tokenizers .* one folder of samples, data\/tiny,/,
    );
    const apart = axis(`{} , data+: { tiny+: { folder: 'tiny_' + v } }`);
    expect((await load(apart)).cells).toHaveLength(2);
  });
});
