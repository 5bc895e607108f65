/** Detects whether a judge still scores the canaries as it did at first. Pure. */
import type { CanarySet } from './canary_set.js';

/** Scores by canary; a canary that the judge gave no scores for has the reason instead. */
export type CanaryScores = ReadonlyMap<string, readonly number[] | string>;

export interface CanaryFinding {
  /** Points from 0 to 10: the largest over the canaries of the mean absolute difference to the first scoring. */
  readonly drift: number;
  /** What is wrong, in words; empty if nothing is. */
  readonly alarms: readonly string[];
}

/**
 * Keeps the first scoring and compares later ones with it, whichever upstream they come from: the upstreams are meant to be equal judges. A canary
 * that got no scores at first is compared from its first scores on.
 */
export class DriftWatch {
  readonly #first = new Map<string, readonly number[]>();

  constructor(
    readonly set: Pick<CanarySet, 'pair'>,
    /** Points that one canary's scores may move on average. */
    readonly tolerance: number,
  ) {}

  /** What each canary got first. */
  get first(): ReadonlyMap<string, readonly number[]> {
    return this.#first;
  }

  compare(scores: CanaryScores): CanaryFinding {
    const alarms: string[] = [];
    let drift = 0;
    for (const [name, got] of scores) {
      if (typeof got === 'string') {
        alarms.push(`canary '${name}' got no scores: ${got}`);
        continue;
      }
      const first = this.#first.get(name);
      if (first === undefined) {
        this.#first.set(name, got);
        continue;
      }
      const moved = meanDifference(first, got);
      drift = Math.max(drift, moved);
      if (moved > this.tolerance) {
        alarms.push(`canary '${name}' got ${got.join(', ')} where it first got ${first.join(', ')}`);
      }
    }
    const [better, worse] = this.set.pair.map((name) => scores.get(name));
    if (typeof better === 'object' && typeof worse === 'object' && !(better[0] > worse[0])) {
      alarms.push(
        `the judge may not see the images: '${this.set.pair[0]}' got ${better[0]} and '${this.set.pair[1]}', which differs in the image alone and is wrong, got ${worse[0]}`,
      );
    }
    return { drift, alarms };
  }
}

function meanDifference(a: readonly number[], b: readonly number[]): number {
  if (a.length !== b.length || a.length === 0) return 10;
  return a.reduce((sum, value, i) => sum + Math.abs(value - b[i]), 0) / a.length;
}
