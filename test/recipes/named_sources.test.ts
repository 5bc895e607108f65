import { describe, expect, it } from 'vitest';
import { ConfigError } from '../../src/core/errors.js';
import { nameSources } from '../../src/recipes/named_sources.js';

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
    // Those of one folder take their own names.
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
    expect(same).toThrow("found 2 held-out sets that are called 'a': x/a.jsonl, x/a.parquet");
  });

  it('and keep what they name', () => {
    expect(nameSources(['x/a.jsonl'], [3])).toEqual([{ name: 'x', source: 3 }]);
  });
});
