/** A vLLM that is started with a run, kept up while it goes on, and ended with it, by its process group. */
import { createWriteStream, existsSync, mkdirSync, type WriteStream } from 'node:fs';
import { dirname, join } from 'node:path';
import { systemClock } from '../../core/clock.js';
import { Deadline } from '../../core/deadline.js';
import { CheckpointError, ConfigError, EndpointError, must } from '../../core/errors.js';
import { VllmClient } from '../../engines/vllm/client.js';
import { SERVED_RANKS, type RemoteSampling } from '../../recipes/sampler.js';
import { holdsAdapter } from '../../policies/adapter_files.js';
import type { ServeSettings } from '../../schema/sampler.js';
import type { SamplerAddress } from '../../train/bench.js';
import { ORDER_VARIABLE, PCI_ORDER } from '../machine/devices.js';
import { GuardedChild } from '../processes/child.js';
import { exitReason } from '../processes/failure.js';
import type { Guardian } from '../processes/guardian.js';
import { newToken } from './token.js';
import { freePort, MASTER_ADDRESS } from '../processes/supervise.js';
import { Upkeep, type SayOfServer, type ServerUser } from './upkeep.js';

export const DEFAULT_COMMAND = ['vllm', 'serve'] as const;
const WHERE = 'rollout.engine.serve';
export const HOW_TO_INSTALL =
  'Install vLLM (0.10.2 or later; pip install vllm) where this program finds it, name it in rollout.engine.serve.command, or name a server that runs in rollout.engine.base_url.';
/** It lets go of its GPU's memory before it is ended for good. */
const GRACE_S = 15;
/** Of what it says before it ends, so many lines are told. */
const LAST_WORDS = 8;

export interface VllmServerOptions {
  readonly sampled: RemoteSampling;
  /** The GPUs that it is shown; null for all that this process sees. */
  readonly devices: readonly number[] | null;
  /** The folder of the model. */
  readonly model: string;
  /** The file that what it prints goes to. */
  readonly log: string;
  readonly guardian: Guardian;
  readonly user: ServerUser;
  readonly say: SayOfServer;
}

export class VllmServer {
  readonly #token = newToken();
  readonly #upkeep: Upkeep;
  readonly #serve: ServeSettings;
  readonly #log: WriteStream;
  readonly #over = new AbortController();
  #child: GuardedChild | null = null;
  #port = 0;

