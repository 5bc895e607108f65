/** Connects a run to a vLLM server that samples its answers, loads the run's weights there, and stores the answers. */
import { createHash, randomBytes } from 'node:crypto';
import { join, resolve } from 'node:path';
import { Deadline, systemClock } from '../../core/clock.js';
import { ConfigError, EndpointError } from '../../core/errors.js';
import { VllmClient, probeLogProbs, type LogProbsMode, type ServedModel } from '../policies/vllm/client.js';
import { hasVision } from '../../compute/nets/decoder/config.js';
import type { TokenPrompt } from '../../models/tokenizer/format.js';
import type { TokenPolicy } from '../policies/tokens/policy.js';
import type { RemoteSampler } from '../policies/tokens/language_policy.js';
import { AdapterLoader, type WeightsLoader, ModelLoader } from '../policies/vllm/weights_loader.js';
import { VllmSampler, type SampledAnswer } from '../policies/vllm/sampler.js';
import type { RemoteSampling } from '../policies/vllm/remote_sampling.js';
import { answerForm } from '../policies/vllm/sampler.js';
import type { RunPaths } from '../../run/paths.js';
import type { SamplingEngine } from '../../config/schema/sampler.js';
import type { RolloutSettings } from '../../config/schema/training.js';
import type { TrainingContext } from '../context.js';
import { openRemote, pathsOf, type NamedRun } from './remote.js';

/** The settings of a run that a remote sampler depends on. */
export interface SampledSettings extends NamedRun {
  readonly rollout: Pick<RolloutSettings, 'temperature' | 'top_p' | 'top_k'>;
}

const LOOK_MS = 10_000;

/** Facts about the server that rank 0 finds. */
interface Found {
  readonly mode: LogProbsMode;
  /** The server's name of its model. */
  readonly served: string;
  /** The part of weight names that identifies this attempt. */
  readonly attempt: string;
}

type Services = Pick<TrainingContext, 'group' | 'handle' | 'log' | 'stop' | 'checkpoint' | 'sampler'>;

/**
 * Waits for the server, detects the mode of its log-probabilities, and removes the weights of an earlier attempt. Every
 * rank calls it.
 * Raises EndpointError when the server stays unreachable or its context is too short, WaitInterrupted when the run is asked to
 * stop meanwhile.
 */
export async function openRemoteSampler<P extends TokenPrompt>(
  settings: SampledSettings,
  services: Services,
  sampled: RemoteSampling,
  policy: TokenPolicy<P>,
): Promise<RemoteSampler<P>> {
  const { engine, rank } = sampled;
  const { model, contextSize, separateVocabularies, constrained } = policy.options;
  const { format, config } = model;
  const { group, log } = services;
  const paths = pathsOf(settings, services.handle);
  const own = `${namePrefix(paths)}-`;
  const loader = (client: VllmClient, { served, attempt }: Pick<Found, 'served' | 'attempt'>): WeightsLoader => {
    const place = { client, ...adapterFolders(engine, paths) };
    return rank === null
      ? new ModelLoader({ ...place, prefix: `${own}${attempt}-`, model: served })
      : new AdapterLoader({ ...place, own, prefix: `${own}${attempt}-`, rank });
  };
  const prepare = async (client: VllmClient, deadline: Deadline): Promise<Found> => {
    await client.ready(deadline);
    const { id: served } = await fittingModel(client, sampled, deadline);
    const mode = await probeLogProbs(client, served, [...format.ends].slice(0, 1), deadline);
    const version = await client.version(deadline);
    const trained = rank === null ? 'all weights of' : 'adapters over';
    log.logger.info(
      `vLLM${version === null ? '' : ` ${version}`} at ${client.url} samples with ${trained} ${served}; ${inWords(mode, settings, separateVocabularies)}`,
    );
    const attempt = randomBytes(3).toString('hex');
    await loader(client, { served, attempt }).clear(deadline);
    return { mode, served, attempt };
  };
  const { client, lines, found, replay } = await openRemote<VllmClient, SampledAnswer, Found>(
    settings,
    {
      name: 'vLLM',
      settings: engine,
      open: (tools) =>
        new VllmClient({ ...addressOf(sampled, services), ...tools, timeoutMs: engine.timeout_s * 1000 }),
      form: answerForm,
      linesOf: ({ answers }) => answers,
      prepare,
    },
    services,
  );
  return new VllmSampler<P>({
    ...replay,
    client,
    loader: loader(client, found),
    format,
    vocabulary: config.vocab_size,
    contextSize,
    separateVocabularies,
    constrained,
    mode: found.mode,
    vision: hasVision(config) ? config.vision : null,
    store: lines,
    group,
  });
}

