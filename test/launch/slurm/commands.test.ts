import { describe, expect, it } from 'vitest';
import { parseJobId } from '../../../src/launch/slurm/commands.js';

describe('the job that sbatch names', () => {
  it.each([
    ['4711\n', '4711', null],
    ['4711;alpha\n', '4711', 'alpha'],
    [
      '\n-----\n   Welcome to the Example3 Supercomputer\n-----\n\n--> Verifying access (gpu)...OK\n4711\n',
      '4711',
      null,
    ],
    ['sbatch: This job will be charged to the account lab\n4711\n', '4711', null],
    ['Submitted batch job 4711 on cluster alpha\n', '4711', 'alpha'],
    ['Submitted batch job 4711\n', '4711', null],
    ['2026\nquota: 90 of 100 hours\n4711;beta-2\r\n\n', '4711', 'beta-2'],
  ])('in %j is %s on %s', (out, id, cluster) => {
    expect(parseJobId(out)).toEqual({ id, cluster });
  });

  it.each(['', 'sbatch: queued\n', 'job 4711 was accepted\n', '47.11\n'])('is not in %j', (out) => {
    expect(parseJobId(out)).toBeNull();
  });
});
