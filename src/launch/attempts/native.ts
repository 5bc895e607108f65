/** One attempt with this program's own workers; rank 0 owns the run. */
import { randomUUID } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { EditrlError } from '../../core/errors.js';
import { RunPaths } from '../../run/paths.js';
import { serverDevices } from '../machine/device_kind.js';
import type { Devices, Placement } from '../machine/devices.js';
import { deviceIndices } from '../machine/placement.js';
import { runMark } from '../ownership/holder.js';
import { recordWorkers, recordEndForOwner } from '../ownership/takeover.js';
import { reasonOf, RunFailed } from '../processes/failure.js';
import { freePort, supervise, workerEnvironment, type Started, type Worker } from '../processes/supervise.js';
import {
  PEER_LOST,
  unpackError,
  type ErrorMessage,
  type FromWorker,
  type RunKind,
  type ToWorker,
} from '../worker/protocol.js';
import { contextOf, type Attempt, type AttemptServices } from './attempt.js';

/** Starts the workers and their servers, and returns how they ended. Raises the most informative error of a failure. */
export async function nativeAttempt(
  { config, placement, processes, placed, stop }: Attempt,
  services: AttemptServices,
): Promise<RunKind> {
  const { settings } = config;
  const { guardian, kill } = services;
  const paths = RunPaths.of(settings);
  const told = new WorkerMessages(paths);
  const place = { processes, placement, port: await freePort() };
  const env = { ...settings.launch.env, EDITRL_GROUP_TOKEN: randomUUID(), ...runMark(paths) };
  const main = fileURLToPath(new URL('../worker/main.js', import.meta.url));
  const start: ToWorker = {
    kind: 'start',
    config,
    ...contextOf(settings, services.command, placement.devices),
    models: await services.hub.commitsOf(config),
    threads: threadsOf(placement, services.devices()),
    ...(placed === null ? {} : { places: deviceIndices(placed) }),
  };
  let failure: unknown = null;
  const over = new AbortController();
  /** Functions that end what was started only for this attempt. */
  const ends: Promise<() => Promise<void>>[] = [];
  const tracked = services.trackings.attempt(settings);
  try {
    await supervise({
      run: settings.run_name,
      guardian,
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
      onLine: (_rank, line) => services.onWorkerLine(settings.run_name, line),
      onStarted: (started) => {
        told.started = started;
        tracked.workers = started.workers;
        for (const worker of started.workers) send(worker, start);
      },
      onMessage: (worker, message) => {
        if (!told.receive(worker, message as FromWorker)) return;
        services.onClaimed(settings);
        tracked.begin((line, level) => send(worker, { kind: 'notice', line, level }));
        const served = serverDevices(settings, services.devices(), placement.devices);
        const serving = { attempt: told.attempt, served, evaluation: config.evaluation };
        ends.push(services.servers.answer(settings, serving, worker, over.signal));
      },
    });
  } catch (error) {
    failure = error;
  } finally {
    over.abort();
    for (const end of await Promise.all(ends)) await end();
  }
  try {
    return await told.end(failure);
  } finally {
    tracked.end();
  }
}

function send(worker: Worker, message: ToWorker): void {
  worker.send(message);
}

/** CPU threads of a rank; 0 (all of them) lets the engine choose. */
function threadsOf(placement: Placement, devices: Devices): number {
  return placement.threads >= devices.cpus ? 0 : placement.threads;
}

/** The messages of one attempt's workers, and how the attempt ended. */
class WorkerMessages {
  started: Started | null = null;
  #attempt = 0;
  #result: RunKind | null = null;
  readonly #errors = new Map<number, ErrorMessage>();

  constructor(private readonly paths: RunPaths) {}

  /** The attempt's number; 0 until rank 0 has claimed the run. */
  get attempt(): number {
    return this.#attempt;
  }

  /** Handles a message; returns true if the run has just been claimed. */
  receive({ rank }: Worker, message: FromWorker): boolean {
    switch (message.kind) {
      case 'heartbeat':
        return false;
      case 'claimed':
        this.#attempt = message.attempt;
        if (this.started !== null) recordWorkers(this.paths, this.started);
        return true;
      case 'ended':
        if (rank === 0) this.#result = message.result;
        return false;
      case 'failed':
        this.#errors.set(rank, message.error);
        return false;
    }
  }

  /** Returns the result or raises the most informative error; corrects the state if rank 0 could not. */
  async end(failure: unknown): Promise<RunKind> {
    if (failure === null && this.#errors.size === 0 && this.#result !== null) return this.#result;
    if (failure === null && this.#errors.size === 0) {
      this.#settle('interrupted', 'stopped at once');
      return 'interrupted';
    }
    const told = this.#tellingError(failure);
    if (told?.rank === 0) throw unpackError(told.error);
    const error = told === null ? failure : unpackError(told.error);
    const reason = reasonOf(error);
    this.#settle('failed', told === null ? reason : `rank ${told.rank}: ${reason}`);
    await this.#log(error instanceof RunFailed ? error.message : reason);
    throw error;
  }

  /** Writes to the run's log what rank 0 could not write itself. */
  async #log(text: string): Promise<void> {
    if (this.#attempt === 0) return;
    const { openRunLog } = await import('../../run/logs.js');
    try {
      const log = openRunLog({ paths: this.paths, attempt: this.#attempt, rank: 0, terminal: null });
      log.logger.error(text);
      await log.close();
    } catch (refused) {
      // If the disk refuses, the failure itself is the error to show.
      if (!(refused instanceof EditrlError)) throw refused;
    }
  }

  /** The error that a worker reported for its own end, unless a worker hung or was ended from outside. */
  #tellingError(failure: unknown): { rank: number; error: ErrorMessage } | null {
    const all = [...this.#errors].map(([rank, error]) => ({ rank, error }));
    const own = all.filter(({ error }) => error.name !== PEER_LOST);
    if (!(failure instanceof RunFailed)) return failure === null ? (own[0] ?? all[0] ?? null) : null;
    const outside = failure.workerExitCode === null;
    return outside ? null : (own.find(({ rank }) => rank === failure.rank) ?? own[0] ?? null);
  }

  #settle(state: 'failed' | 'interrupted', reason: string): void {
    // Rank 0 may have ended because another rank had, which is not the reason.
    if (this.#attempt > 0) {
      recordEndForOwner(this.paths, this.#attempt, { state, reason }, ['queued', 'running', 'waiting', 'failed']);
    }
  }
}
