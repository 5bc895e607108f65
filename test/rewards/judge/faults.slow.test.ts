import { describe, expect, it } from 'vitest';
import { faultNames } from '../rule_judge/faults.js';
import { inAStorm } from './under_faults.js';

describe('judgements while requests fail', () => {
  it('in every way there is are right or masked: none wrong, none of another episode, none lost', async () => {
    const { tally, met } = await inAStorm(256);
    expect(tally.right).toBeGreaterThan(200);
    expect(faultNames.filter((name) => !met.includes(name))).toEqual([]);
  });
});
