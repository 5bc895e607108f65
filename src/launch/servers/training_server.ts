/**
 * A training server of the Tinker API that starts and ends with a run, including all its processes. It saves into the
 * run's folder.
 */
import { join, resolve } from 'node:path';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { Deadline, systemClock } from '../../core/clock.js';
import { must } from '../../core/errors.js';
import { projectRoot } from '../../core/files.js';
import { TinkerConnection } from '../../train/policies/tinker/connection.js';
import { createHttpPool } from '../../core/http/pool.js';
import { holdServerFolder } from '../../run/claim/training_server_lock.js';
import type { ServeTrainerSettings, TinkerSettings } from '../../config/schema/trainer.js';
import type { StartedTrainer } from '../../train/context.js';
import { ORDER_VARIABLE, PCI_ORDER, serverDevices, type Devices, type Placement } from '../machine/devices.js';
import { Guardian } from '../processes/guardian.js';
import { freePort } from '../processes/supervise.js';
import {
  ManagedServer,
  TOKEN_VARIABLE,
  type ServerReporter,
  type ServerSpecification,
  type ServerUser,
} from './managed.js';
import { trainerServerOf } from '../../recipes/shared/tokens/rules.js';
import type { RunSettings } from '../../config/schema/run.js';

export const WHERE = 'policy.trainer.serve';
export const HOW_TO_SERVE =
  'scripts/serve_skyrl needs bash, and uv and SkyRL in the environment that policy.trainer.serve.python names; or name another program in policy.trainer.serve.command, or a server that runs in policy.trainer.base_url.';

const NAME = 'the training server';
/** Seconds to wait beyond the limit for the start. That limit ends the server first. */
const MARGIN_S = 60;
/** SkyRL releases its engine and Ray its workers within 5 s. */
const GRACE_S = 20;
const REQUEST_TIMEOUT_MS = 10_000;
/** A run has one adapter at a time. A previous one may not be gone yet. */
const ADAPTERS = 2;

export interface TrainingServerOptions {
  readonly trainer: TinkerSettings;
  /** GPUs that the server sees. Null if editrl knows of none. */
  readonly devices: readonly number[] | null;
  /** Folder for saved state. */
  readonly folder: string;
  /** File for its output. */
  readonly log: string;
  readonly guardian: Guardian;
  readonly user: ServerUser;
  readonly say: ServerReporter;
}

export interface StartedServer {
  readonly address: StartedTrainer;
  /** Ends the server and all its child processes. */
  readonly close: () => Promise<void>;
}

/**
 * Returns when the server answers.
 * Raises EndpointError when it does not answer, ConfigError when the program does not exist, and RunError when another
 * server uses its folder or the disk refuses.
 */
export async function startTrainingServer(options: TrainingServerOptions): Promise<StartedServer> {
  const { guardian, user, say, log, folder } = options;
  const lock = await holdServerFolder(folder, user);
  let server: ManagedServer | null = null;
  const close = async (): Promise<void> => {
    await server?.close();
    lock.release();
  };
  try {
    const spec = specification(options, await freePort());
    user.notice(`starting ${NAME}; its log is ${log}`);
    server = await ManagedServer.start(spec, { guardian, user, say });
    const { url, token } = server;
    await warnIfOpen(url, user);
    return { address: { url, token, startedBy: trainingServerCommand(options, null) }, close };
  } catch (error) {
    await close();
    throw error;
  }
}

function specification(options: TrainingServerOptions, port: number): ServerSpecification {
  const { trainer, devices, log, user } = options;
  const { start_timeout_s: startTimeoutS } = serveOf(trainer);
  return {
    name: NAME,
    where: WHERE,
    next: `Its log is ${log}.`,
    readiness: {
      kind: 'probed',
      port,
      probe: (url, token, over) => untilReady(url, token, { user, over, startTimeoutS }),
    },
    command: (at) => trainingServerCommand(options, at),
    environment: (token) => ({
      [TOKEN_VARIABLE]: token,
      [trainer.api_key_env]: token,
      ...(devices === null ? {} : { [ORDER_VARIABLE]: PCI_ORDER, CUDA_VISIBLE_DEVICES: devices.join(',') }),
    }),
    noProgram: { where: `${WHERE}.command`, next: HOW_TO_SERVE },
    startTimeoutS,
    // Trained weights exist only in the server's memory.
    isFatalToUsers: true,
    graceS: GRACE_S,
    shownLines: 12,
    log,
  };
}

async function untilReady(
  url: string,
  token: string,
  { user, over, startTimeoutS }: { user: ServerUser; over: AbortSignal; startTimeoutS: number },
): Promise<void> {
  // The limit for the start ends first, and reports it.
  const deadline = new Deadline(systemClock, 1000 * (startTimeoutS + MARGIN_S), over);
  const connection = new TinkerConnection({
    url,
    apiKey: token,
    concurrency: 1,
    timeoutMs: REQUEST_TIMEOUT_MS,
    onWaiting: (_found, waitedS) => user.notice(`${NAME} is starting (${waitedS} s)`),
  });
  try {
    await connection.ask('/healthz', null, deadline);
  } finally {
    deadline.dispose();
    await connection.close();
  }
}

