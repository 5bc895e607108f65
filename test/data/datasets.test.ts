import { describe, expect, it } from 'vitest';
import { ConfigError } from '../../src/core/errors.js';
import { Datasets, nameSources } from '../../src/data/datasets.js';

const namesOf = (...paths: string[]): string[] => nameSources(paths, paths).map(({ name }) => name);

describe('held-out sets are called', () => {
  it.each([
    [['data/tiny/s/validation/list/tokenized_datalist.json'], ['s']],
    [['data/words/validation.jsonl'], ['words']],
    [['data/words/test.parquet'], ['words']],
    [['data/words/test'], ['words']],
    [['test.jsonl'], ['test']],
    [['../test.jsonl'], ['test']],
    [['/test.jsonl'], ['test']],
    // Files of one folder take their own names.
    [
      ['data/a.jsonl', 'data/b.parquet', 'data/c'],
      ['a', 'b', 'c'],
    ],
    [
      ['x/a.jsonl', 'y/b.jsonl', 'x/c.jsonl'],
      ['a', 'y', 'c'],
    ],
    // A name with a dot is no ending.
    [
      ['data/gsm8k.v1', 'data/gsm8k.v2'],
      ['gsm8k.v1', 'gsm8k.v2'],
    ],
  ])('%j: %j', (paths, names) => {
    expect(namesOf(...paths)).toEqual(names);
  });

  it('by names that differ', () => {
    const same = (): string[] => namesOf('x/a.jsonl', 'x/a.parquet', 'y/b.jsonl');
    expect(same).toThrow(ConfigError);
    expect(same).toThrow("2 held-out sets have the name 'a': x/a.jsonl, x/a.parquet");
  });

  it('and keep what they name', () => {
    expect(nameSources(['x/a.jsonl'], [3])).toEqual([{ name: 'x', source: 3 }]);
  });
});

describe('the datasets of a run', () => {
  const listed = (...paths: string[]) => paths.map((path) => ({ path, coefficient: null }));
  const data = {
    train: listed('a/train.jsonl', 'b/train.jsonl'),
    validation: listed('a/validation.jsonl', 'b/validation.jsonl'),
  };
  const lengths: Readonly<Record<string, number>> = { 'a/train.jsonl': 3, 'b/train.jsonl': 3 };
  const datasets = Datasets.of({ seed: 7, data }, ({ path }) => ({ name: path, length: lengths[path] ?? 2 }));

  it('have an order of its own for prompts that replace others, over the same samples', () => {
    const all = (order: (n: number) => { source: number; index: number }): string[] =>
      Array.from({ length: 6 }, (_, i) => order(i)).map(({ source, index }) => `${source} ${index}`);
    const { order } = datasets;
    const [ordinary, refill] = [all((n) => order.ordinary(n)), all((n) => order.refill(n))];
    expect(refill).not.toEqual(ordinary);
    expect(refill.sort()).toEqual(ordinary.sort());
  });

  it('give the sample at a place, and none if there is none', () => {
    expect(datasets.at({ source: 1, index: 2 })).toEqual({ source: datasets.train[1], index: 2 });
    expect(() => datasets.at({ source: 2, index: 0 })).toThrow('there is no sample 0 of training dataset 2');
    expect(() => datasets.at({ source: 1, index: 3 })).toThrow('there is no sample 3 of training dataset 1');
  });

  it('are listed in the order of the settings, and held out by name', async () => {
    expect(datasets.sources.map(({ name }) => name)).toEqual(
      [...data.train, ...data.validation].map(({ path }) => path),
    );
    const prompts = datasets.prompts(async ({ name }, index) => `${name} ${index}`);
    expect(prompts.map(({ name, length }) => [name, length])).toEqual([
      ['a', 2],
      ['b', 2],
    ]);
    expect(await prompts[1].prompt(1)).toBe('b/validation.jsonl 1');
  });
});
