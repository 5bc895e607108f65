/** One attempt with our own workers. */
import { randomUUID } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { serverDevices, type Devices, type Placement } from '../machine/devices.js';
import { deviceIndices } from '../machine/placement.js';
import { RunFailed } from '../processes/failure.js';
import { freePort, supervise, workerEnvironment, type Worker } from '../processes/supervise.js';
import type { ServerUser } from '../servers/managed.js';
import {
  packError,
  PEER_LOST,
  unpackError,
  type ErrorMessage,
  type FromWorker,
  type RunKind,
  type ToWorker,
} from '../worker/protocol.js';
import type { Attempt, AttemptServices } from './attempt.js';

/** Starts the workers and their servers, and returns the kind of their end. Raises the most informative error of a failure. */
export async function trainNatively(
  { config, handle, log, placement, processes, placed, stop, kill, onStarted }: Attempt,
  { guardian, servers, devices, onWorkerLine }: AttemptServices,
): Promise<RunKind> {
  const { settings, evaluation } = config;
  const outcome = new Outcome();
  const place = { processes, placement, port: await freePort() };
  const env = { ...settings.launch.env, EDITRL_GROUP_TOKEN: randomUUID() };
  const main = fileURLToPath(new URL('../worker/main.js', import.meta.url));
  const start: ToWorker = {
    kind: 'start',
    config,
    run: handle.lend(),
    threads: threadsOf(placement, devices()),
    ...(placed === null ? {} : { places: deviceIndices(placed) }),
  };
  const over = new AbortController();
  let serving: Promise<() => Promise<void>> | null = null;
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
      stop,
      kill,
      askToStop: (workers) => send(workers[0], { kind: 'stop' }),
      beforeEnd: (worker) => send(worker, { kind: 'end' }),
      onLine: (_rank, line) => onWorkerLine(settings.run_name, line),
      onStarted: (started) => {
        onStarted(started);
        for (const worker of started.workers) send(worker, start);
        const [leader] = started.workers;
        const user: ServerUser = {
          notice: (line) => log.logger.warn(line),
          lost: (error) => send(leader, { kind: 'server_lost', error: packError(error) }),
          over: over.signal,
        };
        const served = serverDevices(settings, devices(), placement.devices);
        serving = servers
          .start(settings, { attempt: handle.attempt, served, evaluation }, user)
          .then(({ addresses, close }) => {
            send(leader, { kind: 'servers', servers: addresses });
            return close;
          })
          .catch((error: unknown) => {
            send(leader, { kind: 'server_lost', error: packError(error) });
            return async () => {};
          });
      },
      onMessage: (worker, message) => outcome.receive(worker, message as FromWorker),
    });
  } catch (error) {
    outcome.failure = error;
  } finally {
    over.abort();
    await (
      await (serving as Promise<() => Promise<void>> | null)
    )?.();
  }
  return outcome.settle();
}

function send(worker: Worker, message: ToWorker): void {
  worker.send(message);
}

/** CPU threads of a rank. 0 lets the engine use all of them. */
function threadsOf(placement: Placement, devices: Devices): number {
  return placement.threads >= devices.cpus ? 0 : placement.threads;
}

/** The end of the workers, from their messages and their exits. */
class Outcome {
  failure: unknown = null;
  #result: RunKind | null = null;
  readonly #errors = new Map<number, ErrorMessage>();

  receive({ rank }: Worker, message: FromWorker): void {
    if (message.kind === 'ended' && rank === 0) this.#result = message.result;
    if (message.kind === 'failed') this.#errors.set(rank, message.error);
  }

  /** Returns the result, or raises the most informative error. A killed worker has reported neither a result nor an error. */
  settle(): RunKind {
    if (this.failure === null && this.#errors.size === 0) return this.#result ?? 'interrupted';
    const reported = this.#mostInformativeError();
    if (reported === null) throw this.failure;
    const { rank, error } = reported;
    throw unpackError(rank === 0 ? error : { ...error, message: `rank ${rank}: ${error.message}` });
  }

  /** The error that a worker reported before it ended. Null if a worker hung or was killed. */
  #mostInformativeError(): { rank: number; error: ErrorMessage } | null {
    const { failure } = this;
    const all = [...this.#errors].map(([rank, error]) => ({ rank, error }));
    const own = all.filter(({ error }) => error.name !== PEER_LOST);
    if (!(failure instanceof RunFailed)) return failure === null ? (own[0] ?? all[0] ?? null) : null;
    const outside = failure.failure.exitCode === null;
    return outside ? null : (own.find(({ rank }) => rank === failure.failure.rank) ?? own[0] ?? null);
  }
}
