import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { examine, type ExamOptions } from '../../../src/rewards/exam/examine.js';
import { marksOf } from '../../../src/rewards/exam/findings.js';
import { JudgeClient } from '../../../src/rewards/judge/client.js';
import { MemoryJudgementStore } from '../judge/memory_store.js';
import { pairwise } from '../../../src/rewards/terms/pairwise.js';
import { biasNames, readBiases, type Biases } from '../../../src/rewards/rule_judge/biases.js';
import { tinyExam } from '../../../src/rewards/rule_judge/exam_cases.js';
import { JUDGE_MODEL, startJudge } from '../../../src/rewards/rule_judge/server.js';
import { testServices } from '../terms/term_services.js';
import { accusedOf, examined } from './biased.js';
import type { WrongWays } from './wrong_ways.js';

const CASES = 35;

describe('the exam of a rule judge', () => {
  it('accuses a sound one of nothing, nor one with little noise', async () => {
    const sound = await examined({}, 1, CASES);
    expect(accusedOf(sound)).toEqual([]);
    expect(sound.agreement.mean).toBeGreaterThan(0.99);
    expect(sound.fidelity.mean).toBeGreaterThan(0.95);
    expect(accusedOf(await examined({ noise: 0.1 }, 1, CASES))).toEqual([]);
  });

  it.each<[string, WrongWays, string[]]>([
    ['brightness', { brightness: 0.5 }, ['brightness']],
    ['text', { text: 0.5 }, ['text']],
    ['size', { size: 0.5 }, ['size']],
    ['format', { format: 0.5 }, ['format']],
    ['wording', { wording: 0.5 }, ['wording']],
    ['overedits', { overedits: 1 }, ['misses_over_edited']],
    ['lenient', { lenient: 1 }, ['misses_half_done', 'misses_over_edited']],
  ])('names the fault of one with the bias %s, and no other', async (_, biases, faults) => {
    expect(accusedOf(await examined(biases, 2, CASES))).toEqual(faults);
  });

  it.each<[string, WrongWays]>([
    ['blind', { blind: 1 }],
    ['inverted', { inverted: 1 }],
  ])('says of one that is %s that its order is none', async (_, biases) => {
    expect(accusedOf(await examined(biases, 3, CASES))).toContain('blind');
  });

  it.each<[string, Biases, string[]]>([
    ['a sound one', {}, []],
    ['one with noise', { noise: 0.1 }, []],
  ])('by comparisons finds what is wrong with %s', async (_, biases, faults) => {
    const judge = await startJudge({ port: 0, host: '127.0.0.1', biases });
    const asked = new JudgeClient({ endpoints: [judge.url], model: JUDGE_MODEL, store: new MemoryJudgementStore() });
    try {
      const term = await pairwise.create(z.strictObject(pairwise.fields).parse({}), testServices(asked));
      const { signal } = new AbortController();
      const score: ExamOptions['score'] = (item, stop, group) => term.score(item, stop, { group });
      const marks = marksOf(await examine(tinyExam(CASES, 1), { repeats: 2, atOnce: 4, signal, score }));
      expect(accusedOf(marks)).toEqual(faults);
      expect(marks.findings.find(({ name }) => name === 'order')?.estimate.n).toBe(CASES);
      expect(marks.agreement.mean).toBeGreaterThan(0.75);
    } finally {
      await asked.close();
      await judge.close();
    }
  });

  it('has the same cases for the same seed, and others for another', async () => {
    const [one, again, other] = await Promise.all([1, 1, 2].map((seed) => tinyExam(3, seed).at(2)));
    expect(again).toEqual(one);
    expect(other.source?.data).not.toEqual(one.source?.data);
  });
});

describe('biases as they are written', () => {
  it('are read by name and strength', () => {
    expect(readBiases('copies=0.5, noise=0')).toEqual({ copies: 0.5, noise: 0 });
  });

  it.each(['copies', 'copies=', 'copies=2', 'copies=-0.1', 'copies=x', 'copies=0.1=2', 'copy=0.5', ''])(
    'are rejected as %j, with what is allowed',
    (text) => {
      expect(() => readBiases(text)).toThrow(new RegExp(`allowed: name=strength.*${biasNames.join(', ')}`));
    },
  );
});
