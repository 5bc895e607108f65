import { describe, expect, it } from 'vitest';
import type { Outcome } from '../../src/rewards/score/types.js';
import { perTermAdvantages } from '../../src/train/advantages.js';
import {
  cellAdvantages,
  creditByRegion,
  creditRecord,
  regionOf,
  type CreditSettings,
  type DrawnCells,
} from '../../src/train/credit.js';

/** Cells of a picture, by rows of text in which # has changed, drawn after one word and each row followed by one action without a cell. */
function cells(...rows: readonly string[]): DrawnCells {
  const [height, width] = [rows.length, rows[0].length];
  const drawn = rows.flatMap((_, y) => [...Array.from({ length: width }, (_, x) => y * width + x), -1]);
  const changed = Uint8Array.from([...rows.join('')], (one) => (one === '#' ? 1 : 0));
  return { height, width, ofAction: Int32Array.from([-1, ...drawn]), changed };
}

const shown = (region: ReturnType<typeof regionOf>): string[] | null =>
  region &&
  Array.from({ length: region.height }, (_, y) =>
    [...region.cells.subarray(y * region.width, (y + 1) * region.width)].map((one) => '.#'[one]).join(''),
  );

const any = { share: 0, border: 0 };

describe('the region of a group', () => {
  it('is all that any of its answers changed', () => {
    expect(shown(regionOf([cells('#..', '...'), null, cells('...', '..#')], any))).toEqual(['#..', '..#']);
  });

  it('is what enough of its pictures changed', () => {
    const pictures = [cells('##..'), cells('.##.'), cells('.#.#'), null, cells('#...')];
    expect(shown(regionOf(pictures, { share: 0.5, border: 0 }))).toEqual(['##..']);
    expect(shown(regionOf(pictures, { share: 0.75, border: 0 }))).toEqual(['.#..']);
    expect(regionOf(pictures, { share: 1, border: 0 })).toBeNull();
  });

  it('is what the label changes, whatever the answers do', () => {
    expect(shown(regionOf([cells('##..')], any, Uint8Array.of(0, 0, 0, 1)))).toEqual(['...#']);
    expect(regionOf([cells('##..')], any, new Uint8Array(4))).toBeNull();
  });

  it('is widened by the border, and never round the edge of the picture', () => {
    expect(shown(regionOf([cells('....', '....', '...#', '....')], { share: 0, border: 1 }))).toEqual([
      '....',
      '..##',
      '..##',
      '..##',
    ]);
    expect(shown(regionOf([cells('#...', '....', '....', '....')], { share: 0, border: 2 }))).toEqual([
      '###.',
      '###.',
      '###.',
      '....',
    ]);
  });

  it('is none where nothing is changed, or no answer draws the picture', () => {
    expect([regionOf([cells('..'), null], any), regionOf([null], any), regionOf([], any)]).toEqual([null, null, null]);
  });
});

const terms: CreditSettings['terms'] = [
  { weight: 0.5, credit: 'changed' },
  { weight: 0.3, credit: 'kept' },
  { weight: 0.2, credit: 'all' },
];
const settings: CreditSettings = { terms, advantage: { eps: 1e-4, clip: null }, factor: 2 };

function outcome(values: readonly number[]): Outcome {
  const named = values.map((normalised, k) => ({ name: `${k}`, weight: terms[k].weight, normalised }));
  return { kind: 'scored', value: 0, normalised: 0, parts: {}, terms: named };
}

const values = [
  [
    [0.9, 0.1, 0.4],
    [0.2, 0.8, 0.4],
    [0.5, 0.5, 0.7],
  ],
  [
    [0.3, 0.9, 0.2],
    [0.6, 0.1, 0.9],
    [0.1, 0.2, 0.3],
  ],
];
const outcomes = values.map((group) => group.map(outcome));
const whole = perTermAdvantages(values, [0.5, 0.3, 0.2], { ...settings.advantage, factor: 2 });

/** The same by a second way: plain sums over the terms, without arrays of a library. */
function expected(g: number, i: number, inside: boolean): number {
  const normal = (own: number, all: readonly number[]): number => {
    const mean = all.reduce((sum, x) => sum + x, 0) / all.length;
    const std = Math.sqrt(all.reduce((sum, x) => sum + (x - mean) ** 2, 0) / all.length);
    return (own - mean) / (std + 1e-4);
  };
  const of = (group: number, answer: number, k: number): number =>
    [0.5, 0.3, 0.2][k] *
    normal(
      values[group][answer][k],
      values[group].map((one) => one[k]),
    );
  const sums = [0, 1].flatMap((group) =>
    [0, 1, 2].map((answer) => of(group, answer, 0) + of(group, answer, 1) + of(group, answer, 2)),
  );
  const mean = sums.reduce((sum, x) => sum + x, 0) / 6;
  const std = Math.sqrt(sums.reduce((sum, x) => sum + (x - mean) ** 2, 0) / 6);
  return (2 * ((inside ? of(g, i, 0) : of(g, i, 1)) + of(g, i, 2))) / (std + 1e-4);
}

const regionsOf = (drawn: readonly (readonly (DrawnCells | null)[])[]) => drawn.map((group) => regionOf(group, any));

