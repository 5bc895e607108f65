/** Trains a config: first the runs that it starts from, then its own run, supervised and restarted as configured. */
import { setTimeout as delay } from 'node:timers/promises';
import type { LoadedConfig } from '../config/load.js';
import { checkRunnable, dependencies } from '../config/models.js';
import { InUseError, printable } from '../core/errors.js';
import { RunPaths } from '../run/paths.js';
import { setAside } from '../run/remove.js';
import { liveLock } from '../run/status.js';
import { recordWaiting } from '../run/claim/waiting.js';
import type { RunSettings } from '../config/schema/run.js';
import { Attempts, type RunPlacement } from './attempts/attempts.js';
import { chainOf, type Link } from './chain.js';
import { ChainProgress } from './live/watch.js';
import type { View } from './live/view.js';
import { detectDevices } from './machine/devices.js';
import { HubModels } from './models/hub.js';
import { lazy } from './preflight/obstacle.js';
import type { CheckOptions, Findings, Preflight } from './preflight/preflight.js';
import { Guardian } from './processes/guardian.js';
import { RunServerPool } from './servers/run_server_pool.js';
import { RunTrackings } from './trackings.js';
import type { RunKind } from './worker/protocol.js';

/** Milliseconds between checks of a run that another process holds. */
const POLL_MS = 1_000;

export interface LauncherOptions {
  /** Shows progress and messages. */
  readonly view: View;
  readonly command: readonly string[];
  /** Requests that every run save a checkpoint and stop. */
  readonly stop: AbortSignal;
  /** Kills every run. */
  readonly kill?: AbortSignal;
  /** Whether several runs are expected, so that they share a judge through a gateway. */
  readonly severalRuns?: boolean;
}

export interface RunResult {
  readonly kind: RunKind;
  /** The last run that was trained: the config's own, or one that it starts from. */
  readonly run_name: string;
}

/** Runs configs, one after another or several at once. They share the judges that are started for them. */
export class Launcher {
  readonly #devices = lazy(() => detectDevices());
  #preflight: Preflight | null = null;
  readonly #hub: HubModels;
  readonly #guardian = new Guardian();
  readonly #servers: RunServerPool;
  readonly #trackings: RunTrackings;
  readonly #attempts: Attempts;
  /** Finished parents whose settings are those of their configs. */
  readonly #made = new Set<string>();
  /** By the names of runs that wait for their parents: functions that remove the record of waiting. */
  readonly #waiting = new Map<string, () => void>();
  /** Messages about servers. A run that logs one of them does not print it again. */
  readonly #reported = new Set<string>();

  constructor(private readonly options: LauncherOptions) {
    const { view, command, stop, kill, severalRuns = false } = options;
    const guardian = this.#guardian;
    const say = (line: string): void => this.#say(line);
    this.#servers = new RunServerPool({ severalRuns, guardian, say: (...report) => this.#reportServer(...report) });
    this.#trackings = new RunTrackings({ say, kill });
    this.#hub = new HubModels({ say, busy: (what) => view.busy(what), stop });
    this.#attempts = new Attempts({
      ...{ guardian, servers: this.#servers, trackings: this.#trackings, hub: this.#hub },
      ...{ view, command, stop, say },
      ...(kill === undefined ? {} : { kill }),
      devices: this.#devices,
      onWorkerLine: (run, line) => {
        if (!this.#reported.has(line)) view.workerLine(run, line);
      },
      onClaimed: (settings) => this.#claimed(settings),
    });
  }

  /**
   * Trains the config's parents and then its own run.
   * With `fresh`, the run starts over, and its previous folder is kept under another name. Raises problems that prevent
   * any of the runs, RunFailed if a worker died, and the error that a worker reported.
   */
  async run(config: LoadedConfig, { fresh = false }: { readonly fresh?: boolean } = {}): Promise<RunResult> {
    this.#trackings.setRequestedRun(config.settings);
    try {
      return await this.#chain(config, fresh);
    } finally {
      this.#claimed(config.settings);
    }
  }

