/** From a loaded config to a finished run: missing parents first, then its processes, supervised, and started again as told. */
import { randomUUID } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import type { LoadedConfig } from '../config/load.js';
import { checkRunnable, dependencies } from '../config/models.js';
import { InUseError, must, printable } from '../core/errors.js';
import { claimRun } from '../run/claim.js';
import { claimRequest } from '../run/claim_request.js';
import { RunPaths } from '../run/paths.js';
import { setAside } from '../run/set_aside.js';
import { isDone, readState } from '../run/state.js';
import { liveLock } from '../run/status.js';
import { noteWaiting } from '../run/waiting.js';
import type { RunSettings } from '../schema/run.js';
import { deviceKind, ownDevices, processesOf, servedDevices } from './machine/device_kind.js';
import {
  checkCores,
  detectDevices,
  processCount,
  requireFree,
  wholeMachine,
  type DeviceKind,
  type Devices,
  type Placement,
} from './machine/devices.js';
import { mayPass, toText } from './processes/failure.js';
import { foreignAttempt } from './attempts/foreign.js';
import { Guardian } from './processes/guardian.js';
import { markOfRun } from './ownership/holder.js';
import { HubModels } from './models/hub.js';
import { NativeAttempt } from './attempts/native.js';
import { Steps } from './live/course.js';
import type { View } from './live/view.js';
import { chainOf, type Link } from './chain.js';
import { checkPlacement, placeParts, positionsOf, type PlacedParts } from './machine/placement.js';
import { LOOK_EVERY_MS, pause, pauseAsOwner, pauseBeforeRestart } from './ownership/pause.js';
import { AnswerRooms, requireRoom } from './preflight/answer_room.js';
import { lookBefore, obstacles, requireNone, tightRuns, unfinished, type Looking } from './preflight/preflight.js';
import { ServersOfRuns } from './servers/of_runs.js';
import { freePort, supervise, workerEnvironment, type Worker } from './processes/supervise.js';
import { Trackings } from './trackings.js';
import type { SayOfServer } from './servers/upkeep.js';
import { versions } from './attempts/versions.js';
import type { FromWorker, RunKind, ToWorker } from './worker/protocol.js';

export { RunFailed } from './processes/failure.js';
export { runResolver } from './models/resolve.js';
export type { Placement } from './machine/devices.js';

export interface LauncherOptions {
  /** Is shown what happens. */
  readonly view: View;
  readonly command: readonly string[];
  /** Asks every run to checkpoint and end. */
  readonly stop: AbortSignal;
  /** Ends every run at once. */
  readonly kill?: AbortSignal;
  /** Whether several runs are to be expected, so that a judge which they name is shared through a gateway. */
  readonly severalRuns?: boolean;
}

export interface RunResult {
  readonly kind: RunKind;
  /** The run that was worked at last: the config's own, or one that it starts from. */
  readonly run_name: string;
}

/** Where one run goes, and what stops that run alone. */
export type RunPlacement = Placement & { readonly stop?: AbortSignal };

/** Runs configs, one after another or several at once; a judge that was started for one serves the others too. */
export class Launcher {
  #devices: Devices | null = null;
  readonly #rooms = new AnswerRooms();
  readonly #hub: HubModels;
  readonly #guardian = new Guardian();
  readonly #servers: ServersOfRuns;
  readonly #trackings: Trackings;
  /** Parents that are finished and were made with the settings that their configs give. */
  readonly #made = new Set<string>();
  /** By the names of runs that wait for those that they start from: what takes back that they say so. */
  readonly #waiting = new Map<string, () => void>();
  /** What was said of servers: a run that has heard of it prints it as well. */
  readonly #said = new Set<string>();

