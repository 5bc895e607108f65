import { describe, expect, it } from 'vitest';
import { episodeRange } from '../../src/launch/judge_questions.js';
import type { RunSettings } from '../../src/schema/run.js';

const settings = (type: string, refill: object | null): RunSettings =>
  ({ algorithm: { type }, rollout: { episodes_per_iteration: 8, refill } }) as unknown as RunSettings;

describe('the answers of an iteration', () => {
  it('are between those of the first round and those of all', () => {
    expect(episodeRange(settings('grpo', { rounds: 3 }))).toEqual({ from: 8, to: 32 });
  });

  it('are the same in every iteration where nothing is refilled', () => {
    expect(episodeRange(settings('grpo', null))).toBeNull();
    expect(episodeRange(settings('sft', { rounds: 3 }))).toBeNull();
    expect(episodeRange({ algorithm: { type: 'sft' } } as unknown as RunSettings)).toBeNull();
  });
});
