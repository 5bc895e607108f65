import { describe, expect, it } from 'vitest';
import { wordOverlap, wordsOf } from '../../../src/rewards/terms/word_overlap.js';
import { termContract, wholeItem } from './term_contract.js';
import { testServices } from './term_services.js';

const create = () => wordOverlap.create({}, testServices());

termContract('word_overlap', create);

describe('the words of a text', () => {
  it.each([
    ['A red circle, a RED square!', ['a', 'red', 'circle', 'a', 'red', 'square']],
    ["don't stop", ["don't", 'stop']],
    ['Ünïcode été 3.5', ['ünïcode', 'été', '3', '5']],
    ['\u2014 \u2026 !', []],
  ])('%j', (text, words) => {
    expect(wordsOf(text)).toEqual(words);
  });
});

describe('word_overlap', () => {
  it.each([
    ['a red circle above a blue square', 'a red circle above a blue square', 1],
    ['blue square above circle red a', 'a red circle above a blue square', 1],
    ['a red circle', 'a red circle above a blue square', 3 / 6],
    // Listing more than is asked for costs.
    ['a red green blue circle square', 'a red circle', 3 / 6],
    ['nothing', 'a red circle', 0],
    ['', 'a red circle', 0],
    ['', '', 0],
  ])('%j for %j is worth %d', async (answer, expected, value) => {
    const term = await create();
    const images = { source: null, edited: null, truth: null };
    expect(await term.score(wholeItem({ answer, expected, ...images }))).toEqual({
      kind: 'scored',
      value,
      normalised: value,
      parts: {},
    });
  });
});
