import { describe, expect, it } from 'vitest';
import { complaint, fuzzInputs, type CaseResult } from '../fuzz/inputs.js';
import { testFolder } from '../support/folder.js';

const folder = testFolder('wrong-inputs');

describe('wrong input', () => {
  it('ends in a message, whatever it is', async () => {
    const numbers = Array.from({ length: 200 }, (_, i) => i);
    const { refused, complaints } = await fuzzInputs({ root: '.', folder, seed: 'ci', numbers });
    expect(complaints).toEqual([]);
    // Most of it is wrong indeed.
    expect(refused).toBeGreaterThan(150);
  });
});

describe('an ending', () => {
  const good: CaseResult = { number: 0, argv: [], code: 2, out: '', err: 'editrl: seed: found "x"', seconds: 1 };
  it.each([
    ['is good', {}, null],
    ['is good where nothing was wrong', { code: 0, err: '' }, null],
    ['takes too long', { seconds: 31 }, 'took 31 s'],
    ['says nothing', { err: '\n' }, 'exit code 2 without a word'],
    ['is a defect of ours', { err: 'editrl: internal: a plan is missing' }, 'says "internal:"'],
    [
      'is an error of the language',
      { err: "TypeError: Cannot read properties of null (reading 'a')" },
      'says "TypeError"',
    ],
    ['was not foreseen', { err: 'editrl: EISDIR\n  Run it again with --debug' }, 'says "with --debug"'],
    ['shows what a terminal obeys', { err: 'editrl: found \u001b[31m' }, String.raw`says "\u001b"`],
    ['shows an object', { err: 'found [object Object]' }, 'says "[object "'],
    ['has another exit code', { code: 134 }, 'exit code 134'],
  ] as const)('that %s', (_, more, expected) => {
    expect(complaint({ ...good, ...more })).toBe(expected);
  });
});
