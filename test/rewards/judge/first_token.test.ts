import { describe, expect, it } from 'vitest';
import { parseExpectedDigit, readFirstToken } from '../../../src/rewards/judge/first_token.js';

/** The scores of a first token, given its alternatives and their log-probabilities. */
function scoresOf(...alternatives: readonly (readonly [string, unknown])[]) {
  const text = readFirstToken({
    content: [{ token: 'x', top_logprobs: alternatives.map(([token, logprob]) => ({ token, logprob, bytes: null })) }],
  });
  return parseExpectedDigit(text ?? 'nothing', 5);
}

describe('the expected digit', () => {
  it('is the mean over the digits, by their probabilities', () => {
    const parsed = scoresOf(['5', -0.35], ['4', -1.4], ['3', -3.6], ['2', -6.1], [' ', -4.2]);
    expect(parsed.ok).toBe(true);
    const [expected, coverage] = parsed.ok ? parsed.scores : [];
    expect(coverage).toBeCloseTo(0.981, 3);
    expect(expected).toBeCloseTo(4.686, 3);
    expect(expected / 5).toBeCloseTo(0.937, 3);
  });

  it('adds up tokens that are the same digit but for blanks', () => {
    const parsed = scoresOf(
      ['5', Math.log(0.25)],
      [' 5', Math.log(0.25)],
      ['5\n', Math.log(0.25)],
      ['1', Math.log(0.25)],
    );
    expect(parsed.ok ? parsed.scores : null).toEqual([expect.closeTo(4, 10), expect.closeTo(1, 10)]);
  });

  it('leaves out what is no digit of the scale, or has no probability', () => {
    const parsed = scoresOf(
      ['3', Math.log(0.5)],
      ['7', Math.log(0.3)],
      ['55', -3],
      ['\uff15', -3],
      ['The', -3],
      ['5', -9999],
    );
    expect(parsed.ok ? parsed.scores : null).toEqual([expect.closeTo(3, 10), expect.closeTo(0.5, 10)]);
  });

  it('stays within the scale, whatever the rounding', () => {
    for (let i = 0; i < 2000; i++) {
      const parsed = scoresOf(['5', -i / 100]);
      const [expected] = parsed.ok ? parsed.scores : [];
      expect(expected).toBeLessThanOrEqual(5);
      expect(expected).toBeCloseTo(5, 10);
    }
  });

  it.each<readonly [string, readonly (readonly [string, unknown])[], RegExp]>([
    [
      'null',
      [
        ['5', null],
        ['4', -1],
      ],
      /not numbers up to 0/,
    ],
    ['NaN', [['5', NaN]], /not numbers up to 0/],
    ['minus infinity', [['5', -Infinity]], /not numbers up to 0/],
    ['a word', [['5', '-0.1']], /not numbers up to 0/],
    ['above 0', [['5', 0.5]], /not numbers up to 0/],
    [
      'too much together',
      [
        ['5', -0.1],
        ['4', -0.1],
      ],
      /add up to 1\.810/,
    ],
  ])('is the server\u2019s failure where a log-probability is %s', (_name, alternatives, message) => {
    expect(scoresOf(...alternatives)).toMatchObject({
      ok: false,
      problem: 'server_error',
      detail: expect.stringMatching(message) as string,
    });
  });

  it.each<readonly [string, readonly (readonly [string, unknown])[]]>([
    ['no digit is there', [['The', -0.1]]],
    [
      'digits have no probability',
      [
        ['5', -9999],
        ['4', -9999],
      ],
    ],
  ])('is missing where %s', (_name, alternatives) => {
    expect(scoresOf(...alternatives)).toMatchObject({ ok: false, problem: 'unparsable' });
  });

  it.each(['', 'null', '{}', '[]', '[[]]', '[["5"]', '[[5, -1]]', '5', '[["5", 1e999]]'])(
    'of %j is the server\u2019s failure',
    (text) => {
      expect(parseExpectedDigit(text, 5)).toMatchObject({ ok: false, problem: 'server_error' });
    },
  );
});

describe('the first token', () => {
  it.each<readonly [string, unknown]>([
    ['nothing', undefined],
    ['null', null],
    ['no content', {}],
    ['null content', { content: null }],
    ['no token', { content: [] }],
    ['no alternatives', { content: [{ token: '5', logprob: -0.1 }] }],
    ['an empty list', { content: [{ token: '5', logprob: -0.1, top_logprobs: [] }] }],
    ['the form of the older API', { tokens: ['5'], token_logprobs: [-0.1], top_logprobs: [{ '5': -0.1 }] }],
    ['alternatives of the wrong form', { content: [{ top_logprobs: [null, 5, {}] }] }],
  ])('has none in %s', (_name, logprobs) => {
    expect(readFirstToken(logprobs)).toBeNull();
  });

  it('is kept as a text that reads the same later', () => {
    const text = readFirstToken({ content: [{ top_logprobs: [{ token: '5', logprob: -0.5 }] }, { top_logprobs: [] }] });
    expect(text).toBe('[["5",-0.5]]');
  });
});
