/**
 * The datasets of a run: the training datasets, in an endless order, and held-out ones, with their names in metrics and
 * records.
 */
import { basename, dirname, extname } from 'node:path';
import { ConfigError, DataError } from '../core/errors.js';
import { createSampler, type SamplePlace, type SamplerOptions, type SamplerSource } from './sampler.js';

/** A dataset as a config names it. */
interface ListedSource {
  readonly path: string;
  readonly coefficient: number | null;
}

/** The run settings that its datasets depend on. */
export interface DatasetSettings<N extends ListedSource = ListedSource> {
  readonly seed: number;
  readonly data: {
    readonly train: readonly N[];
    readonly validation: readonly N[];
    readonly subset?: SamplerOptions['part'];
  };
}

/** Orders of training samples: pure functions of the datasets' sizes, the settings and a position, counted from 0. */
export interface TrainingOrder {
  /** The endless order of all iterations' prompts. */
  ordinary(globalIndex: number): SamplePlace;
  /** A separate order over the same samples, for prompts that replace others. */
  refill(globalIndex: number): SamplePlace;
  /** Samples of one epoch of either. */
  readonly epochLength: number;
}

export class Datasets<S extends SamplerSource> {
  readonly order: TrainingOrder;
  #named: readonly NamedSource<S>[] | null = null;

  /** Both lists are opened sources in the order of the settings. Raises the DataErrors of `createSampler`. */
  private constructor(
    private readonly settings: DatasetSettings,
    readonly train: readonly S[],
    readonly validation: readonly S[],
    private readonly pathOf: (path: string) => string,
  ) {
    const { seed, data } = settings;
    const coefficients = data.train.flatMap(({ coefficient }) => (coefficient === null ? [] : [coefficient]));
    const part = data.subset === undefined ? {} : { part: data.subset };
    const ordinary = createSampler(train, { seed, coefficients, ...part });
    const refill = createSampler(train, { seed, coefficients, ...part, order: 'refill' });
    const { epochLength } = ordinary;
    this.order = { ordinary: (n) => ordinary.at(n), refill: (n) => refill.at(n), epochLength };
  }

  /**
   * Opens every dataset. `pathOf` returns the source of names. Raises the DataErrors of `open`, and without training
   * samples.
   */
  static async open<S extends SamplerSource, N extends ListedSource>(
    settings: DatasetSettings<N>,
    open: (listed: N) => Promise<S>,
    pathOf = (path: string): string => path,
  ): Promise<Datasets<S>> {
    const { train, validation } = settings.data;
    const opened = await Promise.all(train.map(open));
    return new Datasets(settings, opened, await Promise.all(validation.map(open)), pathOf);
  }

  /** Like `open`, for sources that open synchronously. */
  static of<S extends SamplerSource, N extends ListedSource>(
    settings: DatasetSettings<N>,
    open: (listed: N) => S,
  ): Datasets<S> {
    const { train, validation } = settings.data;
    return new Datasets(settings, train.map(open), validation.map(open), (path) => path);
  }

  /** All datasets: those of `train`, then those of `validation`. */
  get sources(): readonly S[] {
    return [...this.train, ...this.validation];
  }

  /** The sources of `validation` with their names. Raises the ConfigErrors of `nameSources`. */
  get heldOut(): readonly NamedSource<S>[] {
    const paths = this.settings.data.validation.map(({ path }) => this.pathOf(path));
    return (this.#named ??= nameSources(paths, this.validation));
  }

  /** The training sample at a global position of the ordinary order, or at a place. Raises DataError for a place that is not there. */
  at(position: number | SamplePlace): { readonly source: S; readonly index: number } {
    const { source, index } = typeof position === 'number' ? this.order.ordinary(position) : position;
    const found = this.train.at(source);
    if (found !== undefined && index < found.length) return { source: found, index };
    throw new DataError(`there is no sample ${index} of training dataset ${source}`);
  }

  /** The held-out samples as prompts. */
  prompts<P>(promptOf: (source: S, index: number) => Promise<P>): HeldOutPrompts<P>[] {
    return this.heldOut.map(({ name, source }) => {
      return { name, length: source.length, prompt: (index) => promptOf(source, index) };
    });
  }
}

/** The prompts of a held-out set. */
interface HeldOutPrompts<P> {
  readonly name: string;
  readonly length: number;
  readonly prompt: (index: number) => Promise<P>;
}

/** A dataset with a name that metrics can carry. */
export interface NamedSource<S> {
  readonly name: string;
  readonly source: S;
}

/**
 * Names held-out sets after the folders around them: `…/tiny/s/validation/list/tokenized_datalist.json` and
 * `…/s/validation.jsonl` become `s`. Sets that would share a name, or whose path contains no folder, get their own name:
 * `…/earl/a_val` and `…/earl/b_val` become `a_val` and `b_val`. Raises ConfigError if names are still equal.
 */
export function nameSources<S>(paths: readonly string[], opened: readonly S[]): NamedSource<S>[] {
  const usual = paths.map(datasetOf).map((path) => {
    const folder = basename(dirname(path));
    return ['', '.', '..'].includes(folder) ? basename(path) : folder;
  });
  const named = opened.map((source, i) => {
    const shared = usual.some((name, j) => j !== i && name === usual[i]);
    return { name: shared ? basename(datasetOf(paths[i])) : usual[i], source };
  });
  for (const { name } of named) {
    const same = paths.filter((_, i) => named[i].name === name);
    if (same.length < 2) continue;
    throw new ConfigError(`${same.length} held-out sets have the name '${name}': ${same.join(', ')}`, {
      where: 'data.validation',
      next: 'Name each dataset once, and keep different ones in folders of different names.',
    });
  }
  return named;
}

/** The name for a path: the folder around a datalist, a file of rows without its ending, or the folder itself. */
function datasetOf(path: string): string {
  const ending = extname(path);
  if (ending === '.json') return dirname(dirname(path));
  return ['.jsonl', '.parquet', '.txt'].includes(ending) ? path.slice(0, -ending.length) : path;
}
