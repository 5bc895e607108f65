import { describe, expect, it } from 'vitest';
import { parseTime, planArrays, type ArrayPlan } from '../../../src/launch/slurm/jobs.js';
import { externalRun } from './support.js';

const nothing = { finished: new Set<string>(), underWay: new Set<string>() };
const names = (plans: readonly ArrayPlan[]): string[][] => plans.map((plan) => plan.runs.map((run) => run.run_name));

describe('arrays', () => {
  it('hold the runs that ask for the same, one array per shape', () => {
    const plans = planArrays(
      [
        externalRun('a'),
        externalRun('big', { slurm: { gres: 'gpu:2', mem: '64G' } }),
        externalRun('b'),
        externalRun('wide', { launch: { processes: 4 } }),
      ],
      nothing,
    );
    expect(names(plans)).toEqual([['a', 'b'], ['big'], ['wide']]);
    expect(plans[1].resources).toEqual({ time: '10', gres: 'gpu:2', cpus_per_task: 1, mem: '64G', extra: [] });
    expect(plans[2].resources.cpus_per_task).toBe(4);
  });

  it('come after those of their parents, and wait for their own parents only', () => {
    const plans = planArrays(
      [
        externalRun('rl_1', { parents: ['sft_1'] }),
        externalRun('rl_2', { parents: ['sft_2'] }),
        externalRun('rl_1b', { parents: ['sft_1'] }),
        externalRun('sft_1', { parents: ['vq'] }),
        externalRun('sft_2', { parents: ['vq'] }),
        externalRun('vq'),
      ],
      nothing,
    );
    expect(names(plans)).toEqual([['vq'], ['sft_1', 'sft_2'], ['rl_1', 'rl_1b'], ['rl_2']]);
    expect(plans.map((plan) => plan.after)).toEqual([[], ['vq'], ['sft_1'], ['sft_2']]);
  });

  it('do not wait for a finished parent, and do for one that is under way', () => {
    const child = externalRun('child', { parents: ['done', 'busy'] });
    const known = { finished: new Set(['done']), underWay: new Set(['busy']) };
    expect(planArrays([child], known)[0].after).toEqual(['busy']);
    expect(() => planArrays([child], nothing)).toThrow(
      "'child' starts from 'done', which is neither finished nor submitted",
    );
  });

  it('have no more tasks than a Slurm allows by default', () => {
    const runs = Array.from({ length: 2001 }, (_, index) => externalRun(`r${index}`));
    expect(planArrays(runs, nothing).map((plan) => plan.runs.length)).toEqual([1000, 1000, 1]);
  });

  it('reject a signal that would come before the job has begun', () => {
    expect(() => planArrays([externalRun('a', { slurm: { time: '2', signal_before_s: 120 } })], nothing)).toThrow(
      "launch.slurm.signal_before_s: found 120; allowed: less than the time limit, 120 s (launch.slurm.time '2')",
    );
    expect(() => planArrays([externalRun('a', { slurm: { time: 'an hour' } })], nothing)).toThrow(
      "launch.slurm.time: found 'an hour'; allowed: minutes",
    );
  });
});

describe('time limits', () => {
  it.each([
    ['90', 5400],
    ['90:30', 5430],
    ['04:00:00', 14_400],
    ['2-12', 216_000],
    ['1-01:30', 91_800],
    ['1-01:30:05', 91_805],
    ['UNLIMITED', Infinity],
    ['4h', null],
    ['', null],
  ])('%s', (text, seconds) => {
    expect(parseTime(text)).toBe(seconds);
  });
});
