/** The prompts of an iteration in the order in which they are drawn. */
import type { SamplePlace } from '../data/sampler.js';
import type { Prompt, Task } from '../scoring/task.js';

export interface DrawOptions<P extends Prompt> {
  readonly iteration: number;
  readonly task: Pick<Task<P, never>, 'promptsPerIteration' | 'order' | 'prompt'>;
  /** The largest number of rounds after the first. */
  readonly refills: number;
}

/**
 * The first round takes the iteration's part of the ordinary order. Further rounds take their part of an order of their own, so that every prompt is a
 * pure function of the settings, the iteration and its number, however many prompts the iterations before have taken.
 */
export class Draws<P extends Prompt> {
  readonly prompts: P[] = [];
  /** Of each prompt its place; null where it follows from the iteration and the prompt's number. */
  readonly places: (SamplePlace | null)[] = [];
  /** Prompts of each round. */
  readonly rounds: number[] = [];

  private constructor(private readonly options: DrawOptions<P>) {}

  /** Draws the first round. */
  static async begin<P extends Prompt>(options: DrawOptions<P>): Promise<Draws<P>> {
    const draws = new Draws(options);
    await draws.next(options.task.promptsPerIteration);
    return draws;
  }

  /** Draws a round; there is none of no prompts. */
  async next(count: number): Promise<readonly P[]> {
    if (count === 0) return [];
    const { iteration, task } = this.options;
    const drawn = this.prompts.length;
    const places = Array.from({ length: count }, (_, i) => this.#place(drawn + i));
    const ordinary = (iteration - 1) * task.promptsPerIteration + drawn;
    const prompts = await Promise.all(places.map((place, i) => task.prompt(place ?? ordinary + i)));
    this.prompts.push(...prompts);
    this.places.push(...places);
    this.rounds.push(count);
    return prompts;
  }

  /** The place of the iteration's n-th prompt. */
  #place(n: number): SamplePlace | null {
    const { iteration, task, refills } = this.options;
    const { promptsPerIteration: planned, order } = task;
    return n < planned ? null : order.refill((iteration - 1) * planned * refills + n - planned);
  }
}