/**
 * Warns if the server accepts requests without its key, since then every user of this machine can use it. A server that
 * does not reply to such a request is not open, so nothing waits for a reply.
 */
async function warnIfOpen(url: string, user: ServerUser): Promise<void> {
  const pool = createHttpPool({ connections: 1, secret: null });
  try {
    const signal = AbortSignal.any([user.over, AbortSignal.timeout(REQUEST_TIMEOUT_MS)]);
    const status = await pool.fetch(`${url}/api/v1/get_server_capabilities`, { signal }).then(
      (reply) => reply.status,
      () => null,
    );
    if (status !== 200) return;
    user.notice(
      `${NAME} answers without the key that it was given (${TOKEN_VARIABLE}): other users of this machine can ask it, too`,
    );
  } finally {
    await pool.close();
  }
}

/** The command that starts the server. */
function programOf({ command }: ServeTrainerSettings): readonly string[] {
  return command ?? ['bash', skyrlScript()];
}

/** The programs that a server needs, each with the setting that names it. */
export function serverPrograms(
  serve: ServeTrainerSettings,
): readonly { readonly key: string; readonly program: string }[] {
  const { command, python } = serve;
  if (command !== null) return [{ key: `${WHERE}.command`, program: command[0] }];
  return [
    { key: WHERE, program: programOf(serve)[0] },
    { key: `${WHERE}.python`, program: python === null ? 'uv' : join(resolve(python), 'bin', 'uv') },
  ];
}

/** The whole command line, without the port if it is null. The user's own arguments come last. */
export function trainingServerCommand(
  { trainer, devices, folder }: Pick<TrainingServerOptions, 'trainer' | 'devices' | 'folder'>,
  port: number | null,
): string[] {
  const serve = serveOf(trainer);
  return [
    ...programOf(serve),
    ...['--model', trainer.base_model, '--rank', String(trainer.lora.rank)],
    ...(port === null ? [] : ['--port', String(port)]),
    ...['--dir', resolve(folder)],
    ...(serve.command === null ? skyrlFlags(serve, devices) : []),
    ...serve.flags,
  ];
}

function skyrlFlags(
  { mode, python, devices: named }: ServeTrainerSettings,
  devices: readonly number[] | null,
): string[] {
  const backend = mode ?? (devices === null ? 'jax' : 'fsdp');
  return [
    ...['--mode', backend],
    ...(python === null ? [] : ['--env', resolve(python)]),
    ...(backend === 'jax'
      ? ['--adapters', String(ADAPTERS), ...(named === null ? [] : ['--device', 'cuda'])]
      : ['--gpus', String(devices?.length ?? 1)]),
  ];
}

/** editrl's script that starts SkyRL. */
export function skyrlScript(): string {
  return join(projectRoot(), 'scripts', 'serve_skyrl');
}

function serveOf({ serve }: TinkerSettings): ServeTrainerSettings {
  return must(serve, WHERE);
}

export interface LendOptions {
  readonly devices: Devices;
  readonly placement: Pick<Placement, 'devices'>;
  readonly stop: AbortSignal;
  readonly onNote: (note: string) => void;
}

/**
 * Runs `work` with the training server that the settings start, or with null if they start none.
 * Keeps the server's log if `work` fails. Raises the errors of the start and of `work`.
 */
export async function withTrainingServer<T>(
  settings: RunSettings,
  { devices, placement, stop, onNote }: LendOptions,
  work: (started: StartedTrainer | null) => Promise<T>,
): Promise<T> {
  const trainer = trainerServerOf(settings);
  if (trainer === null || trainer.serve === null || settings.launch.command !== null) return work(null);
  const guardian = new Guardian();
  const folder = mkdtempSync(join(tmpdir(), 'editrl-training-server-'));
  const lost = new AbortController();
  try {
    const { address, close } = await startTrainingServer({
      trainer,
      devices: serverDevices(settings, devices, placement.devices),
      folder: join(folder, 'saved'),
      log: join(folder, 'training_server.log'),
      guardian,
      user: { notice: onNote, lost: (error) => lost.abort(error), over: stop },
      say: () => undefined,
    });
    let result: T;
    try {
      const ended = new Promise<never>((_resolve, reject) => {
        const rejectNow = (): void => reject(lost.signal.reason as Error);
        if (lost.signal.aborted) rejectNow();
        else lost.signal.addEventListener('abort', rejectNow, { once: true });
      });
      result = await Promise.race([work(address), ended]);
    } finally {
      await close();
    }
    rmSync(folder, { recursive: true, force: true });
    return result;
  } finally {
    guardian.close();
  }
}