/** Checks once whether a running server can sample for a run. Raises EndpointError when it cannot. */
export async function checkVllm(sampled: RemoteSampling, url: string): Promise<void> {
  const apiKey = process.env[sampled.engine.api_key_env];
  const client = new VllmClient({ url, apiKey, concurrency: 1, timeoutMs: LOOK_MS });
  const deadline = new Deadline(systemClock, LOOK_MS);
  try {
    const found = await client.whyNotReady(deadline);
    if (found !== null) {
      throw new EndpointError(`vLLM is not ready: ${found}`, {
        where: url,
        next: 'Start it, or check host and port in rollout.engine.base_url.',
      });
    }
    await fittingModel(client, sampled, deadline);
  } finally {
    deadline.dispose();
    await client.close();
  }
}

/** The address of the server that was started with the run, or else of the settings or the environment. */
function addressOf(
  { engine }: RemoteSampling,
  { sampler = null }: Services,
): { readonly url: string; readonly apiKey: string | undefined } {
  if (engine.base_url !== null) return { url: engine.base_url, apiKey: process.env[engine.api_key_env] };
  if (sampler !== null) return { url: sampler.url, apiKey: sampler.token };
  throw new ConfigError('no vLLM was started for this run', {
    where: 'rollout.engine.serve',
    next: 'Start it with `editrl run`, or set rollout.engine.base_url to a running server.',
  });
}

/**
 * The folder for a run's adapters, and its path on the server. The whole folder is removed at the end. In a shared
 * folder it gets a unique name, never that of a run directory.
 */
export function adapterFolders(
  { adapter_dir, server_adapter_dir }: Pick<SamplingEngine, 'adapter_dir' | 'server_adapter_dir'>,
  paths: RunPaths,
): { readonly folder: string; readonly seenAs: string } {
  const own = adapter_dir === null ? '' : namePrefix(paths);
  const folder = resolve(adapter_dir ?? paths.adaptersDir, own);
  return { folder, seenAs: server_adapter_dir === null ? folder : join(server_adapter_dir, own) };
}

/** Equal for all attempts at a run, and different for a run of the same name in another folder. */
function namePrefix({ dir, runName }: RunPaths): string {
  return `editrl-${runName}-${createHash('sha256').update(resolve(dir)).digest('hex').slice(0, 8)}`;
}

/** The server's model, if it fits the run. Otherwise raises EndpointError with the flags that the server needs. */
async function fittingModel(
  client: VllmClient,
  { rank, pixelLimits, blocks, contextSize }: RemoteSampling,
  within: Deadline,
): Promise<ServedModel> {
  const served = servedModel(await client.models(within), contextSize, client.url);
  if (rank === null) await client.requireControl(within);
  if (rank === null || pixelLimits !== null || blocks) await client.requireGenerate(served.id, within);
  return served;
}

/** The base model among the served models. */
function servedModel(models: readonly ServedModel[], contextSize: number, url: string): ServedModel {
  const model = models.find(({ parent }) => (parent ?? null) === null);
  if (model === undefined) {
    throw new EndpointError('vLLM lists no model', { where: url, next: 'Check that vLLM runs there.' });
  }
  const longest = model.max_model_len ?? Infinity;
  if (longest >= contextSize) return model;
  throw new EndpointError(
    `vLLM takes sequences of ${longest} tokens, but the policy needs ${contextSize} (policy.model_context_size)`,
    { where: url, next: `Start vLLM with --max-model-len ${contextSize}, or set policy.model_context_size lower.` },
  );
}

const modes: Readonly<Record<LogProbsMode, string>> = {
  processed: 'its log-probabilities are of the sampled distribution (processed)',
  raw: 'its log-probabilities are before temperature (raw)',
  other: 'it returned no usable logprobs',
};

function inWords(mode: LogProbsMode, { rollout }: SampledSettings, separateVocabularies: boolean): string {
  const { temperature, top_p, top_k } = rollout;
  const whole = !separateVocabularies && top_p === 1 && top_k === -1;
  const taken = whole && (mode === 'processed' || (mode === 'raw' && temperature === 1));
  if (taken) return `${modes[mode]} and are used`;
  if (!whole) return `${modes[mode]}. With these sampling settings they are recomputed here`;
  return `${modes[mode]}, so they are recomputed here. Start it with --logprobs-mode processed_logprobs for importance weights`;
}
