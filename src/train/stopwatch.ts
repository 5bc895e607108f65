/** Where the seconds of an iteration go. */

export type Phase = 'rollout' | 'render' | 'judge' | 'exchange' | 'reference' | 'update';

/** Adds up the seconds of phases; the rest is `other`. */
export class Stopwatch {
  readonly #start = performance.now();
  readonly #seconds: Record<Phase, number> = { rollout: 0, render: 0, judge: 0, exchange: 0, reference: 0, update: 0 };

  async time<T>(phase: Phase, work: () => Promise<T>): Promise<T> {
    const start = performance.now();
    try {
      return await work();
    } finally {
      this.#seconds[phase] += (performance.now() - start) / 1000;
    }
  }

  /** Seconds since it was made. */
  elapsed(): number {
    return (performance.now() - this.#start) / 1000;
  }

  /** `time/<phase>`, `time/other` and `time/total` in seconds. */
  times(): Record<string, number> {
    const total = this.elapsed();
    const phases = Object.entries(this.#seconds);
    const claimed = phases.reduce((sum, [, seconds]) => sum + seconds, 0);
    return {
      'time/total': total,
      ...Object.fromEntries(phases.map(([phase, seconds]) => [`time/${phase}`, seconds])),
      'time/other': total - claimed,
    };
  }
}
