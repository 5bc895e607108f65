/**
 * Starts the gateway that runs share, for a run with several judges or for several runs with the same judge.
 * The gateway is a separate process that runs the same program as `editrl serve gateway`. Forwarding megabytes of
 * images would delay the launcher's heartbeats. A failed gateway restarts at the same address while the runs continue.
 */
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { dialectOf } from '../../rewards/judge/dialect.js';
import type { Endpoint, JudgeAddress } from '../../rewards/judge/endpoints.js';
import type { RewardSettings } from '../../rewards/schema/reward.js';
import { Guardian } from '../processes/guardian.js';
import {
  ManagedServer,
  SharedServers,
  TOKEN_VARIABLE,
  urlOfJson,
  type ServerReporter,
  type ServerSpecification,
  type ServerUser,
} from './managed.js';
import type { Clock } from '../../core/clock.js';

/** A run that uses a judge. */
export interface JudgedRun {
  readonly runName: string;
  readonly baseExpDir: string;
  /** The run's judge settings. `concurrency` limits the requests in flight, also per judge for all runs together. */
  readonly reward: Pick<RewardSettings, 'concurrency' | 'timeout_s' | 'model' | 'model_alias'>;
  /** Receives notices about the gateway. */
  readonly user: ServerUser;
}

export interface SharedGatewaysOptions {
  /** Whether several runs use the same judge, so that even a single one is shared. */
  readonly severalRuns: boolean;
  readonly say: ServerReporter;
  readonly guardian: Guardian;
  /** The file of the command line program. Default: editrl's own. */
  readonly program?: string;
}

const ADVICE = 'Run `editrl serve gateway` by hand to see why, or name a single judge as reward.endpoint.';
/** Share of the run's own time limit. The gateway must notice a hung judge before the run cancels the request. */
const SHARE_OF_TIMEOUT = 0.8;

export class SharedGateways {
  readonly #gateways = new SharedServers();

  constructor(private readonly options: SharedGatewaysOptions) {}

  /**
   * The address for the run's workers: the gateway's, started on first use, or the endpoint itself if nothing is
   * shared.
   * The address contains the run's name, so that the gateway counts all clients of a run together. The first run
   * determines the gateway's limits. Raises EndpointError when the gateway does not start.
   */
  async addressFor(endpoint: Endpoint, run: JudgedRun): Promise<JudgeAddress> {
    const urls = urlsToShare(endpoint, this.options.severalRuns);
    if (urls === null) return { endpoint, token: null };
    const flags = modelFlags(run.reward);
    const gateway = await this.#gateways.use(
      JSON.stringify([[...urls].sort(), flags]),
      (onLost) => this.#start(urls, flags, run, onLost),
      run.user,
    );
    return { endpoint: `${new URL(gateway.url).origin}/run/${run.runName}/v1`, token: gateway.token };
  }

  close(): Promise<void> {
    return this.#gateways.close();
  }

  async #start(
    urls: readonly string[],
    flags: readonly string[],
    run: JudgedRun,
    onLost: () => void,
  ): Promise<ManagedServer> {
    const { say, guardian } = this.options;
    const gateway = await ManagedServer.start(this.#specification(urls, flags, run), { say, guardian, onLost });
    say(`a gateway at ${gateway.url} shares ${urls.join(', ')} between runs`, false);
    return gateway;
  }

  /** If the gateway is down, runs retry as they do for every judge. */
  #specification(
    urls: readonly string[],
    flags: readonly string[],
    { baseExpDir, reward }: JudgedRun,
  ): ServerSpecification {
    const { say, program = fileURLToPath(new URL('../../cli/main.js', import.meta.url)) } = this.options;
    const limits = { 'max-concurrency': reward.concurrency, 'timeout-s': reward.timeout_s * SHARE_OF_TIMEOUT };
    return {
      name: 'the gateway in front of the judges',
      where: 'reward.endpoint',
      next: ADVICE,
      readiness: { kind: 'printed', urlIn: urlOfJson },
      command: (port) => [
        ...[process.execPath, program, 'serve', 'gateway'],
        ...urls.flatMap((url) => ['--upstream', url]),
        ...flags,
        ...['--token-env', TOKEN_VARIABLE],
        ...Object.entries({ ...limits, port }).flatMap(([name, value]) => [`--${name}`, String(value)]),
        ...['--json', '--exit-with-parent'],
      ],
      startTimeoutS: 60,
      shownLines: 5,
      log: join(baseExpDir, 'gateway.log'),
      onLine: (line) => {
        if (/ warn: /.test(line)) say(`gateway: ${line.replace(/^\S+ warn: /, '')}`, false);
      },
    };
  }
}

/**
 * The judges to put behind a gateway. Null for a node file, which the run itself reads and waits for, for a single judge
 * of a single run, and for OpenAI's own service. OpenAI balances its load itself and needs requests from a client that
 * knows its address.
 */
export function urlsToShare(endpoint: Endpoint, severalRuns: boolean): readonly string[] | null {
  const urls = Array.isArray(endpoint) ? endpoint : typeof endpoint === 'string' && severalRuns ? [endpoint] : [];
  if (urls.length === 0 || urls.includes('embedded') || dialectOf(urls) === 'openai') return null;
  return urls;
}

/** Allows models that the judge does not list only if the run expects that. */
function modelFlags({ model, model_alias: alias }: JudgedRun['reward']): readonly string[] {
  if (alias === false) return [];
  return ['--model', model, '--model-alias', ...(alias === true ? [] : alias)];
}

export interface EmbeddedJudgesOptions {
  readonly say: ServerReporter;
  /** Guards the judges. Default: a new guardian. */
  readonly guardian?: Guardian;
  /** The file of the command line program. Default: editrl's own. */
  readonly program?: string;
  readonly clock?: Clock;
}

function specification(program: string, model: string): ServerSpecification {
  return {
    name: 'the embedded judge',
    where: 'reward.endpoint',
    next: 'Check whether memory runs out, or name another reward.endpoint (`editrl serve judge` serves the same judge). Then run the same command again.',
    readiness: { kind: 'printed', urlIn: urlOfJson },
    command: (port) => [
      ...[process.execPath, program, 'serve', 'judge', '--model', model, '--port', String(port)],
      ...['--token-env', TOKEN_VARIABLE, '--json', '--exit-with-parent'],
    ],
    startTimeoutS: 30,
    shownLines: 5,
  };
}

/** The embedded judges, one for each model name. Each starts on first use. */
export class EmbeddedJudges {
  readonly #judges = new SharedServers();
  readonly #guardian: Guardian;

  constructor(private readonly options: EmbeddedJudgesOptions) {
    this.#guardian = options.guardian ?? new Guardian();
  }

  /**
   * The address of a reward's judge. The user receives notices about an embedded one. An embedded judge that was given
   * up starts again at another address. Raises EndpointError when it does not start.
   */
  async addressOf(
    { endpoint, model }: Pick<RewardSettings, 'endpoint' | 'model'>,
    user?: ServerUser,
  ): Promise<JudgeAddress> {
    if (endpoint !== 'embedded') return { endpoint, token: null };
    const { program = fileURLToPath(new URL('../../cli/main.js', import.meta.url)), ...options } = this.options;
    const judge = await this.#judges.use(
      model,
      (onLost) => ManagedServer.start(specification(program, model), { ...options, guardian: this.#guardian, onLost }),
      user,
    );
    return { endpoint: judge.url, token: judge.token };
  }

  async close(): Promise<void> {
    await this.#judges.close();
    if (this.options.guardian === undefined) this.#guardian.close();
  }
}
