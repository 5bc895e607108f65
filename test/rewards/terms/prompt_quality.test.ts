import { describe, expect, it } from 'vitest';
import { promptQuality, promptQualityTerm } from '../../../src/rewards/terms/prompt_quality.js';
import { termContract } from './term_contract.js';
import { testServices } from './term_services.js';

termContract('prompt_quality', () => promptQualityTerm.create({}, testServices()));

describe('the five points of a rewritten prompt', () => {
  it('gives all to one that says more and keeps what was said', () => {
    const rewrite =
      'a beautiful fluffy orange tabby cat on a windowsill, soft natural lighting, high quality, detailed fur';
    expect(promptQuality('a cat', rewrite)).toEqual({ longer: 1, keeps: 1, adds: 1, quality: 1, form: 1 });
  });

  it('gives parts of points', () => {
    expect(promptQuality('a red cat', 'a red dog')).toEqual({
      longer: 0.5,
      keeps: 0.5,
      adds: 0.2,
      quality: 0,
      form: 0.6,
    });
  });

  it('gives nothing to no words', () => {
    expect(promptQuality('a red cat', '')).toEqual({ longer: 0, keeps: 0, adds: 0, quality: 0, form: 0 });
  });

  it('finds words of quality as words alone', () => {
    expect(promptQuality('a cat', 'a cat 14kg').quality).toBe(0);
    expect(promptQuality('a cat', 'a cat, 4K!').quality).toBe(1);
    expect(promptQuality('a cat', 'a cat of high-quality fur').quality).toBe(1);
  });

  it('is recorded with its parts', async () => {
    const term = await promptQualityTerm.create({}, testServices());
    const item = {
      key: '1/0/0',
      instruction: 'a red cat',
      answer: 'a red dog',
      source: null,
      edited: null,
      truth: null,
      finished: true,
    };
    expect(await term.score(item)).toMatchObject({
      kind: 'scored',
      value: expect.closeTo(1.8) as number,
      normalised: expect.closeTo(0.36) as number,
      parts: { 'prompt_quality/points': expect.closeTo(1.8) as number, 'prompt_quality/keeps': 0.5 },
    });
  });
});
