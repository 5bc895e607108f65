/**
 * From replies to the numbers of published tables. The fixtures hold replies and the numbers that the published scripts computed from them
 * (test/fixture_scripts/benchmark_tables.py). KRIS-Bench has no such script.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Row } from '../../../src/data/types.js';
import type { Benchmark, BenchmarkAnswer, BenchmarkTable } from '../../../src/rewards/benchmarks/benchmark.js';
import { eloOf, type Match } from '../../../src/rewards/benchmarks/elo.js';
import { toCents } from '../../../src/rewards/benchmarks/numbers.js';
import { benchmarks } from '../../../src/rewards/benchmarks/table.js';
import { parseReply } from '../../../src/rewards/judge/forms.js';
import { RandomStream } from '../../../src/core/random.js';
import { testFolder } from '../../support/folder.js';

interface Fixture {
  readonly edits: readonly { readonly row: Row; readonly replies: Readonly<Record<string, string>> }[];
  readonly tables: Readonly<Record<string, Readonly<Record<string, readonly (number | null)[]>>>>;
}

function fixture<T = Fixture>(name: string): T {
  return JSON.parse(readFileSync(join(import.meta.dirname, 'fixtures', `${name}.json`), 'utf8')) as T;
}

/** The answers that a judge's replies give. */
function answered(benchmark: Benchmark, { edits }: Fixture): BenchmarkAnswer[] {
  return edits.map(({ row, replies }) => {
    const parts: Record<string, number> = {};
    for (const { name, form, parts: names } of benchmark.questions(row, {})) {
      const parsed = parseReply(form, replies[name]);
      if (!parsed.ok) throw new Error(`${name}: ${parsed.detail}: ${replies[name]}`);
      names.forEach((part, i) => {
        if (part !== null) parts[part] = parsed.scores[i] ?? NaN;
      });
    }
    return { row, parts };
  });
}

function linesOf(
  tables: readonly BenchmarkTable[],
  title: string,
): Readonly<Record<string, readonly (number | null)[]>> {
  const table = tables.find((one) => one.title === title);
  return Object.fromEntries((table?.lines ?? []).map(({ name, values }) => [name, values]));
}

const close = (values: readonly (number | null)[]): unknown[] =>
  values.map((value) => (value === null ? null : (expect.closeTo(value, 9) as unknown)));

describe.each([
  ['gedit', 'gedit'],
  ['imgedit', 'imgedit'],
  ['rise', 'rise'],
  ['rise', 'rise_free'],
] as const)('%s, from the replies of %s', (name, file) => {
  const benchmark = benchmarks[name] as unknown as Benchmark;
  const found = fixture(file);

  it('has the numbers of the published script', () => {
    const tables = benchmark.tables(answered(benchmark, found), {});
    for (const [title, lines] of Object.entries(found.tables)) {
      const own = linesOf(tables, title);
      for (const [line, values] of Object.entries(lines)) expect(own[line], `${title}: ${line}`).toEqual(close(values));
    }
  });

  it('leaves edits without scores out, and counts them', () => {
    const answers = answered(benchmark, found);
    const [first] = answers;
    const more = [...answers, { row: first.row, parts: null }];
    const [plain, marked] = [answers, more].map((all) => benchmark.tables(all, {})[0]);
    expect(marked.lines.map(({ values }) => values)).toEqual(plain.lines.map(({ values }) => values));
    expect(marked.lines.at(-1)?.unscored).toBe(name === 'rise' ? 0 : 1);
    expect(marked.lines.reduce((sum, { unscored }) => sum + unscored, 0)).toBe(2);
  });

  it('gives values from 0 to 1', () => {
    for (const { row, parts } of answered(benchmark, found)) {
      const value = benchmark.value(parts ?? {}, row);
      expect(value).toBeGreaterThanOrEqual(0);
      expect(value).toBeLessThanOrEqual(1);
    }
  });
});

