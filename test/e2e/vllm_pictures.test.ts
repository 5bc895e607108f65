/**
 * A run whose policy sees and whose answers vLLM samples. The stand-in sees by eyes of its own, so that what it samples and what the trainer computes
 * agree only if pictures arrive as they are.
 */
import { mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { StubProgram } from '../train/policies/vllm/program.js';
import { expectFollowed, storedAnswers } from './sampled_runs.js';
import { edits, SeeingPlace } from './seeing_runs.js';

const [ITERATIONS, EPISODES, HELD_OUT] = [4, 8, 4];

it('learns from what the server samples of what both see alike', async () => {
  const own = await SeeingPlace.make(edits);
  const { place } = own;
  onTestFinished(() => place.remove());
  mkdirSync(join(place.dir, 'vllm'));
  const program = new StubProgram(join(place.dir, 'vllm'));
  const serve = { command: program.command };
  const whole = await own.start('whole', { iterations: ITERATIONS, episodes: EPISODES, heldOut: HELD_OUT, serve })
    .ended;
  expect(whole).toMatchObject({ code: 0, err: '' });
  expect(whole.out).toContain('(processed) and are used');
  const lines = place.metrics('whole').slice(1);
  expectFollowed(lines, ITERATIONS);
  expect(lines.some((line) => Number(line['policy/grad_norm']) > 0)).toBe(true);
  expect(own.weights('whole', ITERATIONS).equals(own.weights('whole', 2))).toBe(false);
  // Held-out answers come before and after training, sampled and most probable ones.
  expect(storedAnswers(place, 'whole')).toBe(ITERATIONS * EPISODES + 4 * HELD_OUT);
  expect(readdirSync(join(place.run('whole'), 'adapters'))).toEqual([]);

  const { args } = program.starts[0];
  const behind = (flag: string): unknown => JSON.parse(args[args.indexOf(flag) + 1]);
  expect(args[0]).toBe(own.model);
  expect(args).toContain('--enable-scale-out');
  expect(behind('--mm-processor-kwargs')).toMatchObject({ size: { shortest_edge: 1024 } });
  expect(behind('--media-io-kwargs')).toEqual({ video: { fps: 30 } });
  expect(behind('--max-model-len')).toBe(edits.contextSize);
}, 300_000);
