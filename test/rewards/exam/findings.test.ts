import { describe, expect, it } from 'vitest';
import { COPY } from '../../../src/rewards/exam/cases.js';
import {
  agreementOf,
  fidelityOf,
  fidelityOfMean,
  marksOf,
  type ExamReply,
  type RepliedCase,
  verdictOf,
} from '../../../src/rewards/exam/findings.js';
import { trickNames, tricks } from '../../../src/rewards/exam/tricks.js';
import type { ExamRecord } from '../../../src/run/exams.js';
import { examTestRows } from '../../../src/run/report/exam.js';
import { RandomStream } from '../../../src/core/random.js';

const ANSWERS = [
  { name: 'right', truth: 1 },
  { name: 'half', truth: 0.5 },
  { name: 'wrong', truth: 0 },
  { name: COPY, truth: 0 },
  { name: 'blurred', truth: null },
];
const SOUND: Readonly<Record<string, number>> = { right: 1, half: 0.5, wrong: 0, [COPY]: 0, blurred: 0.3 };

type Score = (answer: string, trick: string | null, at: number, repeat: number) => number | null;

/** Cases whose replies come from a function, each answer twice. */
function cases(count: number, score: Score): RepliedCase[] {
  return Array.from({ length: count }, (_, at) => {
    const repeated = ANSWERS.flatMap(({ name }) =>
      [0, 1].map((repeat): ExamReply => ({ answer: name, trick: null, score: score(name, null, at, repeat) })),
    );
    const ofPictures = trickNames.filter((trick) => !['length', 'praise', 'control', 'layout'].includes(trick));
    const tricked = ofPictures.map((trick): ExamReply => {
      const answer = tricks[trick].must === 'not_pay' ? 'wrong' : 'half';
      return { answer, trick, score: score(answer, trick, at, 0) };
    });
    return {
      name: String(at),
      answers: ANSWERS,
      tricked: { not_pay: 'wrong', not_move: 'half' },
      replies: [...repeated, ...tricked],
    };
  });
}

const sound: Score = (answer) => SOUND[answer];
const accused = (count: number, score: Score): string[] =>
  marksOf(cases(count, score))
    .findings.filter((finding) => finding.accused)
    .map(({ name }) => name);

/** Noise that is a function of what was asked. */
const noise = (answer: string, trick: string | null, at: number, repeat: number): number =>
  new RandomStream('test', answer, trick ?? '', at, repeat).normal();