describe('two decimals as in Python', () => {
  it.each([
    [3.125, 3.12],
    [3.375, 3.38],
    [2.675, 2.67],
    [1.005, 1],
    [3.335, 3.33],
    [4, 4],
    [11 / 3, 3.67],
    [0.625, 0.62],
  ])('%d becomes %d', (value, rounded) => {
    expect(toCents(value)).toBe(rounded);
  });
});

describe('kris', () => {
  const edit = (task_type: string, parts: Record<string, number> | null): BenchmarkAnswer => ({
    row: { key: 'a', task_type, source: 'a.png', instruction: 'b' },
    parts,
  });
  const answers = [
    edit('biology', { consistency: 5, instruction: 4, quality: 3, knowledge: 1 }),
    edit('biology', { consistency: 1, instruction: 1, quality: 5, knowledge: 1 }),
    edit('color_change', { consistency: 4, instruction: 5, quality: 3 }),
    edit('color_change', null),
  ];

  it('has the means of an edit, by category and over all edits', () => {
    const [{ lines }] = benchmarks.kris.tables(answers, {});
    const percent = (mean: number): number => ((mean - 1) / 4) * 100;
    const means = [13 / 4, 8 / 4, 12 / 3];
    expect(lines).toEqual([
      {
        name: 'biology',
        n: 2,
        unscored: 0,
        values: [3, 2.5, 4, 1, expect.closeTo(percent((means[0] + means[1]) / 2), 9)],
      },
      { name: 'color_change', n: 1, unscored: 1, values: [4, 5, 3, null, percent(4)] },
      {
        name: 'all edits',
        n: 3,
        unscored: 1,
        values: [
          ...close([10 / 3, 10 / 3, 11 / 3, 1]),
          expect.closeTo(percent((means[0] + means[1] + means[2]) / 3), 9),
        ],
      },
    ]);
  });
});

