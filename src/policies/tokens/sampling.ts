/** Drawing a token from a row of logits. */
import { Ranking } from './ranking.js';

export interface SamplingOptions {
  /** 0 takes the most probable token. */
  readonly temperature: number;
  /** 1 keeps everything. */
  readonly topP: number;
  /** -1 keeps everything. */
  readonly topK: number;
}

/**
 * Draws from softmax(logits / temperature) over the tokens that `mask` allows (null: all), cut to the `topK` most probable and then to the
 * smallest set of probability `topP`. `u` is uniform in [0, 1). Returns the token's id.
 */
export function sampleToken(
  logits: Float32Array,
  mask: Uint8Array | null,
  options: SamplingOptions,
  u: number,
): number {
  let best = -1;
  for (let id = 0; id < logits.length; id++) {
    if ((mask === null || mask[id] === 1) && (best < 0 || logits[id] > logits[best])) best = id;
  }
  if (options.temperature === 0) return best;
  const top = logits[best];
  const scale = 1 / options.temperature;
  if (options.topK === -1 && options.topP === 1) {
    let total = 0;
    for (let id = 0; id < logits.length; id++) {
      if (mask === null || mask[id] === 1) total += Math.exp((logits[id] - top) * scale);
    }
    let left = u * total;
    for (let id = 0; id < logits.length; id++) {
      if (mask !== null && mask[id] !== 1) continue;
      left -= Math.exp((logits[id] - top) * scale);
      if (left < 0) return id;
    }
    return best;
  }
  return drawFromHead(logits, mask, options, u);
}

/** Draws where top-k or top-p cut: from the first tokens of the ranking alone. */
function drawFromHead(
  logits: Float32Array,
  mask: Uint8Array | null,
  { temperature, topK, topP }: SamplingOptions,
  u: number,
): number {
  const ranking = new Ranking(logits, mask);
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
    for (let id = 0; id < logits.length; id++) {
      if (mask === null || mask[id] === 1) all += Math.exp((logits[id] - logits[ids[0]]) / temperature);
    }
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

/** log softmax(logits / temperature) of `token` over the ids in [from, to): the untruncated distribution that training sees. */
export function logProbOf(logits: Float32Array, token: number, temperature: number, from: number, to: number): number {
  let top = -Infinity;
  for (let id = from; id < to; id++) if (logits[id] > top) top = logits[id]!;
  let total = 0;
  for (let id = from; id < to; id++) total += Math.exp((logits[id] - top) / temperature);
  return (logits[token] - top) / temperature - Math.log(total);
}
