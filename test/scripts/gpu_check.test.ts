/** The page about a provider: what the CPU gives at the tiny size, and what fails. */
import fs, { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
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

/** A provider whose log-probabilities and gradient are these, beside 1 and 2 of the CPU. */
function found(values: readonly number[], besides: readonly Report[] = [], logProbs = 1): Ask {
  return async function* (job: Job) {
    if (job.kind === 'products') {
      yield { part: 'products', found: [{ side: 64, single: 4, chained: 16 }] };
      return;
    }
    const isReference = job.rounds === null;
    writeFileSync(
      job.values,
      new Uint8Array(Float32Array.from(isReference ? [...Array<number>(logProbs).fill(1), 2] : values).buffer),
    );
    if (!isReference) yield* besides;
    yield await Promise.resolve({ part: 'learning', found: { ...LEARNT, logProbs } });
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
    expect(page).toContain('`scripts/gpu_check --provider cpu --size tiny --threads 1` wrote this page.');
    const row = ['30', '1.00', '2.000', '5.0e-4', '0.500', '1.0e-3', '8.0', '0.50', '1024', '–'];
    expect(rowsOf(page)[1].slice(1)).toEqual(row);
  });

  it.each<[string, Ask, RegExp]>([
    ['log-probabilities are off', found([1.01, 2]), /^- tiny logProbs: differ by 1\.0e-2 from .*; allowed: 0\.001$/m],
    ['a log-probability is not finite', found([NaN, 2]), /^- tiny logProbs: differ by NaN /m],
    ['an earlier one is not', found([NaN, 1, 2], [], 2), /^- tiny logProbs: differ by NaN /m],
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

  describe('with an nvidia-smi', () => {
    const folder = mkdtempSync(join(tmpdir(), 'editrl-smi-'));
    afterAll(() => rmSync(folder, { recursive: true }));
    const { existsSync } = fs;
    beforeAll(() => {
      fs.existsSync = (path) => path === '/dev/nvidia0' || existsSync(path);
      syncBuiltinESMExports();
    });
    afterAll(() => {
      fs.existsSync = existsSync;
      syncBuiltinESMExports();
    });
    const checked = async (script: string) => {
      writeFileSync(join(folder, 'nvidia-smi'), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
      vi.stubEnv('PATH', `${folder}:${process.env['PATH'] ?? ''}`);
      vi.stubEnv('CUDA_VISIBLE_DEVICES', undefined);
      const { page, succeeded } = await gpuCheck({ ...tiny, provider: 'cuda' }, () => {}, found([1, 2]));
      vi.unstubAllEnvs();
      return { page, succeeded, held: rowsOf(page)[1].at(-1) };
    };

    it('counts what its GPU held before as nothing', async () => {
      expect(await checked('echo "0, GPU-0, card, 24000, 500"')).toMatchObject({ succeeded: true, held: '0.00' });
    });

    it('that fails reports it once, and continues', async () => {
      const { page, ...rest } = await checked('echo broken driver\nexit 9');
      expect(rest).toEqual({ succeeded: false, held: '–' });
      expect(page.match(/^- the GPU: .*broken driver/gm)).toHaveLength(1);
    });
  });
});
