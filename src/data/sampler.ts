/**
 * An endless, seeded order over several datasets. It keeps no state: which sample is the n-th is a pure function of the seed, the
 * sources' sizes and coefficients, and n, so that a resumed run continues where it stopped without saving anything.
 *
 * One epoch takes `coefficient * length` samples of each source: whole copies for the integer part and a fresh random part for
 * the remainder (so 0.25 samples a quarter, another one each epoch unless `part` is 'once'), all shuffled together.
 */
import { DataError } from '../core/errors.js';
import { RandomStream } from '../core/random.js';

export interface SamplerSource {
  readonly name: string;
  readonly length: number;
}

export interface SamplerOptions {
  readonly seed: number;
  /** The weight of each source in an epoch. An empty list raises all to the largest source's size. */
  readonly coefficients: readonly number[];
  /** Whether each epoch draws a new part of a source with a fraction (the default) or all use the same part. */
  readonly part?: 'each_epoch' | 'once';
  /** Names the order: orders of different names run independently through the same samples. Default: 'order'. */
  readonly order?: 'order' | 'refill';
}

/** A sample: its source's place in the list and its index there. */
export interface SamplePlace {
  readonly source: number;
  readonly index: number;
}

/** The place of a sample in an order. */
export interface OrderedPlace extends SamplePlace {
  /** Number of complete epochs before this position. */
  readonly epoch: number;
}

export interface Sampler {
  /** Samples of one epoch. */
  readonly epochLength: number;
  /** Samples that each source contributes to an epoch. */
  readonly perSource: readonly number[];
  /** The sample at a global position, counted from 0 over all epochs. */
  at(globalIndex: number): OrderedPlace;
}

function identity(length: number): number[] {
  return Array.from({ length }, (_, i) => i);
}

function checkedCoefficients(sources: readonly SamplerSource[], given: readonly number[]): readonly number[] {
  if (sources.length === 0) {
    throw new DataError('there is no dataset to sample from', { next: 'Name at least one in the config.' });
  }
  const empty = sources.find((source) => source.length === 0);
  if (empty !== undefined) throw new DataError('the dataset has no samples', { where: empty.name });
  if (given.length === 0) {
    const largest = Math.max(...sources.map((source) => source.length));
    return sources.map((source) => largest / source.length);
  }
  if (given.length !== sources.length) {
    throw new DataError(`${given.length} coefficients for ${sources.length} datasets`, {
      next: 'Give one coefficient for each dataset, or none to raise all to the largest.',
    });
  }
  const wrong = given.findIndex((value) => !Number.isFinite(value) || value <= 0);
  if (wrong >= 0) {
    throw new DataError(`the coefficient ${given[wrong]} is not a number above 0`, {
      where: sources[wrong].name,
      next: 'Use 1 for the whole dataset, 0.5 for half of it, 2 to take it twice; remove the dataset from the list to skip it.',
    });
  }
  return given;
}

/** Makes a sampler. Raises DataError for coefficients or sources that cannot be sampled. */
export function createSampler(sources: readonly SamplerSource[], options: SamplerOptions): Sampler {
  const coefficients = checkedCoefficients(sources, options.coefficients);
  // A source that is named contributes something, however small its coefficient.
  const perSource = sources.map((source, i) => Math.max(1, Math.round(source.length * coefficients[i])));
  const starts = perSource.map((_, i) => perSource.slice(0, i).reduce((sum, n) => sum + n, 0));
  const epochLength = perSource.reduce((sum, n) => sum + n, 0);

  interface Epoch {
    readonly number: number;
    readonly order: readonly number[];
    readonly parts: readonly (readonly number[])[];
  }
  // The orders of the current epoch are kept only for speed. They are recomputed when another epoch is requested.
  let kept: Epoch | null = null;
  const epochAt = (number: number): Epoch => {
    if (kept?.number === number) return kept;
    kept = {
      number,
      order: new RandomStream(options.seed, 'sampler', options.order ?? 'order', number).shuffled(
        identity(epochLength),
      ),
      parts: sources.map((source, i) =>
        new RandomStream(options.seed, 'sampler', 'part', i, options.part === 'once' ? 0 : number).shuffled(
          identity(source.length),
        ),
      ),
    };
    return kept;
  };

  return {
    epochLength,
    perSource,
    at(globalIndex) {
      if (!Number.isSafeInteger(globalIndex) || globalIndex < 0) {
        throw new DataError(`${globalIndex} is not a position in a dataset`);
      }
      const epoch = epochAt(Math.floor(globalIndex / epochLength));
      const slot = epoch.order[globalIndex % epochLength];
      const source = starts.findLastIndex((start) => start <= slot);
      const within = slot - starts[source];
      const { length } = sources[source];
      const whole = Math.floor(perSource[source] / length) * length;
      const index = within < whole ? within % length : epoch.parts[source][within - whole];
      return { source, index, epoch: epoch.number };
    },
  };
}
