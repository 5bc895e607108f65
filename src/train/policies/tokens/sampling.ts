/** Draws a token from a row of logits. */
import { must } from '../../../core/errors.js';
import { combineMasses, type Part, type TokenRow } from './token_row.js';
import type { RolloutSettings, ValidationSettings } from '../../../config/schema/training.js';

export interface SamplingOptions {
  /** 0 takes the most probable token. */
  readonly temperature: number;
  /** 1 keeps all tokens. */
  readonly topP: number;
  /** -1 keeps all tokens. */
  readonly topK: number;
}

/** Sampling settings of a token policy. */
export interface TokenSampling extends SamplingOptions {
  readonly maxTokens: number;
  /** Temperature of the recorded log-probabilities. Greedy sampling does not change it. */
  readonly logProbTemperature: number;
}

/**
 * Draws a token id from softmax(logits / temperature). Allows the tokens in `mask` (null: all), then keeps the `topK`
 * most probable ones, and then the smallest set of probability `topP`. `u` is uniform in [0, 1).
 */
export function sampleToken(row: TokenRow, mask: Uint8Array | null, options: SamplingOptions, u: number): number {
  const { temperature, topK, topP } = options;
  if (temperature > 0 && (topK !== -1 || topP !== 1)) return drawFromHead(row, mask, options, u);
  const parts = row.parts(mask);
  return temperature === 0 ? mostProbable(row, mask, parts) : draw(row, mask, parts, temperature, u);
}

/** The first id with the greatest logit. */
function mostProbable(row: TokenRow, mask: Uint8Array | null, parts: readonly Part[]): number {
  const tops = parts.map((part) => row.top(part, mask));
  const top = Math.max(...tops);
  const { from, to } = must(parts[Math.max(0, tops.indexOf(top))], 'a token that may come');
  let best = -1;
  for (let id = from; id < to; id++) {
    if ((mask === null || mask[id] === 1) && (best < 0 || row.logits[id] > row.logits[best])) best = id;
  }
  return best;
}

/** Inverts the cumulative distribution, first over the parts and then over the ids of the selected part. */
function draw(row: TokenRow, mask: Uint8Array | null, parts: readonly Part[], temperature: number, u: number): number {
  const masses = parts.map((part) => row.mass(part, mask, temperature));
  const all = combineMasses(masses, temperature);
  const shares = masses.map(({ top, sum }) => sum * Math.exp((top - all.top) / temperature));
  let left = u * all.sum;
  const last = shares.findLastIndex((share) => share > 0);
  let hit = 0;
  while (hit < last && left >= shares[hit]) left -= shares[hit++];
  // The graph's sum of a block differs in its last bits from the sum over its ids below.
  const { from, to } = parts[hit];
  const { top, sum } = row.mass({ ...parts[hit], block: null }, mask, temperature);
  left *= sum / shares[hit];
  for (let id = from; id < to; id++) {
    if (mask !== null && mask[id] !== 1) continue;
    left -= Math.exp((row.logits[id] - top) / temperature);
    if (left < 0) return id;
  }
  return mostProbable(row, mask, [parts[hit]]);
}

/** Draws under top-k or top-p from the first tokens of the ranking. */
function drawFromHead(
  row: TokenRow,
  mask: Uint8Array | null,
  { temperature, topK, topP }: SamplingOptions,
  u: number,
): number {
  const { logits } = row;
  const ranking = new Ranking(row, mask);
  const ids: number[] = [];
  const p: number[] = [];
  const take = (): boolean => {
    const id = ranking.next();
    if (id < 0) return false;
    ids.push(id);
    p.push(Math.exp((logits[id] - logits[ids[0]]) / temperature));
    return true;
  };
  let all = 0;
  if (topK >= 1) {
    while (ids.length < topK && take()) all += p[ids.length - 1];
  } else {
    take();
    all = combineMasses(
      row.parts(mask).map((part) => row.mass(part, mask, temperature)),
      temperature,
    ).sum;
  }
  let kept = 0;
  let mass = 0;
  while (kept === 0 || mass < topP * all) {
    if (kept === ids.length && (topK >= 1 || !take())) break;
    mass += p[kept++];
  }
  let left = u * mass;
  for (let i = 0; i < kept; i++) {
    left -= p[i];
    if (left < 0) return ids[i];
  }
  return ids[0];
}

