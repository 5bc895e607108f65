import { describe, expect, it } from 'vitest';
import { addTokens, tokensOf } from '../../../src/rewards/judge/completion.js';

const body = (usage: unknown) => ({ choices: [], usage });

describe('the tokens of a reply', () => {
  it('are those of its usage, whatever else that counts', () => {
    const usage = { prompt_tokens: 812, completion_tokens: 40, total_tokens: 852, prompt_tokens_details: null };
    expect(tokensOf(body(usage))).toEqual({ prompt: 812, completion: 40 });
    expect(tokensOf(body({ prompt_tokens: 812, completion_tokens: 0 }))).toEqual({ prompt: 812, completion: 0 });
  });

  it.each<[string, unknown]>([
    ['a text', 'words'],
    ['nothing', null],
    ['no usage', {}],
    ['usage that is null', body(null)],
    ['usage that is a text', body('many')],
    ['one half of it', body({ prompt_tokens: 812 })],
    ['a negative count', body({ prompt_tokens: -1, completion_tokens: 40 })],
    ['a fraction', body({ prompt_tokens: 812, completion_tokens: 0.5 })],
    ['a text for a count', body({ prompt_tokens: '812', completion_tokens: 40 })],
    ['a count that no number holds', body({ prompt_tokens: 1e300, completion_tokens: 40 })],
    ['what is not finite', body({ prompt_tokens: Infinity, completion_tokens: 40 })],
    ['the zeros of a server that does not count', body({ prompt_tokens: 0, completion_tokens: 0 })],
  ])('are unknown in %s', (_, found) => {
    expect(tokensOf(found)).toBeNull();
  });

  it('add up over replies; one that does not say leaves the others', () => {
    const one = { prompt: 1, completion: 2 };
    expect(addTokens(one, { prompt: 10, completion: 20 })).toEqual({ prompt: 11, completion: 22 });
    expect([addTokens(one, null), addTokens(null, one), addTokens(null, null)]).toEqual([one, one, null]);
  });
});