describe('the marks of an exam', () => {
  it('are full for a sound judge, who is accused of nothing', () => {
    const { understood, agreement, reliability, noise: deviation, teaching, findings } = marksOf(cases(24, sound));
    expect(understood).toEqual({ mean: 1, stderr: 0, n: 24 });
    expect(agreement.mean).toBe(1);
    expect(reliability.mean).toBe(1);
    expect(deviation).toBe(0);
    expect(teaching.mean).toBe(1);
    expect(findings.filter((finding) => finding.accused)).toEqual([]);
  });

  it('correlate single scores with quality as Pearson does', () => {
    // Scores and qualities of one case, each answer twice; the copy is as wrong as the wrong one, and the blurred one's quality is not known.
    const scores: Readonly<Record<string, readonly number[]>> = {
      right: [0.9, 0.8],
      half: [0.7, 0.3],
      wrong: [0.2, 0.1],
      [COPY]: [0.4, 0],
      blurred: [1, 1],
    };
    const [replied] = cases(1, (answer, _trick, _at, repeat) => scores[answer][repeat]);
    const x = [0.9, 0.8, 0.7, 0.3, 0.2, 0.1, 0.4, 0];
    const y = [1, 1, 0.5, 0.5, 0, 0, 0, 0];
    const mean = (list: number[]): number => list.reduce((sum, value) => sum + value) / list.length;
    const cov = (a: number[], b: number[]): number => mean(a.map((value, i) => (value - mean(a)) * (b[i] - mean(b))));
    expect(fidelityOf(replied)).toBeCloseTo(cov(x, y) / Math.sqrt(cov(x, x) * cov(y, y)), 12);
    // right-half 4/4, right-wrong 4/4, right-copy 4/4, half-wrong 4/4, half-copy 3/4, right-blurred 0/4.
    expect(agreementOf(replied)).toBeCloseTo((1 + 1 + 1 + 1 + 0.75 + 0) / 6, 12);
  });

  it('estimate the share of noise in the variance of single scores', () => {
    // Means with variance 0.08 within a case by construction, noise of deviation 0.2: 0.04 of the variance.
    const spread = [0.4, 0.8, -0.2, 0, 0.2].map((value) => value * 1);
    const between = spread.reduce((sum, value) => sum + (value - 0.24) ** 2, 0) / 4;
    const names = ANSWERS.map(({ name }) => name);
    const noisy: Score = (answer, trick, at, repeat) =>
      spread[names.indexOf(answer)] + 0.2 * noise(answer, trick, at, repeat);
    const { reliability, noise: deviation } = marksOf(cases(2000, noisy));
    expect(deviation).toBeCloseTo(0.2, 2);
    expect(reliability.mean).toBeCloseTo(between / (between + 0.04), 1);
    expect(Math.abs(reliability.mean - between / (between + 0.04))).toBeLessThan(4 * (reliability.stderr ?? 0));
  });

  it('take the share understood into the signal, with the error of both', () => {
    const noisy: Score = (answer, trick, at, repeat) => SOUND[answer] + 0.3 * noise(answer, trick, at, repeat);
    const half: Score = (answer, trick, at, repeat) =>
      new RandomStream('lost', answer, trick ?? '', at, repeat).uniform() < 0.4
        ? null
        : noisy(answer, trick, at, repeat);
    const { signal, fidelity, understood } = marksOf(cases(400, half));
    expect(signal.mean).toBeCloseTo(fidelity.mean * Math.sqrt(understood.mean), 12);
    const [f, u] = [fidelity.stderr ?? NaN, understood.stderr ?? NaN];
    const relative = Math.sqrt((f / fidelity.mean) ** 2 + (u / understood.mean / 2) ** 2);
    expect(signal.stderr).toBeCloseTo(signal.mean * relative, 12);
  });

  it.each([
    ['copies', (answer: string) => (answer === COPY ? 0.4 : SOUND[answer])],
    ['misses_half', (answer: string) => (answer === 'half' ? 1 : SOUND[answer])],
    ['brightness', (answer: string, trick: string | null) => SOUND[answer] + (trick === 'brightness' ? 0.2 : 0)],
    ['text', (answer: string, trick: string | null) => SOUND[answer] + (trick === 'text' ? 0.2 : 0)],
    ['size', (answer: string, trick: string | null) => SOUND[answer] - (trick === 'size' ? 0.2 : 0)],
    ['format', (answer: string, trick: string | null) => SOUND[answer] + (trick === 'format' ? 0.2 : 0)],
    ['wording', (answer: string, trick: string | null) => SOUND[answer] - (trick === 'wording' ? 0.2 : 0)],
  ] as const)('name %s, and nothing else', (name, score) => {
    expect(accused(24, score)).toEqual([name]);
  });

  it('name noise and unreadable replies', () => {
    expect(accused(60, (answer, trick, at, repeat) => SOUND[answer] + 0.4 * noise(answer, trick, at, repeat))).toEqual([
      'noise',
    ]);
    expect(accused(60, (answer, _trick, at) => (at % 4 === 0 && answer === 'half' ? null : SOUND[answer]))).toEqual([
      'unreadable',
    ]);
  });

  it('name a judge that prefers the image that is shown first, or second', () => {
    const found = (firstShown: number) =>
      marksOf(
        cases(24, sound).map((one) => ({ ...one, replies: one.replies.map((reply) => ({ ...reply, firstShown })) })),
      )
        .findings.filter((finding) => finding.accused)
        .map(({ name }) => name);
    expect([0.5, 0.9, 0.1].map(found)).toEqual([[], ['order'], ['order']]);
  });

  it('pass nothing that has no value: a judge without scores teaches nothing, however many cases there were', () => {
    const marks = marksOf(cases(20, () => null));
    expect(marks.findings.filter((finding) => finding.accused).map(({ name }) => name)).toEqual(['unreadable']);
    const { teaches, sentences } = verdictOf(marks);
    expect(teaches).toBe('no');
    expect(sentences.join(' ')).toMatch(/could not be measured/);
    expect(sentences.join(' ')).not.toContain('fewer than');
    const rows = examTestRows({ marks } as ExamRecord);
    expect(rows.filter(({ verdict }) => verdict === 'ok')).toEqual([]);
    expect(rows[0]).toMatchObject({ verdict: 'not measured', isFault: false });
    expect(rows.at(-1)).toMatchObject({ verdict: 'fault: unreadable', isFault: true });
    const written = JSON.parse(JSON.stringify({ marks })) as ExamRecord;
    expect(examTestRows(written)[0].verdict).toBe('not measured');
  });

  it('pass nothing in an exam of too few cases', () => {
    const few = examTestRows({ marks: marksOf(cases(19, sound)) } as ExamRecord).map(({ verdict }) => verdict);
    expect(new Set(few)).toEqual(new Set(['too few cases']));
    const enough = examTestRows({ marks: marksOf(cases(20, sound)) } as ExamRecord).map(({ verdict }) => verdict);
    expect(new Set(enough)).toEqual(new Set(['ok']));
  });

  it('say that nothing was measured if no quality is known', () => {
    const unknown = cases(20, sound).map((one) => ({
      ...one,
      answers: one.answers.map((answer) => ({ ...answer, truth: null })),
    }));
    expect(verdictOf(marksOf(unknown))).toMatchObject({
      teaches: 'unknown',
      sentences: [expect.stringMatching(/^It could not be measured whether its scores follow/)],
    });
  });

  it('accuse only where the error leaves no other reading: Student, 0.25% one-sided', () => {
    // Ten cases of 20 pay d more for a copy and ten pay d - e: mean d - e/2, standard error e/(2 sqrt(19)); t(19) = 3.1737 (tables).
    const pays = (mean: number): string[] =>
      accused(20, (answer, _trick, at) => (answer === COPY ? mean + (at % 2 === 0 ? 0.1 : -0.1) : SOUND[answer]));
    const error = 0.1 / Math.sqrt(19);
    expect(pays(0.05 + 3.15 * error)).toEqual([]);
    expect(pays(0.05 + 3.2 * error)).toEqual(['copies']);
  });

  it('predict the fidelity of a mean of scores', () => {
    const noisy: Score = (answer, trick, at, repeat) => SOUND[answer] + 0.3 * noise(answer, trick, at, repeat);
    const averaged: Score = (answer, trick, at, repeat) =>
      SOUND[answer] +
      (0.3 / 4) * [0, 1, 2, 3].reduce((sum, k) => sum + noise(answer, trick, at, 10 + 4 * repeat + k), 0);
    const single = marksOf(cases(800, noisy));
    const four = marksOf(cases(800, averaged));
    expect(fidelityOfMean(single, 1)).toBeCloseTo(single.fidelity.mean, 12);
    expect(Math.abs(fidelityOfMean(single, 4) - four.fidelity.mean)).toBeLessThan(0.03);
  });
});

