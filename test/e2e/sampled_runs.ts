/** Runs whose answers a server samples that they start. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import type { StubProgram } from '../train/policies/vllm/program.js';
import { childrenOf, isRunning, until, type Live, type Place } from './editrl.js';

/** How many answers a run has stored. */
export function storedAnswers(place: Place, run: string): number {
  const file = join(place.run(run), 'answers.jsonl');
  return existsSync(file) ? readFileSync(file, 'utf8').split('\n').length - 1 : 0;
}

/** That so many iterations learnt from answers whose log-probabilities are the trainer's own, but for rounding. */
export function expectFollowed(lines: readonly Readonly<Record<string, unknown>>[], iterations: number): void {
  expect(lines).toHaveLength(iterations);
  for (const line of lines) {
    expect(line['policy/rollout_mismatch']).toBeGreaterThan(0);
    expect(line['policy/rollout_mismatch']).toBeLessThan(1e-4);
    expect(line['policy/importance_mean']).toBeCloseTo(1, 4);
    expect(line['policy/importance_cut']).toBe(0);
  }
}

/** A run that is to be killed within an iteration. */
export interface CutOff {
  readonly place: Place;
  /** The server that it starts. */
  readonly program: StubProgram;
  readonly run: string;
  readonly start: () => Live;
  /** Answers that it stores before the iteration. */
  readonly before: number;
  /** Answers of the iteration that the server gives; it withholds the others. */
  readonly given: number;
}

/** Starts a run, kills it once answers of the iteration are stored, and mends its server. Returns how many answers it has stored. */
export async function killWithin({ place, program, run, start, before, given }: CutOff): Promise<number> {
  program.stall(before + given);
  const live = start();
  await until('answers of the iteration are stored', () => !live.isAlive() || storedAnswers(place, run) > before);
  const started = childrenOf(live.pid);
  live.kill('SIGKILL');
  expect(await live.ended).toMatchObject({ signal: 'SIGKILL' });
  await until('everything that it started has ended', () => !started.some(isRunning));
  expect(started.length).toBeGreaterThan(1);
  program.mend();
  return storedAnswers(place, run);
}
