import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Place } from '../e2e/editrl.js';
import { build } from '../support/build.js';

let place: Place;
beforeAll(() => {
  build();
  place = Place.make();
});
afterAll(() => place.remove());

const CONFIG = 'experiments/foreign/quadratic.jsonnet';
const CPU = { CUDA_VISIBLE_DEVICES: '' };

interface Report {
  readonly processes: number;
  readonly ranks: readonly { rank: number; pid: number; free_bytes: number; bytes_per_second: number | null }[];
}

describe('editrl launch-check', () => {
  it('lets two processes meet and says what each has', async () => {
    const { code, out } = await place.call(['launch-check', CONFIG, '--json'], CPU);
    expect(code).toBe(0);
    const { processes, ranks } = JSON.parse(out) as Report;
    expect([processes, ranks.map(({ rank }) => rank)]).toEqual([2, [0, 1]]);
    expect(new Set(ranks.map(({ pid }) => pid)).size).toBe(2);
    for (const rank of ranks) {
      expect(rank.bytes_per_second).toBeGreaterThan(0);
      expect(rank.free_bytes).toBeGreaterThan(0);
    }
  });

  it('has nobody to meet alone', async () => {
    const { code, out } = await place.call(['launch-check', CONFIG, '--set', 'launch.processes=1'], CPU);
    expect([code, out]).toEqual([0, expect.stringContaining('nobody to meet')]);
  });

  it('names the rank that failed', async () => {
    const env = '--set=launch.env.NODE_OPTIONS="--require=/nowhere/at/all.cjs"';
    const { code, err } = await place.call(['launch-check', CONFIG, env], CPU);
    expect(code).toBe(1);
    expect(err).toMatch(/rank [01] of 2 ended with exit code 1/);
  });
});