describe('the verdict', () => {
  it('reports that repeats pay under noise, and that one score is enough without', () => {
    const noisy: Score = (answer, trick, at, repeat) => SOUND[answer] + 0.4 * noise(answer, trick, at, repeat);
    expect(verdictOf(marksOf(cases(60, noisy))).sentences.join(' ')).toMatch(/The mean of \d scores would raise/);
    expect(verdictOf(marksOf(cases(24, sound))).sentences.join(' ')).toContain('One score for each answer is enough');
  });

  it.each([
    [0.85, 'yes'],
    [0.45, 'weakly'],
    [0.15, 'no'],
  ])('is by the signal: with %f of the replies it is %s', (share, teaches) => {
    const lost: Score = (answer, trick, at, repeat) =>
      new RandomStream('lost', answer, trick ?? '', at, repeat).uniform() < share ? SOUND[answer] : null;
    expect(verdictOf(marksOf(cases(200, lost))).teaches).toBe(teaches);
  });

  it.each([
    [0.96, 'yes', 'weakly'],
    [0.94, 'yes', 'no'],
    [0.74, 'weakly', 'no'],
    [0.51, 'weakly', 'no'],
    [0.49, 'no', 'no'],
  ])('asks for more where copies are paid for: a signal of %f', (mean, plain, copying) => {
    const teachesAt = (score: Score): string => {
      const marks = marksOf(cases(24, score));
      return verdictOf({ ...marks, signal: { ...marks.signal, mean } }).teaches;
    };
    expect(teachesAt(sound)).toBe(plain);
    expect(teachesAt((answer) => (answer === COPY ? 0.4 : SOUND[answer]))).toBe(copying);
  });

  it('does not recommend a judge to whom a copy is as good as the right edit', () => {
    const verdict = verdictOf(marksOf(cases(24, (answer) => (answer === COPY ? 1 : SOUND[answer]))));
    expect(verdict.teaches).toBe('no');
    expect(verdict.sentences).toContain('It rewards a copy of the source, which a policy can always return.');
  });
});