describe('gedit_v2', () => {
  const folder = testFolder('gedit v2 matches');
  interface Pairs {
    readonly edits: readonly { readonly row: Row; readonly winners: Readonly<Record<string, string>> }[];
    readonly published: Readonly<Record<string, readonly object[]>>;
    readonly tables: Fixture['tables'];
  }
  const found = fixture<Pairs>('gedit_v2');
  const shares: Readonly<Record<string, number>> = { 'Image A': 1, 'Image B': 0, Tie: 0.5 };
  const opponents = ['BAGEL', 'OmniGen2', 'Qwen_Image_Edit'];
  const matches = Object.fromEntries(
    Object.entries(found.published).map(([dimension, lines]) => {
      const file = join(folder, `${dimension}.jsonl`);
      writeFileSync(file, lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
      return [dimension, file];
    }),
  ) as { instruction: string; quality: string; consistency: string };
  const settings = { gallery: 'gallery', opponents, consistency_model: 'PVC-Judge', matches };
  const answers = found.edits.map(({ row, winners }) => ({
    row,
    parts: Object.fromEntries(Object.entries(winners).map(([part, winner]) => [part, shares[winner]])),
  }));

  it('has the ratings of the published script', () => {
    const rating = linesOf(benchmarks.gedit_v2.tables(answers, settings), 'rating');
    const published = found.tables['rating'];
    expect(Object.keys(rating).sort()).toEqual(Object.keys(published).sort());
    // Its optimizer stops at a looser tolerance.
    for (const [model, [elo]] of Object.entries(published)) {
      expect(Math.abs((rating[model][0] ?? NaN) - (elo ?? NaN)), model).toBeLessThan(0.05);
    }
  });

  it('has the share of wins against each model', () => {
    const lines = linesOf(benchmarks.gedit_v2.tables(answers, settings), 'share of wins');
    const own = found.edits.map(({ winners }) => shares[winners['quality_BAGEL']]);
    expect(lines['against BAGEL'][1]).toBeCloseTo(own.reduce((sum, share) => sum + share, 0) / own.length, 12);
    expect(Object.keys(lines)).toEqual([
      ...opponents.map((one) => `against ${one}`),
      'color_alter',
      'subject_add',
      'all',
    ]);
  });

  it('asks about each dimension and model, with the edit in either place', () => {
    const asked = found.edits.flatMap(({ row }) => benchmarks.gedit_v2.questions(row, settings));
    expect(asked).toHaveLength(12 * 9);
    const first = asked.filter(({ images }) => images.first === 'edited').length;
    expect(first).toBeGreaterThan(20);
    expect(first).toBeLessThan(88);
    for (const { name, images, parts, model } of asked) {
      const isFirst = images.first === 'edited';
      expect(isFirst ? parts[1] : parts[0]).toBeNull();
      expect(name.includes('quality')).toBe(images.source === undefined);
      expect(model).toBe(name.includes('consistency') ? 'PVC-Judge' : undefined);
      const other = isFirst ? images.second : images.first;
      const { file } = other as { readonly file: string };
      expect(file.startsWith(`${resolve('gallery')}/`)).toBe(true);
    }
  });

  it('rejects a file that has no comparisons', () => {
    const file = join(folder, 'other.jsonl');
    writeFileSync(file, '{"key": "a"}\n');
    const wrong = { ...settings, matches: { ...matches, quality: file } };
    expect(() => benchmarks.gedit_v2.tables(answers, wrong)).toThrow('the line is not a comparison');
  });
});

describe('ratings', () => {
  /** The published loss, and its minimum by plain steps downhill. */
  function reference(matches: readonly Match[]): Map<string, number> {
    const models = [...new Set(matches.flatMap(({ first, second }) => [first, second]))].sort();
    const strengths = models.map(() => 0);
    let logNu = 0;
    for (let step = 0; step < 20_000; step++) {
      const slopes = strengths.map((strength, i) => (i === models.length - 1 ? 0 : strength));
      let nuSlope = 0;
      for (const { first, second, share } of matches) {
        const [a, b] = [models.indexOf(first), models.indexOf(second)];
        const [wa, wb] = [Math.exp(strengths[a]), Math.exp(strengths[b])];
        const tie = 2 * Math.exp(logNu) * Math.sqrt(wa * wb);
        const z = wa + wb + tie;
        const isTie = Number(share === 0.5);
        slopes[a] += wa / z - Number(share === 1) + 0.5 * (tie / z - isTie);
        slopes[b] += wb / z - Number(share === 0) + 0.5 * (tie / z - isTie);
        nuSlope += tie / z - isTie;
      }
      for (let i = 0; i < models.length - 1; i++) strengths[i] -= 0.02 * slopes[i];
      logNu -= 0.02 * nuSlope;
    }
    const center = strengths.reduce((sum, one) => sum + one, 0) / models.length;
    return new Map(models.map((model, i) => [model, 1000 + ((strengths[i] - center) * 400) / Math.log(10)]));
  }

  it('are the minimum of the published loss', () => {
    const random = new RandomStream('ratings');
    const names = ['a', 'b', 'c', 'd'];
    const matches = Array.from({ length: 60 }, (): Match => {
      const first = random.integer(4);
      const second = (first + 1 + random.integer(3)) % 4;
      return { dimension: 'x', first: names[first], second: names[second], share: [1, 1, 0, 0.5][random.integer(4)] };
    });
    const expected = reference(matches);
    for (const [model, elo] of eloOf(matches)) expect(elo).toBeCloseTo(expected.get(model) ?? NaN, 3);
  });

  it('exist without ties, with ties alone, and without matches', () => {
    const wins: Match[] = [{ dimension: 'x', first: 'a', second: 'b', share: 1 }];
    expect([...eloOf(wins).values()].every(Number.isFinite)).toBe(true);
    expect(eloOf(wins).get('a')).toBeGreaterThan(1000);
    expect(eloOf([{ ...wins[0], share: 0.5 }]).get('a')).toBeCloseTo(1000, 6);
    expect(eloOf([])).toEqual(new Map());
  });
});
