/**
 * Groups that teach: those without spread are replaced by groups of further prompts, a bounded number of times (dynamic sampling: DAPO, arXiv
 * 2503.14476, which goes on until a batch is full). What was replaced stays recorded and carries no loss.
 */
import type { ProcessGroup } from '../core/group/process_group.js';
import type { Outcome } from '../rewards/score/types.js';
import type { GroupAdvantages, Spread } from './advantages.js';
import type { SamplePlace } from '../data/sampler.js';
import type { Prompt, Task } from './scoring/task.js';

/** Whether a group has no spread. */
export const lacksSpread = ({ dropped, zeroSpread }: Spread): boolean => dropped || zeroSpread;

export interface Refilling<P> {
  /** The largest number of further rounds. */
  readonly rounds: number;
  readonly spread: (outcomes: readonly Outcome[]) => Spread;
  readonly group: Pick<ProcessGroup, 'allGather'>;
  /** The next prompts of the iteration. */
  readonly draw: (count: number) => Promise<readonly P[]>;
}

/**
 * What is asked after a round, from the outcomes of this rank's part of it: a prompt for each group of all ranks that lacks spread. Nothing where none
 * does, or after the last round. Every rank calls it, and gets the same.
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

/** Which groups of an iteration are learned from. */
export class KeptGroups {
  readonly #taught: readonly number[];

  /**
   * @param rounds the groups of each round, each of which replace those of the round before that lack spread
   */
  constructor(
    private readonly rounds: readonly number[],
    private readonly spreads: readonly Spread[],
  ) {
    const last = spreads.length - (rounds.at(-1) ?? 0);
    this.#taught = spreads.flatMap((spread, g) => (lacksSpread(spread) && g < last ? [] : [g]));
  }

  /** Of one thing for each group, those of the groups that are learned from. */
  pick<T>(all: readonly T[]): T[] {
    return this.#taught.map((g) => all[g]);
  }

  /** Advantages of all groups from those of the groups that are learned from. The others are dropped. `answers` counts those of a group. */
  place(taught: readonly GroupAdvantages[], answers: number): GroupAdvantages[] {
    const at = new Map(this.#taught.map((g, i) => [g, i]));
    const none = new Array<null>(answers).fill(null);
    return this.spreads.map(({ zeroSpread }, g) => {
      const i = at.get(g);
      return i === undefined ? { advantages: none, dropped: true, zeroSpread } : taught[i];
    });
  }

  /** How many groups were sampled, how many of them in place of others, and how many that are learned from still lack spread. */
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
  /** Prompts of the first round. */
  readonly planned: number;
  /** The largest number of rounds after the first. */
  readonly refills: number;
}

/**
 * The first round takes the iteration's part of the ordinary order. Further rounds take their part of an order of their own, so that every prompt is a
 * pure function of the settings, the iteration and its number, however many prompts the iterations before have taken.
 */
export class Draws<P extends Prompt> {
  readonly prompts: P[] = [];
  /** Of each prompt its place. Null where it follows from the iteration and the prompt's number. */
  readonly places: (SamplePlace | null)[] = [];
  /** Prompts of each round. */
  readonly rounds: number[] = [];

  private constructor(private readonly options: DrawOptions<P>) {}

  /** Draws the first round. */
  static async begin<P extends Prompt>(options: DrawOptions<P>): Promise<Draws<P>> {
    const draws = new Draws(options);
    await draws.next(options.planned);
    return draws;
  }

  /** Draws a round. There is none of no prompts. */
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