  constructor(private readonly options: LauncherOptions) {
    const say: SayOfServer = (line, heard) => this.#tellOfServer(line, heard);
    this.#servers = new ServersOfRuns({ severalRuns: options.severalRuns ?? false, say, guardian: this.#guardian });
    this.#trackings = new Trackings({ say: (line) => this.#say(line), kill: options.kill });
    this.#hub = new HubModels({
      say: (line) => this.#say(line),
      busy: (what) => options.view.busy(what),
      stop: options.stop,
    });
  }

  /**
   * Trains what the config needs and then the config's own run, where nothing is in the way of any of them. With `fresh` the own run
   * begins anew, and what lies under its name is kept beside it. Raises what is in the way, RunFailed when a worker died, and whatever
   * error a worker ended with.
   */
  async run(config: LoadedConfig, { fresh = false }: { readonly fresh?: boolean } = {}): Promise<RunResult> {
    this.#trackings.asked(config.settings.run_name);
    try {
      return await this.#chain(config, fresh);
    } finally {
      this.#begun(config.settings);
    }
  }

  async #chain(config: LoadedConfig, fresh: boolean): Promise<RunResult> {
    const chain = await chainOf(config, this.#made);
    const [configs, parents] = [chain.map((link) => link.config), chain.slice(0, -1)];
    const looking = {
      anew: new Set(fresh ? [config] : []),
      devices: () => (this.#devices ??= detectDevices()),
    };
    const claimed = fresh ? parents.map((link) => link.config) : configs;
    requireNone(await lookBefore(configs, { ...looking, claimed }));
    if (!(await this.fetchModels(configs, looking))) return { kind: 'interrupted', run_name: config.settings.run_name };
    await requireRoom(
      unfinished(configs, looking.anew),
      (warning) => {
        this.#say(`warning: ${warning}`);
      },
      this.#rooms,
    );
    for (const tight of tightRuns(configs, looking)) this.#say(`warning: ${tight}`);
    if (fresh) this.#setAside(config);
    const { base_exp_dir, run_name: own } = config.settings;
    if (dependencies(config.settings).length > 0) this.#waiting.set(own, noteWaiting(base_exp_dir, own));
    const steps = new Steps(configs);
    this.options.view.begin(steps);
    for (const parent of parents) {
      const { run_name } = parent.config.settings;
      if (parent.note !== undefined) this.#say(parent.note);
      const kind = await this.#step(steps, parent.config, () => this.#parent(parent));
      if (kind === 'interrupted') return { kind, run_name };
      this.#made.add(run_name);
    }
    return { kind: await this.#step(steps, config, () => this.#attempts(config, undefined)), run_name: own };
  }

  /** Works at a run of a chain, and lets it be watched. */
  async #step(steps: Steps, config: LoadedConfig, work: () => Promise<RunKind>): Promise<RunKind> {
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

  /**
   * Brings the models of the Hub that runs need into the cache. Raises what is in the way of one before any weights are fetched: a model that cannot be
   * had, or, now that it is known how large they are, too little memory or disk. False where this is asked to stop meanwhile.
   */
  async fetchModels(configs: readonly LoadedConfig[], looking: Looking = {}): Promise<boolean> {
    const left = unfinished(configs, looking.anew);
    try {
      requireNone(await this.#hub.obstacles(left, looking.anew));
      requireNone(obstacles(configs, looking));
      await this.#hub.fetch(left, looking.anew);
      return true;
    } catch (error) {
      if (this.options.stop.aborted) return false;
      throw error;
    }
  }

  /** From now on the run's own record says what it starts from, or it does not start. */
  #begun({ run_name }: RunSettings): void {
    this.#waiting.get(run_name)?.();
    this.#waiting.delete(run_name);
  }

  #setAside({ settings: { base_exp_dir, run_name } }: LoadedConfig): void {
    const aside = setAside(new RunPaths(base_exp_dir, run_name));
    if (aside !== null) this.#say(`${run_name} begins anew; what was there is now ${aside}`);
  }

  /** Trains a run that another starts from, or waits until whoever does it already has ended. */
  async #parent({ config }: Link): Promise<RunKind> {
    const paths = new RunPaths(config.settings.base_exp_dir, config.settings.run_name);
    for (;;) {
      if (!(await this.#untilFree(paths))) return 'interrupted';
      try {
        return await this.#attempts(config, undefined);
      } catch (error) {
        // Another process, which waited too, was quicker.
        if (!(error instanceof InUseError)) throw error;
      }
    }
  }

  /** Waits until nobody holds a run; false where this is asked to stop meanwhile. */
  async #untilFree(paths: RunPaths): Promise<boolean> {
    for (let told = false; ; told = true) {
      const { stop } = this.options;
      if (stop.aborted) return false;
      const held = liveLock(paths);
      if (held === null) return true;
      if (!told) this.#say(`${paths.runName} is being trained by process ${held.pid} on ${held.host}: waiting for it`);
      await pause(LOOK_EVERY_MS, stop);
    }
  }

  /** Trains the config's own run alone: what it starts from has to be finished. Without a placement it has the machine to itself. */
  async runOnly(config: LoadedConfig, placement?: RunPlacement): Promise<RunResult> {
    checkRunnable(config);
    return { kind: await this.#attempts(config, placement), run_name: config.settings.run_name };
  }

  async close(): Promise<void> {
    this.#guardian.close();
    await this.#hub.close();
    await this.#servers.close();
    await this.#trackings.close();
  }

  /** Starts the run, and starts it again after a failure that may pass, as often as the config allows. */
  async #attempts(config: LoadedConfig, wanted: RunPlacement | undefined): Promise<RunKind> {
    const { launch, run_name, base_exp_dir } = config.settings;
    if (isFinishedBy(config)) {
      const handle = claimRun(claimRequest(config, this.#context(config, [])));
      if (handle.kind === 'finished') return 'already_finished';
      handle.release();
    }
    for (const warning of config.warnings) this.#say(`warning: ${warning}`);
    this.#devices ??= detectDevices();
    const kind = deviceKind(config.settings, this.#devices);
    const own = ownDevices(config.settings, this.#devices);
    const processes = processesOf(config.settings, own, kind);
    const asked = processCount(launch, own, kind);
    if (processes < asked) {
      this.#say(
        `${run_name}: ${asked} processes are asked for, but a step has ${processes} micro-batch${processes === 1 ? '' : 'es'}: so many are started. A lower optimizer.per_device_batch_size gives it more`,
      );
    }
    if (kind === 'cpu') checkCores(processes, this.#devices.cpus);
    const placed = this.#placed(config, kind, wanted);
    const whole = wanted ?? wholeMachine({ ...launch, processes }, own, kind);
    const placement = placed === null || placed.gpus.length === 0 ? whole : { ...whole, devices: placed.gpus };
    const note = placed?.note ?? null;
    if (note !== null) this.#say(`${run_name}: ${note}`);
    requireFree(placement.devices);
    const stops = [this.options.stop, ...(wanted?.stop === undefined ? [] : [wanted.stop])];
    const stop = AbortSignal.any(stops);
    const paths = new RunPaths(base_exp_dir, run_name);
    let attempt: LoadedConfig = config;
    let [reached, inVain] = [readState(paths)?.iteration ?? 0, 0];
    for (let restarts = 0; ; restarts++) {
      try {
        if (launch.command !== null) return await this.#foreign(attempt, placement, processes, stop);
        return await this.#native(attempt, placement, { processes, placed }, stop);
      } catch (error) {
        if (restarts >= launch.max_restarts || !mayPass(error) || stop.aborted) throw error;
        // Somebody killed it on purpose.
        const state = readState(paths);
        if (state?.state === 'interrupted') throw error;
        this.#say(toText(error));
        inVain = (state?.iteration ?? 0) > reached ? 0 : inVain + 1;
        reached = Math.max(reached, state?.iteration ?? 0);
        const waitS = pauseBeforeRestart(inVain);
        const when = waitS === 0 ? '' : `in ${waitS} s, since it got no further, `;
        this.#say(
          `${run_name} is started again ${when}from its last checkpoint (${restarts + 1} of ${launch.max_restarts})`,
        );
        if (waitS > 0 && (await pauseAsOwner(paths, waitS * 1000, stop))) return 'interrupted';
        // The failed attempt has recorded the change that was allowed.
        attempt = { ...config, allowChanges: [] };
      }
    }
  }

  /** Where the parts of a run go, among the GPUs that it may use or was given; null where nothing is said of that. */
  #placed({ settings }: LoadedConfig, kind: DeviceKind, wanted: RunPlacement | undefined): PlacedParts | null {
    const { placement, devices, command } = settings.launch;
    if (placement === null || command !== null) return null;
    checkPlacement(settings.launch);
    const allowed = wanted?.devices ?? devices;
    const all = kind === 'cpu' || this.#devices === null ? [] : ownDevices(settings, this.#devices).gpus;
    return placeParts(
      placement,
      all.filter(({ index }) => allowed === null || allowed.includes(index)),
    );
  }

  /** One attempt with this program's own workers, of which rank 0 owns the run. */
  async #native(
    config: LoadedConfig,
    placement: Placement,
    { processes, placed }: { readonly processes: number; readonly placed: PlacedParts | null },
    stop: AbortSignal,
  ): Promise<RunKind> {
    const { settings } = config;
    const paths = new RunPaths(settings.base_exp_dir, settings.run_name);
    const attempt = new NativeAttempt(paths);
    const place = { processes, placement, port: await freePort() };
    const env = { ...settings.launch.env, EDITRL_GROUP_TOKEN: randomUUID(), ...markOfRun(paths) };
    const main = fileURLToPath(new URL('./worker/main.js', import.meta.url));
    const start: ToWorker = {
      kind: 'start',
      config,
      ...this.#context(config, placement.devices),
      models: await this.#hub.commitsOf(config),
      threads: shareOf(placement, this.#devices),
      ...(placed === null ? {} : { places: positionsOf(placed) }),
    };
    const { kill } = this.options;
    let failure: unknown = null;
    const over = new AbortController();
    /** Ends what was started for this attempt alone. */
    let serving: Promise<() => Promise<void>> | null = null;
    const tracked = this.#trackings.attempt(settings);
    try {
      await supervise({
        run: settings.run_name,
        guardian: this.#guardian,
        ranks: Array.from({ length: processes }, (_, rank) => ({
          rank,
          command: [process.execPath, main],
          env: workerEnvironment(rank, place, env),
        })),
        ipc: true,
        heartbeatTimeoutS: settings.launch.heartbeat_timeout_s,
        stop: AbortSignal.any([stop, tracked.stop]),
        ...(kill === undefined ? {} : { kill }),
        askToStop: (workers) => send(workers[0], { kind: 'stop' }),
        onEnding: (worker) => send(worker, { kind: 'end' }),
        onLine: (_rank, line) => this.#heard(settings.run_name, line),
        onStarted: (started) => {
          attempt.started = started;
          tracked.workers = started.workers;
          for (const worker of started.workers) send(worker, start);
        },
        onMessage: (worker, message) => {
          if (!attempt.receive(worker, message as FromWorker)) return;
          this.#begun(settings);
          tracked.begin((line, level) => send(worker, { kind: 'notice', line, level }));
          const served = servedDevices(settings, must(this.#devices, 'devices'), placement.devices);
          serving = this.#servers.answer(settings, { attempt: attempt.number, served }, worker, over.signal);
        },
      });
    } catch (error) {
      failure = error;
    } finally {
      over.abort();
      await endOf(serving);
    }
    try {
      return await attempt.end(failure);
    } finally {
      tracked.end();
    }
  }

  /** One attempt with another trainer's program; this process owns the run. */
  #foreign(config: LoadedConfig, placement: Placement, processes: number, stop: AbortSignal): Promise<RunKind> {
    const { kill, view } = this.options;
    return foreignAttempt(config, {
      context: this.#context(config, placement.devices),
      tracked: this.#trackings.attempt(config.settings),
      guardian: this.#guardian,
      view,
      placement,
      processes,
      stop,
      kill,
      onClaimed: () => this.#begun(config.settings),
    });
  }

  #context(config: LoadedConfig, gpus: readonly number[]) {
    return {
      command: this.options.command,
      versions: versions(config.settings),
      parents: dependencies(config.settings).map((reference) => ({ ...reference })),
      devices: gpus.map((index) => `gpu:${index}`),
    };
  }

  /** Of one run alone a run that has heard of it says so itself, in its log and here. */
  #tellOfServer(line: string, heard: boolean): void {
    if (heard && this.options.severalRuns !== true) return;
    this.#said.add(`warning: ${line}`);
    this.#say(line);
  }

  #heard(run: string, line: string): void {
    if (!this.#said.has(line)) this.options.view.heard(run, line);
  }

  #say(line: string): void {
    this.options.view.say(printable(line));
  }
}

/** `serving` is set by a callback, which the compiler does not see. */
async function endOf(serving: Promise<() => Promise<void>> | null): Promise<void> {
  await (
    await serving
  )?.();
}

function send(worker: Worker, message: ToWorker): void {
  worker.send(message);
}

/** A rank's threads; 0, all of them, lets the engine choose. */
function shareOf(placement: Placement, devices: Devices | null): number {
  return devices === null || placement.threads >= devices.cpus ? 0 : placement.threads;
}

/** Whether nothing is left to do: then it is only claimed, which checks its settings, and no process is started. */
function isFinishedBy({ settings, allowChanges = [] }: LoadedConfig): boolean {
  const state = readState(new RunPaths(settings.base_exp_dir, settings.run_name));
  // What is changed on request may let one that ended by its own rule go on.
  if (state?.stopped_early === true && allowChanges.length > 0) return false;
  return isDone(state, settings.num_iterations);
}