describe('credit by region', () => {
  const drawn = [
    [cells('#.', '..'), cells('..', '..'), cells('..', '.#')],
    [cells('..', '..'), cells('..', '..'), null],
  ];
  const { advantages, credits, metrics } = creditByRegion(outcomes, drawn, regionsOf(drawn), whole, settings);

  it('pays each term to its own cells, and all terms to what draws none', () => {
    // A word, then two rows of two cells, each with its end.
    for (const i of [0, 1, 2]) {
      const [inside, outside] = [expected(0, i, true), expected(0, i, false)];
      const all = whole[0].advantages[i] ?? NaN;
      const found = advantages[0].advantages[i] as Float32Array;
      [all, inside, outside, all, outside, inside, all].forEach((one, t) => expect(found[t]).toBeCloseTo(one, 5));
      expect(credits[0][i]?.changed).toBeCloseTo(inside, 9);
      expect(credits[0][i]?.kept).toBeCloseTo(outside, 9);
    }
    // A copy of the source is paid for the region that it left alone.
    expect(credits[0][1]?.changed).toBeLessThan(0);
  });

  it('pays everything to the whole answer where no answer of the group changed anything, and counts that', () => {
    expect(advantages[1].advantages).toEqual(whole[1].advantages);
    expect(credits[1]).toEqual([null, null, null]);
    expect(metrics).toMatchObject({ 'credit/whole_groups': 0.5, 'credit/changed_cells': 0.5 });
  });

  it('is the sum over the terms for an answer without a picture, and nothing for one without a reward', () => {
    const unscored: Outcome = { kind: 'unscored', reason: 'timeout', detail: '', parts: {} };
    const some = [[outcomes[0][0], outcomes[0][1], unscored], outcomes[1]];
    const lacking = perTermAdvantages([[values[0][0], values[0][1], null], values[1]], [0.5, 0.3, 0.2], {
      ...settings.advantage,
      factor: 2,
    });
    const lackingCells = [[drawn[0][0], null, drawn[0][2]], drawn[1]];
    const found = creditByRegion(some, lackingCells, regionsOf(lackingCells), lacking, settings);
    expect(found.advantages[0].advantages[1]).toBe(lacking[0].advantages[1]);
    expect(found.advantages[0].advantages[2]).toBeNull();
  });

  it('is about all cells for a term whose cells are none', () => {
    const full = [[cells('##', '##'), cells('..', '..'), cells('..', '..')], drawn[1]];
    const found = creditByRegion(outcomes, full, regionsOf(full), whole, settings);
    for (const i of [0, 1, 2]) {
      expect(found.credits[0][i]?.changed).toBeCloseTo(whole[0].advantages[i] ?? NaN, 9);
    }
    expect(found.metrics['credit/whole_groups']).toBe(1);
  });

  it('is that of whole answers where every term is about all', () => {
    const all = { ...settings, terms: terms.map(({ weight }) => ({ weight, credit: 'all' as const })) };
    const found = creditByRegion(outcomes, drawn, regionsOf(drawn), whole, all);
    for (const i of [0, 1, 2]) {
      const numbers = found.advantages[0].advantages[i] as Float32Array;
      numbers.forEach((one) => expect(one).toBeCloseTo(whole[0].advantages[i] ?? NaN, 5));
    }
  });

  it('is limited cell by cell', () => {
    const limited = { ...settings, advantage: { eps: 1e-4, clip: 0.5 } };
    const found = creditByRegion(outcomes, drawn, regionsOf(drawn), whole, limited).credits[0].flatMap((one) => [
      one?.changed,
      one?.kept,
    ]);
    expect(Math.max(...found.map((one) => Math.abs(one ?? NaN)))).toBe(0.5);
  });

  it('carries no loss in a dropped group', () => {
    const dropped = whole.map((group) => ({ ...group, dropped: true, advantages: group.advantages.map(() => null) }));
    const found = creditByRegion(outcomes, drawn, regionsOf(drawn), dropped, settings);
    expect(found.advantages).toEqual(dropped);
    expect(found.metrics).not.toHaveProperty('credit/changed');
  });

  it('is recorded with its region', () => {
    const region = { height: 2, width: 3, cells: Uint8Array.of(0, 1, 0, 0, 1, 1) };
    expect(creditRecord({ region, changed: 1, kept: -2 })).toEqual({
      credit: { height: 2, width: 3, region: '4c', changed: 1, kept: -2 },
    });
    expect(creditRecord(null)).toEqual({});
  });
});

it('leaves advantages to the answers where each action draws all cells, and says what the cells are paid', () => {
  const drawn = outcomes.map((group) => group.map(() => ({ ...cells('##', '..'), ofAction: null })));
  const found = creditByRegion(outcomes, drawn, regionsOf(drawn), whole, settings);
  expect(found.advantages).toEqual(whole);
  for (const g of [0, 1]) {
    for (const i of [0, 1, 2]) {
      const paid = cellAdvantages(found.credits[g][i]);
      expect([...(paid?.cells ?? [])]).toEqual([1, 1, 0, 0]);
      expect(paid?.inside).toBeCloseTo(expected(g, i, true), 9);
      expect(paid?.outside).toBeCloseTo(expected(g, i, false), 9);
    }
  }
  expect(cellAdvantages(null)).toBeNull();
});
