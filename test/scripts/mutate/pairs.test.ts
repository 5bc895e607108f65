import { existsSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { mismatch, withMistake, type Pair } from '../../../scripts/mutate/pair.js';
import { pairs } from '../../../scripts/mutate/pairs/table.js';

const here: Pair = {
  id: 'here',
  file: 'scripts/mutate/pair.ts',
  text: 'const times = ',
  replacement: 'const found = ',
  tests: [],
};

describe('the pairs of npm run mutate:pairs', () => {
  it('match the sources: a move or a change of what a pair changes brings its text up to date', () => {
    expect(pairs.map((pair) => [pair.id, mismatch(pair)]).filter(([, wrong]) => wrong !== null)).toEqual([]);
  });

  it('have names of their own', () => {
    const ids = pairs.map(({ id }) => id);
    expect(ids.filter((id, i) => ids.indexOf(id) !== i)).toEqual([]);
  });

  it('name tests of the fast tier', () => {
    const wrong = pairs.flatMap(({ id, tests }) =>
      tests
        .filter((test) => !existsSync(test) || !test.endsWith('.test.ts') || /\.slow\.test|^test\/e2e\//.test(test))
        .map((test) => `${id}: ${test}`),
    );
    expect(wrong).toEqual([]);
    expect(pairs.filter(({ tests, equivalent }) => tests.length === 0 && equivalent === undefined)).toEqual([]);
  });
});

describe('a pair', () => {
  it('matches where its text stands once in its file', () => {
    expect(mismatch(here)).toBeNull();
    expect(mismatch({ ...here, text: 'nowhere at all' })).toBe(
      'its text stands 0 times in scripts/mutate/pair.ts, not once',
    );
    expect(mismatch({ ...here, text: 'return ' })).toMatch(/^its text stands \d+ times/);
    expect(mismatch({ ...here, file: 'src/gone.ts' })).toBe('there is no src/gone.ts');
    expect(mismatch({ ...here, replacement: here.text })).toBe('text and replacement are the same');
  });

  it('replaces its text and leaves the rest', () => {
    // What `replace` would read as a pattern is taken as it is.
    expect(withMistake('a + b', { text: '+ b', replacement: "- $& $'" })).toBe("a - $& $'");
  });
});
