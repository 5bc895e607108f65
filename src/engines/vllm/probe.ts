/** Finds out which log-probabilities a server gives: its `--logprobs-mode` cannot be queried. */
import type { Deadline } from '../../core/deadline.js';
import { must } from '../../core/errors.js';
import type { VllmClient } from './client.js';

/** `processed`: of the distribution that was sampled from; `raw`: before the temperature is applied; `other`: logits, or anything else. */
export type LogProbsMode = 'processed' | 'raw' | 'other';

const TEMPERATURES = [1, 2] as const;
const TOLERANCE = 0.02;

/**
 * Asks twice for one token of the two most probable ones, at two temperatures. Processed ones are renormalised over the two, and their
 * distance falls with the temperature; raw ones are the same at both.
 */
export async function probeLogProbs(
  client: VllmClient,
  model: string,
  prompt: readonly number[],
  within: Deadline,
): Promise<LogProbsMode> {
  const [cool, warm] = await Promise.all(
    TEMPERATURES.map(async (temperature): Promise<readonly [number, number] | null> => {
      const request = { model, prompt, temperature, max_tokens: 1, top_p: 1, top_k: 2, seed: 1, stop_token_ids: [] };
      const { top } = must(await client.complete({ ...request, logprobs: 2 }, within), `the served model ${model}`);
      const [first, second] = [...top].sort((a, b) => b - a);
      return second === undefined ? null : [first, second];
    }),
  );
  if (cool === null || warm === null) return 'other';
  const isClose = (a: number, b: number): boolean => Math.abs(a - b) <= TOLERANCE * Math.max(1, Math.abs(b));
  const mass = ([a, b]: readonly [number, number]): number => Math.exp(a) + Math.exp(b);
  const gap = ([a, b]: readonly [number, number]): number => a - b;
  if (isClose(mass(cool), 1) && isClose(mass(warm), 1) && isClose(2 * gap(warm), gap(cool))) return 'processed';
  const same = isClose(warm[0], cool[0]) && isClose(warm[1], cool[1]);
  return same && mass(cool) <= 1 + TOLERANCE ? 'raw' : 'other';
}
