/** Connects a run to a training server: opens the session and the store of sampled answers. */
import { createHash, randomBytes } from 'node:crypto';
import { resolve } from 'node:path';
import type { Clock, Deadline } from '../../core/clock.js';
import { ConfigError } from '../../core/errors.js';
import { TinkerConnection } from '../policies/tinker/connection.js';
import { TinkerSession } from '../policies/tinker/session.js';
import type { TokenPrompt } from '../../models/tokenizer/format.js';
import type { TokenFormat } from '../../models/tokenizer/format.js';
import { waitForRemote, type ReplayOptions } from '../../core/group/replay.js';
import { probeServer, type WithDeadline } from '../policies/tinker/probe.js';
import { PromptChunks, type ImageInputs } from '../policies/tinker/prompts.js';
import { TinkerPolicy } from '../policies/tinker/policy.js';
import { TinkerService, type Reduction } from '../policies/tinker/served.js';
import type { SampledAnswer } from '../policies/vllm/sampler.js';
import { answerForm } from '../policies/vllm/sampler.js';
import type { Spending } from '../../run/spending.js';
import type { RunPaths } from '../../run/paths.js';
import type { TinkerSettings } from '../../config/schema/trainer.js';
import type { OptimizerSettings, RolloutSettings } from '../../config/schema/training.js';
import type { StartedTrainer } from '../context.js';
import { openRemote, type ClientServices, type NamedRun, type RemoteServices } from './remote.js';

/** The settings of a run that training on a server depends on. */
interface ServedRun extends NamedRun, ProbedSettings {
  readonly optimizer: OptimizerSettings;
  readonly policy: { readonly model_context_size: number };
}

/** The settings that the probe depends on. */
interface ProbedSettings {
  readonly run_name: string;
  readonly seed: number;
  readonly algorithm: { readonly type: string };
  readonly rollout: Pick<RolloutSettings, 'ahead'>;
}

/** The version that the SDK of this protocol reports. */
const SDK_VERSION = '0.25.0';

/**
 * Waits for the server and probes it. The first request, or restoring a checkpoint, opens the model.
 * Raises ConfigError without an address, EndpointError if the server stays unreachable, ProbeError if it fails the probe, and
 * WaitInterrupted if the run is asked to stop meanwhile.
 */
export async function openServedPolicy<P extends TokenPrompt>(
  run: ServedRun,
  trainer: TinkerSettings,
  format: TokenFormat<P>,
  imageInputs: ImageInputs | null,
  services: RemoteServices,
): Promise<TinkerPolicy<P>> {
  const started = services.trainer ?? null;
  const address = addressOf(trainer, started);
  const { base_model: baseModel, concurrency } = trainer;
  const lora = adapterOf(trainer, run);
  const prepare = async (connection: TinkerConnection, within: Deadline): Promise<void> => {
    await connection.ask('/healthz', null, within);
    services.log.logger.info(`${connection.url} trains adapters of rank ${lora.rank} over ${baseModel}`);
  };
  const { client, paths, lines, replay } = await openRemote<TinkerConnection, SampledAnswer, void>(
    run,
    {
      name: 'the training server',
      settings: trainer,
      open: (tools) => connectionOf(address, trainer, tools),
      form: answerForm,
      linesOf: ({ answers }) => answers,
      prepare,
    },
    services,
  );
  const { logger } = services.log;
  const reduction = await requireProbed(run, trainer, format, {
    connection: client,
    replay,
    logger,
    spending: services.spending ?? null,
  });
  const session = sessionOf(client, trainer, run, services);
  const note = (text: string): void => void logger.warn(text);
  return new TinkerPolicy<P>({
    ...replay,
    service: new TinkerService({
      connection: client,
      session,
      reduction,
      concurrency,
      baseModel,
      chunks: new PromptChunks(imageInputs),
      note,
    }),
    format,
    // If the settings leave the reduction open, the gradient is the same on every server.
    model: { base_model: baseModel, ...lora, reduction: trainer.reduction },
    optimizer: run.optimizer,
    contextSize: run.policy.model_context_size,
    prefix: `${ownNames(paths)}${randomBytes(4).toString('hex')}-`,
    ownNames: ownNames(paths),
    downloadsAdapter: trainer.download_adapter,
    note,
    store: lines,
  });
}

/** Returns the server's reduction of losses once it has passed the probe. Closes everything if it fails. */
async function requireProbed(
  run: ServedRun,
  trainer: TinkerSettings,
  format: ProbedFormat,
  {
    connection,
    replay,
    logger,
    spending,
  }: {
    readonly connection: TinkerConnection;
    readonly replay: Pick<ReplayOptions<never>, 'stop' | 'maxWaitMs' | 'close'> & { readonly clock?: Clock };
    readonly logger: RemoteServices['log']['logger'];
    readonly spending: Spending | null;
  },
): Promise<Reduction> {
  try {
    const { reduction, seconds } = await probed(
      connection,
      trainer,
      run,
      format,
      (work) => waitForRemote(replay, work),
      {
        spending,
      },
    );
    logger.info(`the training server passed its probe (${reduction}, ${seconds} s)`);
    return reduction;
  } catch (error) {
    await replay.close();
    throw error;
  }
}