  private constructor(private readonly options: VllmServerOptions) {
    this.#serve = must(options.sampled.engine.serve, WHERE);
    mkdirSync(dirname(options.log), { recursive: true });
    this.#log = createWriteStream(options.log, { flags: 'a' });
    // The log is a convenience; its last lines are told in any case.
    this.#log.on('error', (error) => options.user.notice(`the log of vLLM cannot be written: ${error.message}`));
    this.#upkeep = new Upkeep({
      name: 'vLLM',
      where: WHERE,
      say: options.say,
      next: `Its log is ${options.log}.`,
      restart: () => this.#launch().catch((error: unknown) => `could not be started: ${String(error)}`),
      giveUp: () => undefined,
    });
  }

  /** Returns when it has loaded the model. Raises EndpointError where it does not, ConfigError where there is no such program. */
  static async start(options: VllmServerOptions): Promise<VllmServer> {
    const server = new VllmServer(options);
    try {
      server.#port = await freePort();
      options.user.notice(`starting vLLM; its log is ${options.log}`);
      const failed = await server.#launch();
      if (failed !== null) {
        throw new EndpointError(`vLLM did not start: it ${failed}`, {
          where: WHERE,
          next: `Its log is ${options.log}.`,
        });
      }
      server.#upkeep.use(options.user);
      return server;
    } catch (error) {
      await server.close();
      throw error;
    }
  }

  get address(): SamplerAddress {
    return { url: `http://${MASTER_ADDRESS}:${this.#port}`, token: this.#token };
  }

  /** Ends it and everything that it started. */
  async close(): Promise<void> {
    this.#upkeep.close();
    this.#over.abort();
    this.#child?.signal('SIGTERM');
    await this.#child?.ended;
    await new Promise<void>((resolve) => this.#log.end(() => resolve()));
  }

  /** Null once it is up, else how that failed. */
  async #launch(): Promise<string | null> {
    const { guardian, sampled, model } = this.options;
    const child = await GuardedChild.start(
      {
        command: vllmCommand(sampled, model, this.#port),
        env: vllmEnvironment(this.options.devices, this.#token),
        mark: guardian.markAttempt(),
        ipc: false,
        graceS: GRACE_S,
        onLine: (line) => void this.#log.write(`${line}\n`),
        onMessage: () => undefined,
      },
      guardian,
    ).catch((error: unknown) => {
      if (!(error instanceof ConfigError)) throw error;
      throw new ConfigError(error.message, { where: `${WHERE}.command`, next: HOW_TO_INSTALL, cause: error });
    });
    this.#child = child;
    const ended = child.ended.then((exit) => exitReason(exit, { told: null, kill: null }).reason);
    const late = await this.#untilReady(ended);
    if (late !== null) {
      child.signal('SIGKILL');
      const how = await ended;
      return [late === 'ended' ? how : late, ...child.tail.slice(-LAST_WORDS)].join('\n  | ');
    }
    void ended.then((how) => this.#upkeep.ended(how));
    return null;
  }

  /** Null once it is ready, `ended` where it ends before, else why it is not. */
  async #untilReady(ended: Promise<string>): Promise<string | null> {
    const { user } = this.options;
    const gone = new AbortController();
    let hasEnded = false;
    void ended.then(() => {
      hasEnded = true;
      gone.abort();
    });
    const seconds = this.#serve.start_timeout_s;
    const deadline = new Deadline(
      systemClock,
      seconds * 1000,
      AbortSignal.any([gone.signal, this.#over.signal, user.over]),
    );
    const client = new VllmClient({
      url: this.address.url,
      apiKey: this.#token,
      concurrency: 1,
      timeoutMs: 10_000,
      onWaiting: (_found, waitedS) => user.notice(`vLLM is loading (${waitedS} s)`),
    });
    try {
      await client.ready(deadline);
      return null;
    } catch (error) {
      if (!(error instanceof EndpointError)) throw error;
      return hasEnded ? 'ended' : `was not ready within ${seconds} s`;
    } finally {
      deadline.dispose();
      await client.close();
    }
  }
}

/** The whole command line: what the run asks of a server goes before the flags that a person adds, which win. */
export function vllmCommand({ engine, rank, contextSize }: RemoteSampling, model: string, port: number): string[] {
  const { command, devices, gpu_memory_utilization, flags } = must(engine.serve, WHERE);
  const served = must(
    SERVED_RANKS.find((one) => one >= rank),
    `a --max-lora-rank for ${rank}`,
  );
  return [
    ...(command ?? DEFAULT_COMMAND),
    model,
    ...['--host', MASTER_ADDRESS, '--port', String(port)],
    ...['--enable-lora', '--max-lora-rank', String(served)],
    ...['--logprobs-mode', 'processed_logprobs', '--generation-config', 'vllm'],
    ...['--max-model-len', String(contextSize), '--gpu-memory-utilization', String(gpu_memory_utilization)],
    ...(devices !== null && devices.length > 1 ? ['--tensor-parallel-size', String(devices.length)] : []),
    ...flags,
  ];
}

/** The key goes by the environment: arguments are everybody's to read. */
function vllmEnvironment(devices: readonly number[] | null, token: string): NodeJS.ProcessEnv {
  return {
    ...process.env,
    VLLM_ALLOW_RUNTIME_LORA_UPDATING: 'True',
    VLLM_API_KEY: token,
    ...(devices === null ? {} : { [ORDER_VARIABLE]: PCI_ORDER, CUDA_VISIBLE_DEVICES: devices.join(',') }),
  };
}

/** Raises CheckpointError for a folder that vLLM cannot load as it is. */
export function checkServable(folder: string): void {
  const holds = (name: string): boolean => existsSync(join(folder, name));
  const adapter = holdsAdapter(folder);
  if (!adapter && (holds('model.safetensors') || holds('model.safetensors.index.json'))) return;
  throw new CheckpointError(
    adapter
      ? 'vLLM cannot serve this model: it is an adapter, over which the run trains another one'
      : 'vLLM cannot serve this model: there are no model.safetensors',
    {
      where: folder,
      next: 'Name a whole model in the Hugging Face layout in policy.model, or set rollout.engine to null.',
    },
  );
}
