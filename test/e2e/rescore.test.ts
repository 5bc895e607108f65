import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import type { RescoreSummary } from '../../src/train/rescore/rescore_summary.js';
import { Place, RL } from './editrl.js';

let place: Place;
let before: Map<string, string>;
beforeAll(() => {
  place = Place.make(inject('template'));
  before = ownFiles();
});
afterAll(() => place.remove());

/** The run's files but those that rescoring writes. */
function ownFiles(): Map<string, string> {
  const entries = readdirSync(place.run(RL), { recursive: true, withFileTypes: true }).filter((one) => one.isFile());
  const files = entries.map((one) => join(one.parentPath, one.name)).filter((name) => !name.includes('/rescored/'));
  return new Map(files.map((name) => [name, createHash('sha256').update(readFileSync(name)).digest('hex')]));
}

async function rescore(...args: readonly string[]): Promise<RescoreSummary> {
  const ended = await place.call(['rescore', RL, '--json', ...args]);
  expect(ended).toMatchObject({ code: 0, err: '' });
  return JSON.parse(ended.out) as RescoreSummary;
}

describe('editrl rescore', () => {
  it('finds every judgement of a run in its records, without a judge', async () => {
    const summary = await rescore('--offline', '--name', 'same');
    // 6 iterations of 16, and 16 prompts sampled and greedy at 0, 3 and 6.
    expect(summary).toMatchObject({ episodes: 6 * 16 + 3 * 2 * 16, not_rescored: {}, differ: 0 });
    expect(summary.judgements).toMatchObject({ asked: 0, missing: 0 });
    const training = summary.rows.filter(({ set }) => set === 'training');
    const metrics = place.metrics(RL).slice(1);
    expect(training.map(({ rescored_mean }) => rescored_mean)).toEqual(
      metrics.map((line) => expect.closeTo(Number(line['reward/mean']), 9) as number),
    );
    const greedy = summary.rows.filter(({ set }) => set === 's/greedy').map(({ rescored_mean }) => rescored_mean);
    const evaluated = place.metrics(RL).filter((line) => 'validation/s/greedy/mean' in line);
    expect(greedy).toEqual(
      evaluated.map((line) => expect.closeTo(Number(line['validation/s/greedy/mean']), 9) as number),
    );
    expect(existsSync(join(place.run(RL), 'rescored/same.jsonl'))).toBe(true);
  });

  it('scores by a reward that asks no one', async () => {
    const summary = await rescore('--reward', 'jpeg_size');
    expect(summary).toMatchObject({ reward: 'jpeg_size', recorded_reward: 'viescore', not_rescored: {} });
    expect(summary.judgements).toMatchObject({ asked: 0, replayed: 0 });
  });

  it('asks the judge for what was never asked, where the data allow it', async () => {
    const offline = await rescore('--reward', 'ground_score', '--offline', '--name', 'ground_offline');
    expect(offline.rescored.scored).toBe(0);
    const summary = await rescore('--reward', 'ground_score');
    expect(summary.not_rescored).toEqual({ 'its prompt has no labeled result': 96 });
    expect(summary.judgements.asked).toBeGreaterThan(0);
    expect(summary.rescored.scored + summary.rescored.zero_by_rule).toBe(96);
  });

  it('leaves the files of the run as they were', () => {
    expect(ownFiles()).toEqual(before);
  });

  it('rejects what is not a reward, with exit code 2', async () => {
    const mode = await place.call(['rescore', RL, '--reward', 'beauty']);
    expect(mode.code).toBe(2);
    expect(mode.err).toContain('reward.mode: found "beauty"');
    const other = await place.call(['rescore', RL, '--set', 'seed=3']);
    expect(other.code).toBe(2);
    expect(other.err).toContain('Only the reward can change');
  });
});