type ProbedFormat = Parameters<typeof probeServer>[0]['format'];

/** The result of a probe. */
export interface ServerProbe {
  readonly url: string;
  readonly reduction: Reduction;
  readonly seconds: number;
}

async function probed(
  connection: TinkerConnection,
  trainer: TinkerSettings,
  run: ProbedSettings,
  format: ProbedFormat,
  withDeadline: WithDeadline,
  services: Pick<RemoteServices, 'spending'>,
): Promise<ServerProbe> {
  const { clock, url } = connection;
  const start = clock.now();
  const session = sessionOf(connection, trainer, run, services);
  const { concurrency, reduction: set } = trainer;
  const samplesAhead = run.algorithm.type !== 'sft' && run.rollout.ahead > 0;
  const options = { connection, session, concurrency, withDeadline, format, samplesAhead };
  const reduction = await probeServer({ ...options, reduction: set });
  return { url, reduction, seconds: Math.round((clock.now() - start) / 100) / 10 };
}

/**
 * Probes a server for these settings without a run. `started` is the server that was started for the probe, or null for
 * a running one. Raises the errors of `openServedPolicy`.
 */
export async function checkServer(
  run: ProbedSettings,
  trainer: TinkerSettings,
  format: ProbedFormat,
  {
    started,
    stop,
    onNote,
  }: {
    readonly started: StartedTrainer | null;
    readonly stop: AbortSignal;
    readonly onNote: (note: string) => void;
  },
): Promise<ServerProbe> {
  const connection = connectionOf(addressOf(trainer, started), trainer, {
    concurrency: trainer.concurrency,
    onNote,
    onWaiting: (found, waitedS) => onNote(`waiting for the training server (${waitedS} s): ${found}`),
  });
  const withDeadline: WithDeadline = (work) => waitForRemote({ stop, maxWaitMs: trainer.max_wait_s * 1000 }, work);
  try {
    return await probed(connection, trainer, run, format, withDeadline, {});
  } finally {
    await connection.close();
  }
}

function connectionOf(address: Address, trainer: TinkerSettings, tools: ClientServices): TinkerConnection {
  return new TinkerConnection({
    ...tools,
    ...address,
    // Other requests continue while two connections wait for results.
    concurrency: trainer.concurrency + 2,
    timeoutMs: trainer.timeout_s * 1000,
  });
}

function sessionOf(
  connection: TinkerConnection,
  trainer: TinkerSettings,
  run: ProbedSettings,
  { spending }: Pick<RemoteServices, 'spending'>,
): TinkerSession {
  return new TinkerSession({
    connection,
    dialect: trainer.dialect,
    baseModel: trainer.base_model,
    lora: adapterOf(trainer, run),
    tags: ['editrl', run.run_name],
    version: SDK_VERSION,
    count: (kind, tokens) => spending?.count(kind, tokens),
  });
}

function adapterOf({ lora }: TinkerSettings, { seed }: ProbedSettings): { rank: number; seed: number } {
  return { rank: lora.rank, seed: lora.seed ?? seed };
}

interface Address {
  readonly url: string;
  readonly apiKey: string | undefined;
}

/** The address of the server that was started with the run, or else of the settings or the environment. */
function addressOf({ base_url, serve, api_key_env }: TinkerSettings, started: StartedTrainer | null): Address {
  if (started !== null) return { url: started.url, apiKey: started.token };
  if (serve !== null) {
    throw new ConfigError('no training server was started for this run', {
      where: 'policy.trainer.serve',
      next: 'Start it with `editrl run`, or set policy.trainer.base_url to a running server.',
    });
  }
  const url = base_url ?? process.env['TINKER_BASE_URL'] ?? null;
  if (url !== null && URL.canParse(url)) return { url, apiKey: process.env[api_key_env] };
  throw new ConfigError(url === null ? 'no training server is configured' : `TINKER_BASE_URL: found ${url}`, {
    where: 'policy.trainer.base_url',
    next: 'Set it to http://HOST:PORT, export TINKER_BASE_URL, or start one with the run (policy.trainer.serve).',
  });
}

/**
 * Prefix of the names of all states that this run saves. The attempt's own part follows. Names must be unique on the
 * server and contain only characters that every server accepts.
 */
function ownNames({ dir, runName }: RunPaths): string {
  const own = createHash('sha256').update(resolve(dir)).digest('hex').slice(0, 8);
  return `${runName.replaceAll(/[^A-Za-z0-9_-]/g, '_').slice(0, 100)}-${own}-`;
}
