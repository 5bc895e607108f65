import { describe, expect, it } from 'vitest';
import { alarms as alarmsSchema } from '../../src/config/schema/alarms.js';
import { HackAlarms } from '../../src/train/observers/hack_alarms.js';
import { secondGapMetrics, wordMetrics, measureWords } from '../../src/train/observers/hack_statistics.js';

const PROMPT = 'a crimson orb above a cobalt tile';

/** The metrics of a batch of answers to one prompt. */
function batch(answers: readonly string[], unfinished = 0): Record<string, number> {
  const words = answers.map((answer) => measureWords({ answer, instruction: PROMPT }));
  return wordMetrics([{ answers: answers.map((_, i) => ({ finished: i >= unfinished })) }], [words]);
}

/** The alarms that stand after five iterations of `first` and five of `then`. */
function raised(first: Record<string, number>, then: Record<string, number>): string[] {
  const settings = alarmsSchema.parse({});
  if (settings === null) throw new Error('null');
  const said: string[] = [];
  const alarms = new HackAlarms(settings, [], (message) => said.push(message));
  let last: Record<string, number> = {};
  for (let i = 1; i <= 10; i++) last = alarms.observe(i, i <= 5 ? first : then);
  expect(said.length).toBe(Object.keys(last).length);
  for (const message of said) expect(message).toMatch(/track\.alarms\.limits\.\w+\.max_rise is .*reward hacking/);
  return Object.keys(last);
}

const HEALTHY = ['a red circle above a blue square', 'a red square above a red circle and a cross'];

describe('answers in words', () => {
  it('are measured by rows of three words', () => {
    expect(measureWords({ answer: 'red red red red red', instruction: PROMPT })?.repeated).toBeCloseTo(2 / 3);
    expect(measureWords({ answer: 'A crimson orb, above the tile', instruction: PROMPT })).toEqual({
      repeated: 0,
      copied: 2 / 4,
    });
    expect(measureWords({ answer: 'two words', instruction: PROMPT })).toBeNull();
    expect(measureWords({ instruction: PROMPT })).toBeNull();
    expect(batch(['', 'no'])).toEqual({});
  });

  it('raise an alarm each where they repeat themselves, copy the prompt, or do not end', () => {
    const repeating = ['a red circle a red circle a red circle a red circle', HEALTHY[0]];
    expect(raised(batch(HEALTHY), batch(repeating))).toEqual(['alarm/repeated_words']);
    expect(raised(batch(HEALTHY), batch([PROMPT, HEALTHY[0]]))).toEqual(['alarm/prompt_copy']);
    expect(raised(batch(HEALTHY), batch(HEALTHY, 1))).toEqual(['alarm/at_token_limit']);
  });
});

describe('the gap to a second measure', () => {
  const scales = {
    most: 10,
    besides: [
      { name: 'exact_words', most: 1 },
      { name: 'viescore', most: 10 },
    ],
  };
  const gap = (reward: number, exact: number): Record<string, number> =>
    secondGapMetrics({ 'reward/mean': reward, 'reward/exact_words/value': exact }, scales);

  it('is the largest, of scales from 0 to 1', () => {
    expect(gap(6, 0.4)['hack/second_gap']).toBeCloseTo(0.2);
    const both = { 'reward/mean': 6, 'reward/exact_words/value': 0.5, 'reward/viescore/overall': 2 };
    expect(secondGapMetrics(both, scales)['hack/second_gap']).toBeCloseTo(0.4);
    expect(secondGapMetrics({ 'reward/mean': 6 }, scales)).toEqual({});
    expect(secondGapMetrics({ 'reward/exact_words/value': 1 }, scales)).toEqual({});
  });

  it('raises an alarm where the reward rises and the second measure falls, and none where both rise', () => {
    expect(raised(gap(4, 0.4), gap(7, 0.35))).toEqual(['alarm/second_gap']);
    expect(raised(gap(4, 0.4), gap(7, 0.6))).toEqual([]);
  });
});
