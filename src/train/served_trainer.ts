/** Wires a server that trains a run's policy: the session there, and where the answers that it samples are kept. */
import { createHash, randomBytes } from 'node:crypto';
import { resolve } from 'node:path';
import type { Deadline } from '../core/deadline.js';
import { ConfigError } from '../core/errors.js';
import { TinkerConnection } from '../engines/tinker/connection.js';
import { TinkerSession } from '../engines/tinker/session.js';
import type { TokenPrompt } from '../policies/tokens/batch.js';
import type { TokenFormat } from '../policies/tokens/format.js';
import { TinkerPolicy } from '../policies/tokens/tinker/policy.js';
import { TinkerService } from '../policies/tokens/tinker/served.js';
import type { SampledAnswer } from '../policies/tokens/vllm/sampler.js';
import { answerForm } from '../run/exchanges.js';
import type { RunPaths } from '../run/paths.js';
import type { TinkerSettings } from '../schema/trainer.js';
import type { OptimizerSettings } from '../schema/training.js';
import { openRemote, type NamedRun, type RemoteServices } from './remote.js';

/** The settings of a run that its training at a server depends on. */
interface ServedRun extends NamedRun {
  readonly seed: number;
  readonly optimizer: OptimizerSettings;
  readonly policy: { readonly model_context_size: number };
}

/** What the SDK of this version of the protocol says of itself. */
const SDK_VERSION = '0.25.0';

/**
 * Waits for the server. The model is opened with the first request, or from a checkpoint. Raises ConfigError where no address is known, EndpointError
 * where the server stays away, Abandoned where the run is asked to stop meanwhile.
 */
export async function openServedPolicy<P extends TokenPrompt>(
  run: ServedRun,
  trainer: TinkerSettings,
  format: TokenFormat<P>,
  services: RemoteServices,
): Promise<TinkerPolicy<P>> {
  const url = addressOf(trainer);
  const { base_model: baseModel, reduction, concurrency } = trainer;
  const lora = { rank: trainer.lora.rank, seed: trainer.lora.seed ?? run.seed };
  const first = async (connection: TinkerConnection, within: Deadline): Promise<void> => {
    await connection.ask('/healthz', null, within);
    services.log.logger.info(`${connection.url} trains adapters of rank ${lora.rank} over ${baseModel}`);
  };
  const { client, paths, lines, replay } = await openRemote<TinkerConnection, SampledAnswer, void>(
    run,
    {
      name: 'the training server',
      settings: trainer,
      open: (tools) =>
        new TinkerConnection({
          ...tools,
          url,
          apiKey: process.env[trainer.api_key_env],
          // A result is waited for while other requests go on.
          concurrency: concurrency + 2,
          timeoutMs: trainer.timeout_s * 1000,
        }),
      form: answerForm,
      linesOf: ({ answers }) => answers,
      first,
    },
    services,
  );
  const session = new TinkerSession({
    connection: client,
    dialect: trainer.dialect,
    baseModel,
    lora,
    tags: ['editrl', paths.runName],
    version: SDK_VERSION,
  });
  return new TinkerPolicy<P>({
    ...replay,
    service: new TinkerService({ connection: client, session, reduction, concurrency }),
    format,
    model: { base_model: baseModel, ...lora, reduction },
    optimizer: run.optimizer,
    contextSize: run.policy.model_context_size,
    prefix: namePrefix(paths),
    store: lines,
  });
}

function addressOf({ base_url }: TinkerSettings): string {
  const url = base_url ?? process.env['TINKER_BASE_URL'] ?? null;
  if (url !== null && URL.canParse(url)) return url;
  throw new ConfigError(url === null ? 'no training server is named' : `TINKER_BASE_URL: found ${url}`, {
    where: 'policy.trainer.base_url',
    next: 'Set it to http://HOST:PORT, or export TINKER_BASE_URL.',
  });
}

/** No other run's, nor another attempt's at this run: a name stands for one state at the server for good. Letters that every server takes. */
function namePrefix({ dir, runName }: RunPaths): string {
  const own = createHash('sha256').update(resolve(dir)).digest('hex').slice(0, 8);
  return `${runName.replaceAll(/[^A-Za-z0-9_-]/g, '_').slice(0, 100)}-${own}-${randomBytes(4).toString('hex')}-`;
}
