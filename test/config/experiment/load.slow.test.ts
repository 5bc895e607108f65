import { describe, expect, it, vi } from 'vitest';
import { loadExperiment } from '../../../src/config/experiment/load.js';
import { allCellsDiffer, isWhatItsCellsAre, largeMatrices } from './large.js';
import { experimentLoader, series } from './loader.js';

vi.mock('../../../src/config/jsonnet.js', async (original) => (await import('./evaluations.js')).counted(original));

const load = experimentLoader();

describe('a large matrix', () => {
  it.each(Object.entries(largeMatrices))('of %s is what its cells are', async (_label, matrix) => {
    await isWhatItsCellsAre(load, matrix);
  });

  it('plans 1,000 cells', async () => {
    await allCellsDiffer(load, [10, 10, 10]);
  });

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

  it('reports what is wrong with a cell as a small one does', async () => {
    const axes = `a: { ${series(10, (i) => `seed: ${i}`)} }, b: { ${series(10, (i) => `lr:: if self.seed == 3 then error 'no three' else ${i}`)} }`;
    await expect(load(`{ base: base, axes: { ${axes} } }`)).rejects.toThrow('no three');
    // A combination that no cell has may be as wrong as it likes.
    const { cells } = await load(`{ base: base, axes: { ${axes} }, exclude: [{ a: '3' }] }`);
    expect(cells).toHaveLength(90);
  });
});

describe('axes that set one key', () => {
  const many = (own: (i: number) => string): string =>
    `{ base: base + { seed: 0 }, axes: { a: { ${series(40, own)} }, b: { y: { seed: 99 } } } }`;

  it('are found to clash, though some of their values cannot be evaluated alone', async () => {
    const text = many((i) => (i === 7 ? 'seed: super.seed + 7' : `seed: ${i}`));
    await expect(load(text)).rejects.toThrow("axes 'a' and 'b' set seed differently: a '1' to 1, b 'y' to 99");
  });

  it('are found to clash where one refers to what is below it, and the other does not', async () => {
    await expect(load(many((i) => `seed: super.seed + ${i}`))).rejects.toThrow("axes 'a' and 'b' set seed differently");
  });

  it('are not compared if a value needs another axis, which is reported', async () => {
    const text = `{ base: base, axes: { a: { x: { seed: self.from, k:: 1 }, y: { seed: 1 } }, b: { z: { from:: 3, seed: super.seed } } } }`;
    const { warnings } = await load(text);
    expect(warnings.join()).toContain('were not checked');
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
});
