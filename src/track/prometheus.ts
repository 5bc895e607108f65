/** Serves the latest metrics of a launcher's runs for Prometheus to scrape: one page per configured address. */
import { ConfigError, EditrlError, EndpointError } from '../core/errors.js';
import { family, type Sample } from '../http/prometheus.js';
import { metricsPage, type Reply } from '../http/reply.js';
import { HttpServer, type HttpLimits } from '../http/server.js';
import type { RunPaths } from '../run/paths.js';
import type { RunRecord } from '../run/record.js';
import { RUN_STATES } from '../run/state.js';
import { readStatus } from '../run/status.js';
import type { PrometheusSettings } from '../schema/track.js';
import { RowFollower } from './rows.js';

const LIMITS: HttpLimits = {
  bodyBytes: 1024,
  heldBytes: 64 * 1024 * 1024,
  connections: 32,
  headersTimeoutMs: 10_000,
  requestTimeoutMs: 10_000,
  bodyWindowMs: 10_000,
  timeoutCheckMs: 5000,
  drainTimeoutMs: 1000,
};

/** The pages of one launcher. */
export class MetricsPages {
  readonly #pages = new Map<string, Promise<Page>>();

  /**
   * Shows a run until `close`; returns the page's address. Raises EndpointError when the port is taken, ConfigError when the token is missing or the
   * address needs one.
   */
  async show(settings: PrometheusSettings, run: ShownRun, env: NodeJS.ProcessEnv): Promise<string> {
    const { host, port, token_env } = settings;
    // A page has one token: a run that wants another token on the same port is refused, as if the port were taken.
    const place = `${host}:${port} ${token_env ?? ''}`;
    const page = this.#pages.get(place) ?? Page.open(settings, env);
    this.#pages.set(place, page);
    try {
      const opened = await page;
      opened.add(run);
      return `${opened.address}/metrics`;
    } catch (error) {
      this.#pages.delete(place);
      throw error;
    }
  }

  async close(): Promise<void> {
    await Promise.all([...this.#pages.values()].map(async (page) => (await page.catch(() => null))?.close()));
    this.#pages.clear();
  }
}

/** A run on a page. */
export interface ShownRun {
  readonly paths: RunPaths;
  readonly record: RunRecord;
}

class Page {
  /** By run directory. */
  readonly #runs = new Map<string, LatestMetrics>();
  readonly #server: HttpServer;
  address = '';

  private constructor(host: string, token: string | null) {
    this.#server = new HttpServer({
      name: 'the page of metrics',
      host,
      token,
      routes: { '/metrics': { GET: () => this.#page() } },
      limits: LIMITS,
      onDefect: (error) => process.emitWarning(error instanceof Error ? error : String(error)),
    });
  }

  static async open({ host, port, token_env }: PrometheusSettings, env: NodeJS.ProcessEnv): Promise<Page> {
    const token = token_env === null ? null : (env[token_env] ?? '');
    if (token === '') {
      throw new ConfigError(`${token_env ?? ''} is empty`, {
        where: 'track.prometheus.token_env',
        next: 'Set it to the token that Prometheus sends, or leave token_env out.',
      });
    }
    try {
      const page = new Page(host, token);
      page.address = await page.#server.listen(port);
      // It ends with the launcher, and does not keep it alive.
      page.#server.node.unref();
      return page;
    } catch (error) {
      if (!(error instanceof EditrlError)) throw error;
      const kind = error instanceof EndpointError ? EndpointError : ConfigError;
      throw new kind(error.message, {
        where: 'track.prometheus',
        next: 'Choose another track.prometheus.port, host or token_env.',
        cause: error,
      });
    }
  }

  add({ paths, record }: ShownRun): void {
    this.#runs.get(paths.dir)?.close();
    this.#runs.set(paths.dir, new LatestMetrics(paths, record));
  }

  async close(): Promise<void> {
    for (const run of this.#runs.values()) run.close();
    await this.#server.close();
  }

  #page(): Reply {
    const runs = [...this.#runs.values()].map((run) => ({
      run: run.paths.runName,
      status: readStatus(run.paths),
      metrics: run.read(),
    }));
    const gauge = (name: string, help: string, samples: readonly Sample[]): readonly string[] =>
      family(`editrl_run_${name}`, 'gauge', help, samples);
    const perRun = (value: (one: (typeof runs)[number]) => number | null): Sample[] =>
      runs.flatMap((one) => {
        const found = value(one);
        return found === null ? [] : [{ labels: { run: one.run }, value: found }];
      });
    const lines = [
      ...gauge(
        'iteration',
        'Iterations that are done.',
        perRun(({ status }) => status.iteration),
      ),
      ...gauge(
        'iterations',
        'Iterations that there will be.',
        perRun(({ status }) => status.num_iterations),
      ),
      ...gauge(
        'heartbeat_age_seconds',
        'Since the run last said that it lives.',
        perRun(({ status }) => status.heartbeat_age_s),
      ),
      ...gauge(
        'state',
        '1 for the state that the run is in.',
        runs.flatMap(({ run, status }) =>
          [...RUN_STATES, 'dead', 'unreadable'].map((state) => ({
            labels: { run, state },
            value: Number(state === status.state),
          })),
        ),
      ),
      ...gauge(
        'metric',
        'The latest value of a metric.',
        runs.flatMap(({ run, metrics }) => [...metrics].map(([name, value]) => ({ labels: { run, name }, value }))),
      ),
    ];
    return metricsPage(`${lines.join('\n')}\n`);
  }
}

/** The last value of each of a run's metrics: a held-out result stays until the next one. */
class LatestMetrics {
  readonly #rows: RowFollower;
  readonly #latest = new Map<string, number>();

  constructor(
    readonly paths: RunPaths,
    record: RunRecord,
  ) {
    this.#rows = new RowFollower(paths.metrics, [], () => record.attempts);
  }

  /** On an invalid line, keeps what was read so far: the run itself reports the line when it continues. */
  read(): ReadonlyMap<string, number> {
    try {
      for (let rows = this.#rows.next(); rows.length > 0; rows = this.#rows.next()) {
        for (const { metrics } of rows) {
          for (const [name, value] of Object.entries(metrics)) this.#latest.set(name, value);
        }
        this.#rows.confirm(rows[rows.length - 1]);
      }
    } catch (error) {
      if (!(error instanceof EditrlError)) throw error;
    }
    return this.#latest;
  }

  close(): void {
    this.#rows.close();
  }
}
