/** Whole runs that see, sampled by a real vLLM that they start: it sees what the trainer sees. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { hasFfmpeg } from '../data/video/odd_files.js';
import { EXACT, hasVllm, LEFT_OUT, ON_CPU, VLLM } from '../train/policies/vllm/real_vllm.js';
import { expectFollowed } from './sampled_runs.js';
import { clips, edits, SeeingPlace, type Seeing } from './seeing_runs.js';

const LONGEST_MS = 900_000;
const ITERATIONS = 3;

async function followsTraining(seeing: Seeing): Promise<void> {
  const overlays = [...seeing.overlays, 'test/e2e/vllm_heads.libsonnet'];
  const own = await SeeingPlace.make({ ...seeing, overlays }, ON_CPU);
  const { place } = own;
  try {
    const serve = { command: VLLM, flags: EXACT };
    const ended = await own.start('whole', { iterations: ITERATIONS, episodes: 8, heldOut: 4, serve }).ended;
    expect(ended.code, ended.err).toBe(0);
    expect(ended.out).toContain('(processed) and are used');
    const lines = place.metrics('whole').slice(1);
    expectFollowed(lines, ITERATIONS);
    const found = ['policy/rollout_mismatch', 'policy/importance_max'].map(
      (key) => `${key} ${lines.map((line) => line[key]).join(' ')}`,
    );
    console.info(`${seeing.config}: ${found.join('; ')}`);
    // What it samples from after the first iteration is not what it was started with.
    expect(lines.slice(0, -1).some((line) => Number(line['policy/grad_norm']) > 0)).toBe(true);
    expect(own.weights('whole', ITERATIONS).equals(own.weights('whole', 2))).toBe(false);
    expect(readdirSync(join(place.run('whole'), 'adapters'))).toEqual([]);
  } finally {
    place.remove();
  }
}

describe.skipIf(!hasVllm)(`a real vLLM${LEFT_OUT}`, () => {
  it('samples edits of images, described by an adapter', () => followsTraining(edits), LONGEST_MS);

  it.skipIf(!hasFfmpeg)(
    `answers questions on clips with all weights${hasFfmpeg ? '' : ' (skipped without ffmpeg)'}`,
    () => followsTraining(clips),
    LONGEST_MS,
  );
});
