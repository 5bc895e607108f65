/**
 * Replaces groups with zero variance by groups of further prompts, for a limited number of rounds. Replaced groups are
 * recorded and carry no loss.
 * This is the dynamic sampling of DAPO (arXiv 2503.14476), which continues until a batch is full.
 */
import type { ProcessGroup } from '../core/group/process_group.js';
import type { Outcome } from '../rewards/score/types.js';
import type { GroupAdvantages, Spread } from './advantages.js';
import type { SamplePlace } from '../data/sampler.js';
import type { Prompt, Task } from './scoring/task.js';

/** Whether a group has no variance or was dropped. */
export const lacksSpread = ({ dropped, zeroSpread }: Spread): boolean => dropped || zeroSpread;

export interface Refilling<P> {
  /** Maximum number of further rounds. */
  readonly rounds: number;
  readonly spread: (outcomes: readonly Outcome[]) => Spread;
  readonly group: Pick<ProcessGroup, 'allGather'>;
  /** Draws the next prompts of the iteration. */
  readonly draw: (count: number) => Promise<readonly P[]>;
}

/**
 * Returns the prompts to add after a round, given the outcomes of this rank's part: one prompt for each group without
 * variance on any rank. Returns no prompts if there is no such group, or after the last round. Every rank calls it and
 * gets the same prompts.
 */
export function refilling<P>({ rounds, spread, group, draw }: Refilling<P>) {
  let left = rounds;
  return async (own: readonly (readonly Outcome[])[]): Promise<readonly P[]> => {
    if (left === 0) return [];
    left -= 1;
    const lacking = await group.allGather(own.filter((outcomes) => lacksSpread(spread(outcomes))).length);
    return draw(lacking.reduce((sum, count) => sum + count, 0));
  };
}

/** Selects the groups of an iteration that are learned from. */
export class KeptGroups {
  readonly #kept: readonly number[];

  /**
   * @param rounds the groups of each round. Groups of a later round replace the groups without variance of the
   * previous round.
   */
  constructor(
    private readonly rounds: readonly number[],
    private readonly spreads: readonly Spread[],
  ) {
    const last = spreads.length - (rounds.at(-1) ?? 0);
    this.#kept = spreads.flatMap((spread, g) => (lacksSpread(spread) && g < last ? [] : [g]));
  }

  /** Selects the entries of the groups that are learned from. */
  pick<T>(all: readonly T[]): T[] {
    return this.#kept.map((g) => all[g]);
  }

  /**
   * Expands the advantages of the groups that are learned from to all groups. The others are dropped. `answers` is the
   * number of answers in a group.
   */
  place(kept: readonly GroupAdvantages[], answers: number): GroupAdvantages[] {
    const at = new Map(this.#kept.map((g, i) => [g, i]));
    const none = new Array<null>(answers).fill(null);
    return this.spreads.map(({ zeroSpread }, g) => {
      const i = at.get(g);
      return i === undefined ? { advantages: none, dropped: true, zeroSpread } : kept[i];
    });
  }

  /**
   * Numbers of sampled groups, of groups that replaced others, and of groups without variance that are learned from.
   */
  metrics(): Record<string, number> {
    return {
      'group/sampled': this.spreads.length,
      'group/refilled': this.spreads.length - this.rounds[0],
      'group/unfilled': this.pick(this.spreads).filter(lacksSpread).length,
    };
  }
}

interface DrawOptions<P extends Prompt> {
  readonly iteration: number;
  readonly task: Pick<Task<P, never>, 'order' | 'prompt'>;
  /** Number of prompts in the first round. */
  readonly planned: number;
  /** Maximum number of rounds after the first. */
  readonly refills: number;
}

/**
 * Draws prompts. The first round takes the iteration's part of the ordinary order. Further rounds take their part of a
 * separate order. So every prompt is a pure function of the settings, the iteration and its number, whatever previous
 * iterations have drawn.
 */
export class Draws<P extends Prompt> {
  readonly prompts: P[] = [];
  /** The place of each prompt. Null if it follows from the iteration and the prompt's number. */
  readonly places: (SamplePlace | null)[] = [];
  /** Number of prompts in each round. */
  readonly rounds: number[] = [];

  private constructor(private readonly options: DrawOptions<P>) {}

  /** Draws the first round. */
  static async begin<P extends Prompt>(options: DrawOptions<P>): Promise<Draws<P>> {
    const draws = new Draws(options);
    await draws.next(options.planned);
    return draws;
  }

  /** Draws a round. Zero prompts make no round. */
  async next(count: number): Promise<readonly P[]> {
    if (count === 0) return [];
    const { iteration, task, planned } = this.options;
    const drawn = this.prompts.length;
    const places = Array.from({ length: count }, (_, i) => this.#place(drawn + i));
    const ordinary = (iteration - 1) * planned + drawn;
    const prompts = await Promise.all(places.map((place, i) => task.prompt(place ?? ordinary + i)));
    this.prompts.push(...prompts);
    this.places.push(...places);
    this.rounds.push(count);
    return prompts;
  }

  /** The place of the iteration's n-th prompt. */
  #place(n: number): SamplePlace | null {
    const { iteration, task, planned, refills } = this.options;
    return n < planned ? null : task.order.refill((iteration - 1) * planned * refills + n - planned);
  }
}
