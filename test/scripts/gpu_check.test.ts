/** The page about a provider: what the CPU gives at the tiny size, and what fails. */
import { writeFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { gpuCheck, type Ask } from '../../scripts/bench/gpu_check.js';
import { measure, type Job, type Report } from '../../scripts/bench/gpu_check_parts.js';

const tiny = { provider: 'cpu', sizes: ['tiny'], threads: 1, minutes: 20 } as const;
const LEARNT = { logProbSeconds: 2, gradientSeconds: 0.5, flops: 4e9, logProbs: 1 };

/** Cells of the rows of the page's tables, without their heads. */
function rowsOf(page: string): string[][] {
  return page
    .split('\n')
    .filter((line) => line.startsWith('| ') && !line.includes('---') && !/^\| (square|decoder)/.test(line))
    .map((line) => line.slice(2, -2).split(' | '));
}

/** A provider whose log-probability and gradient are these, beside 1 and 2 of the CPU. */
function found(values: readonly [number, number], besides: readonly Report[] = []): Ask {
  return async function* (job: Job) {
    if (job.kind === 'products') {
      yield { part: 'products', found: [{ side: 64, single: 4, chained: 16 }] };
      return;
    }
    const isReference = job.rounds === null;
    writeFileSync(job.values, new Uint8Array(Float32Array.from(isReference ? [1, 2] : values).buffer));
    if (!isReference) yield* besides;
    yield await Promise.resolve({ part: 'learning', found: LEARNT });
    yield { part: 'memory', peakBytes: 2 ** 30 };
  };
}

const check = (ask: Ask) => gpuCheck(tiny, () => {}, ask);

describe('a check of a provider', () => {
  it('measures every part on the CPU, which agrees with itself to the last bit', async () => {
    const { page, succeeded } = await check(measure);
    expect([succeeded, page.includes('What failed')]).toEqual([true, false]);
    const [small, larger, model] = rowsOf(page);
    expect([small[0], larger[0], model[0]]).toEqual(['64', '128', 'tiny: 2 layers of 64']);
    for (const cell of [...small, ...larger, ...model.slice(1, 10)]) {
      expect(Number(cell), page).toBeGreaterThanOrEqual(0);
    }
    // Weights, prompts' and answers' caches, with what else a step reads.
    expect([model[2], model[4], model[6], model[10]]).toEqual(['0.69', '0.0e+0', '0.0e+0', '–']);
  });

  it('compares the gradient with the fastest bare product', async () => {
    const sampling = { part: 'sampling', found: { tokensPerSecond: 30, fedBytes: 2 ** 20 } } as const;
    const { page, succeeded } = await check(found([1.0005, 2.002], [sampling]));
    expect(succeeded).toBe(true);
    const row = ['30', '1.00', '2.000', '5.0e-4', '0.500', '1.0e-3', '8.0', '0.50', '1024', '–'];
    expect(rowsOf(page)[1].slice(1)).toEqual(row);
  });

  it.each<[string, Ask, RegExp]>([
    ['log-probabilities are off', found([1.01, 2]), /^- tiny logProbs: differ by 1\.0e-2 from .*; allowed: 0\.001$/m],
    ['a log-probability is not finite', found([NaN, 2]), /^- tiny logProbs: differ by NaN /m],
    ['the gradient is off', found([1, 2.1]), /^- tiny gradient: differ by 5\.0e-2 from .*; allowed: 0\.01$/m],
    [
      'a part fails',
      found([1, 2], [{ part: 'sampling', failed: 'no memory\n  Buy some.' }]),
      /^- tiny sampling: no memory Buy some\.$/m,
    ],
  ])('fails where %s, and says so', async (_, ask, line) => {
    const { page, succeeded } = await check(ask);
    expect(succeeded).toBe(false);
    expect(page).toMatch(line);
  });
});
