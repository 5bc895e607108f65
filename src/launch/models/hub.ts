/** The Hub models of runs: queried once before anything starts, and downloaded before workers need them. */
import type { LoadedConfig } from '../../config/load.js';
import { ConfigError } from '../../core/errors.js';
import { type HubEnvironment, hubBaseOf, nameOf } from '../../models/hub/cache.js';
import type { HubClient, HubRetryPolicy } from '../../models/hub/client.js';
import { fetchModel, lookUp, megabytes, type FoundModel, type RequestedModel } from '../../models/hub/fetch.js';
import { hubKey } from '../../models/reference.js';
import { failureOf, computeOnce, type Obstacle } from '../preflight/obstacle.js';
import { pinnedCommits, hubEnvironmentOf, wantedModels } from './wanted.js';

/** Maximum length of a chain of adapters. */
const MAX_BASES = 4;

export interface HubModelsOptions {
  /** Called with one line for each event. */
  readonly say: (line: string) => void;
  /** Called with the progress of a download, and with null at its end. */
  readonly busy?: (what: string | null) => void;
  /** Stops a download. Downloaded parts stay. */
  readonly stop?: AbortSignal;
  readonly retryPolicy?: HubRetryPolicy;
}

/** A model that a run needs, with the Hub settings of its workers. */
interface HubQuery extends RequestedModel {
  readonly environment: HubEnvironment;
  /** The commits that the run started with, including base models of adapters. */
  readonly commits: Readonly<Record<string, string>>;
}

/** Looks up and downloads models, once for several runs. */
export class HubModels {
  readonly #clients = new Map<string, Promise<HubClient>>();
  readonly #found = new Map<string, Promise<FoundModel>>();
  readonly #fetched = new Map<string, Promise<void>>();

  constructor(private readonly options: HubModelsOptions) {}

  async close(): Promise<void> {
    for (const client of this.#clients.values()) await (await client).close();
  }

  /** The unavailable models of these runs. Also downloads the small files that describe the available ones. */
  async obstacles(
    configs: readonly LoadedConfig[],
    startOver: ReadonlySet<LoadedConfig> = new Set(),
  ): Promise<Obstacle[]> {
    const found = new Map<string, Obstacle>();
    for (const config of configs) {
      for (const query of hubQueriesOf(config, startOver)) {
        const error = await failureOf(() => this.#withBases(query));
        const text = error?.toText();
        if (error === null || text === undefined || found.has(text)) continue;
        found.set(text, { run: config.settings.run_name, error });
      }
    }
    return [...found.values()];
  }

  /** A sentence for each model that these runs still have to download. Raises the first problem. */
  async notes(configs: readonly LoadedConfig[]): Promise<string[]> {
    const queries = configs.flatMap((config) => hubQueriesOf(config));
    const found = await Promise.all(queries.map((one) => this.#withBases(one)));
    return [...new Set(found.flat().map(noteOf))];
  }

  /** Downloads the models of these runs into the cache. Raises the first problem. */
  async fetch(configs: readonly LoadedConfig[], startOver: ReadonlySet<LoadedConfig> = new Set()): Promise<void> {
    for (const hubQuery of configs.flatMap((config) => hubQueriesOf(config, startOver))) {
      for (const found of await this.#withBases(hubQuery)) {
        await computeOnce(this.#fetched, keyOf({ ...hubQuery, ...found }), () =>
          this.#fetch(hubQuery.environment, found),
        );
      }
    }
  }

  /** Downloads a run's models and returns their commits, by their names in its record. */
  async commitsOf(config: LoadedConfig): Promise<Record<string, string>> {
    await this.fetch([config]);
    const found = await Promise.all(hubQueriesOf(config).map((hubQuery) => this.#withBases(hubQuery)));
    return Object.fromEntries(found.flat().map(({ reference, commit }) => [hubKey(reference), commit]));
  }

  async #fetch(environment: HubEnvironment, found: FoundModel): Promise<void> {
    const { reference, commit, bytesLeft, note } = found;
    const { say, busy = () => {} } = this.options;
    if (note !== null) say(note);
    if (found.left.length === 0) return;
    const name = nameOf(reference, commit);
    say(`downloading ${name}: ${megabytes(bytesLeft)}`);
    const progress = (done: number, all: number): void =>
      busy(`${name}: ${megabytes(done)} of ${megabytes(all)} (${Math.floor((100 * done) / all)}%)`);
    await fetchModel(await this.#client(environment), found, { say, progress }).finally(() => busy(null));
    say(`downloaded ${name}`);
  }

  /** A model and, if it is an adapter, its base. */
  async #withBases(hubQuery: HubQuery): Promise<FoundModel[]> {
    const all = [await this.#lookUp(hubQuery)];
    let base = hubQuery.need === 'model' ? hubBaseOf(all[0].folder) : null;
    while (base !== null) {
      if (all.length > MAX_BASES) {
        throw new ConfigError(
          `the adapter ${hubQuery.reference.hub} has a chain of more than ${MAX_BASES} base adapters`,
        );
      }
      const found = await this.#lookUp({
        ...hubQuery,
        reference: base,
        pinned: hubQuery.commits[hubKey(base)] ?? null,
      });
      all.push(found);
      base = hubBaseOf(found.folder);
    }
    return all;
  }

  #lookUp(hubQuery: HubQuery): Promise<FoundModel> {
    return computeOnce(this.#found, keyOf(hubQuery), async () =>
      lookUp(await this.#client(hubQuery.environment), hubQuery, this.options),
    );
  }

  #client(environment: HubEnvironment): Promise<HubClient> {
    return computeOnce(this.#clients, JSON.stringify(environment), async () => {
      // Loaded lazily, because most runs need no Hub models.
      const { HubClient } = await import('../../models/hub/client.js');
      return new HubClient(environment, this.options.retryPolicy, this.options.stop);
    });
  }
}

function hubQueriesOf(config: LoadedConfig, startOver: ReadonlySet<LoadedConfig> = new Set()): HubQuery[] {
  const environment = hubEnvironmentOf(config.settings);
  const wanted = wantedModels(config.settings, startOver.has(config));
  if (wanted.length === 0) return [];
  const commits = pinnedCommits(config.settings, startOver.has(config));
  return wanted.map((one) => ({ ...one, environment, commits }));
}

function noteOf({ reference, commit, bytesLeft, note }: FoundModel): string {
  const name = nameOf(reference, commit);
  if (note !== null) return note;
  return bytesLeft === 0
    ? `${name} is in the Hub's cache`
    : `${name} would be downloaded first: ${megabytes(bytesLeft)}`;
}

function keyOf({ reference, need, pinned, environment }: RequestedModel & Pick<HubQuery, 'environment'>): string {
  return JSON.stringify([need, hubKey(reference), pinned, environment.endpoint, environment.cacheDir]);
}
