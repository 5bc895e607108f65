import { describe, expect, it } from 'vitest';
import { RandomStream } from '../../../src/core/random.js';
import { examDrift, type RepeatedAnswer } from '../../../src/rewards/exam/drift.js';

const edits = (before: readonly number[], repeats = 2): RepeatedAnswer[] =>
  before.map((one, i) => ({ name: `right of case ${i}`, before: one, repeats }));

describe('the answers of a judge to the edits of its exam', () => {
  const before = Array.from({ length: 20 }, (_, i) => i / 20);

  it('are the same if nothing has changed', () => {
    expect(examDrift(edits(before), before, 0)).toMatchObject({ scored: 20, moved: 0, explained: 0, drifted: false });
  });

  it('are others where they moved by more than a few pixels explain, and the one that moved most is named', () => {
    const now = before.map((one, i) => (i === 3 ? one + 0.4 : one));
    const found = examDrift(edits(before), now, 0);
    expect(found).toMatchObject({ drifted: true, most: 'right of case 3 got 0.55, but 0.15 in the exam' });
    expect(found?.moved).toBeCloseTo(0.4 / Math.sqrt(20));
    expect(examDrift(edits(before), now, 0.1)?.drifted).toBe(false);
    expect(
      examDrift(
        edits(before),
        before.map((one) => one + 0.049),
        0,
      )?.drifted,
    ).toBe(false);
  });

  it('are compared if there are enough of them', () => {
    const some = before.map((one, i) => (i < 8 ? one : null));
    expect(examDrift(edits(before), some, 0)).toMatchObject({ scored: 8, drifted: false });
    expect(
      examDrift(
        edits(before),
        some.map((one, i) => (i === 0 ? null : one)),
        0,
      ),
    ).toBeNull();
  });

  it('of a noisy judge are taken for others in fewer than one look of 2,000', () => {
    const random = new RandomStream('drift test');
    let accused = 0;
    for (let look = 0; look < 4_000; look++) {
      const mean = (count: number): number => {
        let sum = 0;
        for (let i = 0; i < count; i++) sum += 0.5 + 0.1 * random.normal();
        return sum / count;
      };
      const exam = edits(
        before.map(() => mean(2)),
        2,
      );
      const found = examDrift(
        exam,
        before.map(() => mean(1)),
        0.1,
      );
      if (found?.drifted === true) accused++;
    }
    expect(accused).toBeLessThan(2);
  });
});