  async #chain(config: LoadedConfig, fresh: boolean): Promise<RunResult> {
    const chain = await chainOf(config, this.#made);
    const [configs, parents] = [chain.map((link) => link.config), chain.slice(0, -1)];
    const looking = {
      startOver: new Set(fresh ? [config] : []),
      devices: this.#devices,
    };
    const claimed = fresh ? parents.map((link) => link.config) : configs;
    if ((await this.ready(configs, { ...looking, claimed })) === null) {
      return { kind: 'interrupted', run_name: config.settings.run_name };
    }
    if (fresh) this.#setAsideOldRun(config);
    const { base_exp_dir, run_name: own } = config.settings;
    if (dependencies(config.settings).length > 0) this.#waiting.set(own, recordWaiting(base_exp_dir, own));
    const steps = new ChainProgress(configs);
    this.options.view.begin(steps);
    for (const parent of parents) {
      const { run_name } = parent.config.settings;
      if (parent.note !== undefined) this.#say(parent.note);
      const kind = await this.#step(steps, parent.config, () => this.#parent(parent));
      if (kind === 'interrupted') return { kind, run_name };
      this.#made.add(run_name);
    }
    return { kind: await this.#step(steps, config, () => this.#attempts.run(config)), run_name: own };
  }

  /** Trains a run of a chain while the view shows it. */
  async #step(steps: ChainProgress, config: LoadedConfig, work: () => Promise<RunKind>): Promise<RunKind> {
    const { name, startedMs } = steps.begin(config);
    try {
      const kind = await work();
      if (kind === 'finished') this.options.view.finished(name, (performance.now() - startedMs) / 1000);
      steps.end(name, kind === 'interrupted' ? 'interrupted' : 'finished');
      return kind;
    } catch (error) {
      steps.end(name, 'failed');
      throw error;
    }
  }

  /** Prepares runs with `Preflight.prepare` and raises its errors. Null if the runs are stopped meanwhile. */
  async ready(configs: readonly LoadedConfig[], options: CheckOptions): Promise<Findings | null> {
    const warn = (warning: string): void => this.#say(`warning: ${warning}`);
    // Only the checks need networks and policies.
    this.#preflight ??= new (await import('./preflight/preflight.js')).Preflight();
    try {
      return await this.#preflight.prepare(configs, { ...options, models: this.#hub, warn });
    } catch (error) {
      if (this.options.stop.aborted) return null;
      throw error;
    }
  }

  /** Drops the record of waiting: from now on, the run's own record names its parents. */
  #claimed({ run_name }: RunSettings): void {
    this.#waiting.get(run_name)?.();
    this.#waiting.delete(run_name);
  }

  #setAsideOldRun({ settings }: LoadedConfig): void {
    const aside = setAside(RunPaths.of(settings));
    if (aside !== null) this.#say(`${settings.run_name} starts from scratch; the previous run was moved to ${aside}`);
  }

  /** Trains a parent run, or waits for another process that is training it. */
  async #parent({ config }: Link): Promise<RunKind> {
    const paths = RunPaths.of(config.settings);
    for (;;) {
      if (!(await this.#waitUntilFree(paths))) return 'interrupted';
      try {
        return await this.#attempts.run(config);
      } catch (error) {
        // Another waiting process was faster.
        if (!(error instanceof InUseError)) throw error;
      }
    }
  }

  /** Waits until no process holds a run. Returns false if a stop is requested meanwhile. */
  async #waitUntilFree(paths: RunPaths): Promise<boolean> {
    for (let isReported = false; ; isReported = true) {
      const { stop } = this.options;
      if (stop.aborted) return false;
      const held = liveLock(paths);
      if (held === null) return true;
      if (!isReported) this.#say(`waiting for process ${held.pid} on ${held.host}, which trains ${paths.runName}`);
      await delay(POLL_MS, undefined, { signal: stop }).catch(() => undefined);
    }
  }

  /** Trains only the config's own run, whose parents must be finished. Without a placement the run has the whole machine. */
  async runWithoutParents(config: LoadedConfig, placement?: RunPlacement): Promise<RunResult> {
    checkRunnable(config);
    return { kind: await this.#attempts.run(config, placement), run_name: config.settings.run_name };
  }

  /**
   * Evaluates the weights of the config's `evaluation` once, in the run directory of its settings. Checks neither memory nor disk space, because nothing
   * is trained. Raises the errors of `run`.
   */
  async evaluate(config: LoadedConfig): Promise<RunKind> {
    if ((await this.ready([config], { claimed: [], freeSpace: () => Infinity })) === null) return 'interrupted';
    return this.#attempts.run(config);
  }

  async close(): Promise<void> {
    await this.#hub.close();
    await this.#servers.close();
    // Everything that it guards should have ended by now. It ends whatever is left.
    this.#guardian.close();
    await this.#trackings.close();
  }

  /** Reports a server's line. If a single run uses the server, the run's log reports it instead. */
  #reportServer(line: string, isLogged: boolean): void {
    if (isLogged && this.options.severalRuns !== true) return;
    this.#reported.add(`warning: ${line}`);
    this.#say(line);
  }

  #say(line: string): void {
    this.options.view.say(printable(line));
  }
}