/**
 * log softmax(logits / temperature) of `token` over the ids in [from, to): the untruncated distribution that training
 * uses.
 */
export function logProbOf(row: TokenRow, token: number, temperature: number, from: number, to: number): number {
  const masses = row.parts(null, from, to).map((part) => row.mass(part, null, temperature));
  const { top, sum } = combineMasses(masses, temperature);
  return (row.logits[token] - top) / temperature - Math.log(sum);
}

/**
 * A heap of the ids that `mask` allows, or of all. `next` returns ids by falling logit, with ties by id, and finally
 * -1.
 * A part of the row enters only when it may contain the next id. So a nucleus of a few tokens sorts a few hundred ids
 * instead of 150,000.
 */
export class Ranking {
  readonly #ids: number[] = [];
  /** Parts that have not entered, the most probable last. */
  readonly #parts: { readonly part: Part; readonly bound: number }[];
  readonly #logits: Float32Array;

  constructor(
    row: TokenRow,
    private readonly mask: Uint8Array | null,
  ) {
    this.#logits = row.logits;
    this.#parts = row.parts(mask).map((part) => ({ part, bound: row.bound(part, mask) }));
    this.#parts.sort((a, b) => a.bound - b.bound);
  }

  next(): number {
    for (let next = this.#parts.at(-1); next !== undefined; next = this.#parts.at(-1)) {
      if (this.#ids.length > 0 && next.bound < this.#logits[this.#ids[0]]) break;
      this.#parts.pop();
      for (let id = next.part.from; id < next.part.to; id++) {
        if (this.mask === null || this.mask[id] === 1) this.#push(id);
      }
    }
    const first = this.#ids[0];
    const last = this.#ids.pop();
    if (first === undefined || last === undefined) return -1;
    if (this.#ids.length > 0) {
      this.#ids[0] = last;
      this.#sink();
    }
    return first;
  }

  #push(id: number): void {
    const ids = this.#ids;
    let at = ids.push(id) - 1;
    for (let parent = (at - 1) >> 1; at > 0 && this.#before(ids[at], ids[parent]); parent = (at - 1) >> 1) {
      [ids[at], ids[parent]] = [ids[parent], ids[at]];
      at = parent;
    }
  }

  #sink(): void {
    const ids = this.#ids;
    for (let at = 0; ;) {
      let best = at;
      for (let child = 2 * at + 1; child <= 2 * at + 2 && child < ids.length; child++) {
        if (this.#before(ids[child], ids[best])) best = child;
      }
      if (best === at) return;
      [ids[at], ids[best]] = [ids[best], ids[at]];
      at = best;
    }
  }

  #before(a: number, b: number): boolean {
    return this.#logits[a] > this.#logits[b] || (this.#logits[a] === this.#logits[b] && a < b);
  }
}

/** Sampling for training. */
export function samplingOf({ rollout }: { readonly rollout: RolloutSettings }): TokenSampling {
  const { temperature, top_p, top_k, max_response_tokens } = rollout;
  return { temperature, topP: top_p, topK: top_k, maxTokens: max_response_tokens, logProbTemperature: temperature };
}

/** Sampling of held-out answers: from the whole distribution, and greedily if requested. */
export function heldOutSampling({
  rollout,
  validation,
}: {
  readonly rollout: RolloutSettings;
  readonly validation: ValidationSettings;
}): Record<string, TokenSampling> {
  const sampled = {
    temperature: validation.temperature,
    topP: 1,
    topK: -1,
    maxTokens: rollout.max_response_tokens,
    logProbTemperature: 1,
  };
  return validation.greedy ? { sampled, greedy: { ...sampled, temperature: 0 } } : { sampled };
}
