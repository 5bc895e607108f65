/** What every kind of term promises, whatever it measures. Each term's test runs this on a term that it makes. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { RgbImage } from '../../../src/core/images/image.js';
import { RandomStream } from '../../../src/core/random.js';
import type { Term } from '../../../src/rewards/terms/term.js';
import type { JudgeItem, Outcome } from '../../../src/rewards/score/types.js';

/** An image with something in it: blocks of random colors, the same for the same seed. */
export function imageOf(seed: number, width = 64, height = width): RgbImage {
  const random = new RandomStream(seed, 'picture');
  const block = 8;
  const columns = Math.ceil(width / block);
  const colours = Uint8Array.from({ length: columns * Math.ceil(height / block) * 3 }, () => random.integer(256));
  const data = new Uint8Array(width * height * 3);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const from = (Math.floor(y / block) * columns + Math.floor(x / block)) * 3;
      data.set(colours.subarray(from, from + 3), (y * width + x) * 3);
    }
  }
  return { width, height, data };
}

/** An item that has everything a term may ask for. */
export function wholeItem(changes: Partial<JudgeItem> = {}): JudgeItem {
  return {
    key: '4/2/1',
    instruction: 'write "STOP" on the red sign',
    source: imageOf(1),
    edited: imageOf(2),
    truth: imageOf(3),
    answer: '<think>first this, then that</think> <answer>(1) Open the box (2) Take the lid</answer>',
    expected: '<answer>(1) Open the box (2) Take the lid</answer>',
    finished: true,
    ...changes,
  };
}

/** Answers that no dataset asked for, but that a policy may give. */
const oddAnswers: Readonly<Record<string, Partial<JudgeItem>>> = {
  'no image': { edited: null },
  'an image of one pixel': { edited: imageOf(4, 1) },
  'an image of 10000x1': { edited: imageOf(5, 10_000, 1) },
  'an image of 1x10000': { edited: imageOf(6, 1, 10_000) },
  'an image of another size than the source': { edited: imageOf(7, 40, 96) },
  'an image of one colour': { edited: { width: 64, height: 64, data: new Uint8Array(64 * 64 * 3) } },
  'an exact copy of the source': { edited: imageOf(1) },
  'no words': { answer: '' },
  'words in no form': { answer: '<answer></answer><think>(9) </answer> \u0000 \ud800 ()((' },
  'many words': { answer: '<think>'.repeat(2000) + '(1) a '.repeat(2000) },
  'an answer that did not end': { finished: false },
};

/**
 * Runs the contract of terms on what `make` makes: never throws for an odd answer, values in range, parts finite, the same each time and
 * in any company, called off by its signal. The term has to score `item` (default: `wholeItem()`).
 */
export function termContract(name: string, make: () => Promise<Term>, item: JudgeItem = wholeItem()): void {
  describe(`${name} keeps the contract of terms`, () => {
    let term: Term;
    beforeAll(async () => {
      term = await make();
    });
    afterAll(() => term.close());

    it('scores a good answer', async () => {
      const outcome = await term.score(item);
      expectSound(outcome);
      expect(outcome.kind).toBe('scored');
    });

    it.each(Object.entries(oddAnswers))('gives an outcome for %s', async (_what, changes) => {
      expectSound(await term.score({ ...item, ...changes }));
    });

    it('gives the same outcome each time, also from another instance and in company', async () => {
      const items = [item, ...Object.values(oddAnswers).map((changes) => ({ ...item, ...changes }))].map(
        (one, index) => ({ ...one, key: `5/0/${index}` }),
      );
      const oneByOne: Outcome[] = [];
      for (const one of items) oneByOne.push(await term.score(one));
      const other = await make();
      try {
        expect(await Promise.all(items.map((one) => other.score(one)))).toEqual(oneByOne);
      } finally {
        await other.close();
      }
    });

    it('leaves the item as it is', async () => {
      const before = structuredClone(item);
      await term.score(item);
      expect(item).toEqual(before);
    });

    it('is canceled by its signal, before and while it works', async () => {
      const usual = await term.score({ ...item, key: '6/0/0' });
      const controller = new AbortController();
      const calledOff = [
        term.score({ ...item, key: '6/0/0' }, AbortSignal.abort()),
        term.score({ ...item, key: '6/0/0' }, controller.signal),
      ];
      controller.abort();
      for (const outcome of await Promise.all(calledOff)) {
        expectSound(outcome);
        if (outcome.kind === 'unscored') expect(outcome.reason).toBe('aborted');
        // Too quick to be cancelled: then the outcome is the usual one.
        else expect(outcome).toEqual(usual);
      }
      // Being cancelled is remembered nowhere.
      expect(await term.score({ ...item, key: '6/0/0' })).toEqual(usual);
    });

    it('is closed, and may be closed again', async () => {
      const other = await make();
      await other.close();
      await other.close();
    });
  });
}

function expectSound(outcome: Outcome): void {
  for (const [part, value] of Object.entries(outcome.parts)) {
    expect(part).toMatch(/^[^/]+\/[^/]+$/);
    expect(value, part).toSatisfy(Number.isFinite);
  }
  if (outcome.kind === 'unscored') expect(outcome.detail).not.toBe('');
  if (outcome.kind !== 'scored') return;
  expect(outcome.value).toSatisfy(Number.isFinite);
  // What is zero by rule counts as 0: it must not be worth more than a scored answer.
  expect(outcome.value).toBeGreaterThanOrEqual(0);
  expect(outcome.normalised).toBeGreaterThanOrEqual(0);
  expect(outcome.normalised).toBeLessThanOrEqual(1);
}
