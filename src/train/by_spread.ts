/**
 * Prompts by spread: the training order is gone through as it is, but a prompt whose group had no spread when it was last asked is mostly passed over.
 * Which prompts an iteration asks then depends on the groups of earlier ones, so that the place reached and the prompts without spread are part of a
 * checkpoint.
 */
import { RandomStream } from '../core/random.js';
import type { TrainingOrder } from '../data/datasets.js';
import type { SamplePlace } from '../data/sampler.js';
import { isLacking, type Spread } from './refill.js';

/** The share of its turns in which a prompt without spread is asked. Above 0: a policy that has learnt may find spread where there was none. */
const ASKED_AGAIN = 0.25;

/** Plain data, as stored in a checkpoint. */
export interface SpreadState {
  /** The position of the ordinary order that comes next, counted from 0. */
  readonly next: number;
  /** By training dataset, the samples whose last group had no spread: their indices, ascending. */
  readonly lacking: readonly (readonly number[])[];
}

/** Knows which prompts had no spread when they were last asked. */
export class BySpread {
  /** By dataset and sample. */
  #lacking = new Map<number, Set<number>>();
  #next = 0;

  constructor(
    private readonly order: Pick<TrainingOrder, 'ordinary' | 'epochLength'>,
    private readonly seed: number,
  ) {}

  /** The way through the order that an iteration takes, from where the last one that was learnt from has left it. */
  walk(): SpreadWalk {
    const lacks = ({ source, index }: SamplePlace): boolean => this.#lacking.get(source)?.has(index) === true;
    return new SpreadWalk(this.#next, lacks, this.order, this.seed);
  }

  /** Takes in an iteration's groups, in the order in which it asked; where a sample was asked twice, its last group counts. */
  learn({ next, taken }: Pick<SpreadWalk, 'next' | 'taken'>, spreads: readonly Spread[]): void {
    this.#next = next;
    taken.forEach(({ source, index }, g) => {
      const own = this.#lacking.get(source) ?? new Set();
      this.#lacking.set(source, own);
      if (isLacking(spreads[g])) own.add(index);
      else own.delete(index);
    });
  }

  get state(): SpreadState {
    const sources = Math.max(-1, ...this.#lacking.keys()) + 1;
    const lacking = Array.from({ length: sources }, (_, source) =>
      [...(this.#lacking.get(source) ?? [])].sort((a, b) => a - b),
    );
    return { next: this.#next, lacking };
  }

  restore({ next, lacking }: SpreadState): void {
    this.#next = next;
    this.#lacking = new Map(lacking.map((indices, source) => [source, new Set(indices)]));
  }
}

/** One iteration's way. It passes over at most as many prompts as an epoch has, and takes those that follow as they come. */
export class SpreadWalk {
  readonly #taken: SamplePlace[] = [];
  #next: number;
  #passedOver = 0;

  constructor(
    next: number,
    private readonly lacks: (place: SamplePlace) => boolean,
    private readonly order: Pick<TrainingOrder, 'ordinary' | 'epochLength'>,
    private readonly seed: number,
  ) {
    this.#next = next;
  }

  /** The position that comes next. */
  get next(): number {
    return this.#next;
  }

  /** The places that it has come to. */
  get taken(): readonly SamplePlace[] {
    return this.#taken;
  }

  /** How many prompts it has passed over. */
  get passedOver(): number {
    return this.#passedOver;
  }

  /** The place of the next prompt to ask. */
  take(): SamplePlace {
    while (this.#passesOver(this.#next)) {
      this.#next++;
      this.#passedOver++;
    }
    const place = this.order.ordinary(this.#next++);
    this.#taken.push(place);
    return place;
  }

  #passesOver(position: number): boolean {
    if (this.#passedOver >= this.order.epochLength || !this.lacks(this.order.ordinary(position))) return false;
    return new RandomStream(this.seed, 'by_spread', position).uniform() >= ASKED_AGAIN;
  }
}
