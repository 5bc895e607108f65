/** Drawing a token in plain loops, as vLLM processes logits. */
import type { StubRules } from './stub_rules.js';

export interface Sampling {
  readonly max_tokens: number;
  readonly temperature: number;
  readonly top_p: number;
  readonly top_k: number;
  readonly seed: number;
  readonly stop_token_ids: readonly number[];
  readonly logprobs?: number;
  readonly extra_args?: { readonly editrl_rules?: StubRules };
}

export function logSoftmax(logits: readonly number[]): number[] {
  const top = Math.max(...logits);
  const total = Math.log(logits.reduce((sum, x) => sum + Math.exp(x - top), 0));
  return logits.map((x) => x - top - total);
}

/** After temperature, top-k and top-p, renormalised over the tokens that are left. */
export function processedOf(logits: readonly number[], { temperature, top_k, top_p }: Sampling): number[] {
  const scaled = logSoftmax(logits.map((x) => x / (temperature === 0 ? 1 : temperature)));
  const order = scaled.map((x, i) => [x, i] as const).sort((a, b) => b[0] - a[0]);
  const kept = new Set<number>();
  let mass = 0;
  for (const [x, i] of order) {
    if ((top_k > 0 && kept.size >= top_k) || mass >= top_p) break;
    kept.add(i);
    mass += Math.exp(x);
  }
  return logSoftmax(scaled.map((x, i) => (kept.has(i) ? x : -Infinity)));
}

export function draw(logProbs: readonly number[], u: number): number {
  let left = u;
  for (const [id, logProb] of logProbs.entries()) {
    left -= Math.exp(logProb);
    if (left < 0) return id;
  }
  return indexOfLargest(logProbs);
}

export function indexOfLargest(values: readonly number[]): number {
  return values.reduce((best, x, i) => (x > values[best] ? i : best), 0);
}
