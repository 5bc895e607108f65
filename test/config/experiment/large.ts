/** Large matrices, and what they must come to. */
import { expect } from 'vitest';
import { evaluations } from './evaluations.js';
import { series, type LoadText } from './loader.js';

/** A matrix of ten times ten cells. */
export interface LargeMatrix {
  readonly axes: string;
  /** What is merged over the base. */
  readonly extra?: string;
  /** Further keys of the experiment. */
  readonly more?: string;
}

export const largeMatrices = {
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
  'a section that the first value does not set': {
    axes: `a: { '-': {}, ${series(9, (i) => `seed: ${i}`)} }, b: { ${series(10, (i) => `num_iterations: ${i + 1}`)} }`,
  },
  'a section that some values hide': {
    axes: `a: { '-': {}, ${series(9, (i) => `seed:: ${i}`)} }, b: { ${series(10, (i) => `num_iterations: ${i + 1}`)} }`,
    extra: `{ seed: 5 }`,
  },
  overrides: {
    axes: `a: { ${series(10, (i) => `seed: ${i}`)} }, b: { ${series(10, (i) => `lr:: ${i}`)} }`,
    more: `overrides: [{ cell: { a: '3' }, set: { num_iterations: 77 } }],`,
  },
} satisfies Record<string, LargeMatrix>;

/** The whole, evaluated once, gives the cells that its two halves give. Only where evaluations are counted. */
export async function isWhatItsCellsAre(load: LoadText, { axes, extra = '{}', more = '' }: LargeMatrix): Promise<void> {
  const text = (exclude: string): string =>
    `local extra = ${extra}; { base: base + extra, ${more} axes: { ${axes} }, exclude: [${exclude}] }`;
  const half = (of: readonly number[]): string => of.map((b) => `{ b: '${b}' }`).join(', ');
  evaluations.count = 0;
  const { cells } = await load(text(''));
  expect(cells).toHaveLength(100);
  expect(evaluations.count).toBeLessThanOrEqual(3);
  const [one, other] = await Promise.all([load(text(half([0, 1, 2, 3, 4]))), load(text(half([5, 6, 7, 8, 9])))]);
  const whole = new Map([...one.cells, ...other.cells].map((cell) => [cell.run_name, cell]));
  for (const { run_name, config } of cells) {
    expect(config.settings).toEqual(whole.get(run_name)?.config.settings);
    expect(config.resultHash).toBe(whole.get(run_name)?.config.resultHash);
  }
}

/** Three axes of these sizes, each with a parameter of its own. */
export async function allCellsDiffer(load: LoadText, sizes: readonly [number, number, number]): Promise<void> {
  const axes = ['a', 'b', 'c'].map(
    (key, i) => `${key}: { ${series(sizes[i], (n) => `parameters+: { ${key}: ${n} }`)} }`,
  );
  const { cells } = await load(`{ base: base, axes: { ${axes.join(', ')} } }`);
  expect(new Set(cells.map(({ config }) => config.resultHash)).size).toBe(sizes[0] * sizes[1] * sizes[2]);
}
