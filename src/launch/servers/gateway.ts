/**
 * The gateway that runs share: started where a run names several judges, and where several runs of this launcher ask the same one.
 * It is a process of its own. Passing on megabytes of images would hold up the launcher's heartbeats and its supervision; a gateway
 * that fails is started again at the same address while the runs go on; and it is the same program that a person would start.
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

/** What a run says about its judges. */
export interface JudgedRun {
  readonly runName: string;
  readonly baseExpDir: string;
  /**
   * What it asks for, in which time, and how many of its requests are under way: so many each judge gets at most from all runs together,
   * too.
   */
  readonly reward: Pick<RewardSettings, 'concurrency' | 'timeout_s' | 'model' | 'model_alias'>;
  /** Is told how the gateway fares. */
  readonly user: ServerUser;
}

export interface SharedGatewaysOptions {
  /** Whether several runs ask the same judge, so that even a single one is shared. */
  readonly severalRuns: boolean;
  readonly say: ServerReporter;
  readonly guardian: Guardian;
  /** The command line's file; this program's own by default. */
  readonly program?: string;
}

const ADVICE = 'Run `editrl serve gateway` by hand to see why, or name a single judge as reward.endpoint.';
/** A hung judge has to be noticed here before the run's own time limit ends the request. */
const SHARE_OF_TIMEOUT = 0.8;

export class SharedGateways {
  readonly #gateways = new SharedServers();

  constructor(private readonly options: SharedGatewaysOptions) {}

  /**
   * Where the run's workers ask: the gateway's address, started at need, or the endpoint itself where nothing is shared. The run's name is in the
   * address, so that every client of the run counts as the run. The first run's limits are those of the gateway. Raises EndpointError
   * where the gateway does not start.
   */
  async addressFor(endpoint: Endpoint, run: JudgedRun): Promise<JudgeAddress> {
    const urls = urlsToShare(endpoint, this.options.severalRuns);
    if (urls === null) return { endpoint, token: null };
    const asked = modelFlags(run.reward);
    const gateway = await this.#gateways.use(
      JSON.stringify([[...urls].sort(), asked]),
      (onLost) => this.#start(urls, asked, run, onLost),
      run.user,
    );
    return { endpoint: `${new URL(gateway.url).origin}/run/${run.runName}/v1`, token: gateway.token };
  }

  close(): Promise<void> {
    return this.#gateways.close();
  }

  async #start(
    urls: readonly string[],
    asked: readonly string[],
    run: JudgedRun,
    onLost: () => void,
  ): Promise<ManagedServer> {
    const { say, guardian } = this.options;
    const gateway = await ManagedServer.start(this.#specification(urls, asked, run), { say, guardian, onLost });
    say(`a gateway at ${gateway.url} shares ${urls.join(', ')} between runs`, false);
    return gateway;
  }

  /** Runs that ask while it is down find nobody, and ask again: that is what they do for every judge. */
  #specification(
    urls: readonly string[],
    asked: readonly string[],
    { baseExpDir, reward }: JudgedRun,
  ): ServerSpecification {
    const { say, program = fileURLToPath(new URL('../../cli/main.js', import.meta.url)) } = this.options;
    const limits = { 'max-concurrency': reward.concurrency, 'timeout-s': reward.timeout_s * SHARE_OF_TIMEOUT };
    return {
      name: 'the gateway in front of the judges',
      where: 'reward.endpoint',
      next: ADVICE,
      reached: { kind: 'printed', urlIn: urlOfJson },
      command: (port) => [
        ...[process.execPath, program, 'serve', 'gateway'],
        ...urls.flatMap((url) => ['--upstream', url]),
        ...asked,
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
 * A node file is followed by the run itself, which waits for it; a single judge of a single run needs nobody in between; and OpenAI's
 * own service balances itself, and wants requests that only a client which knows its address sends.
 */
export function urlsToShare(endpoint: Endpoint, severalRuns: boolean): readonly string[] | null {
  const urls = Array.isArray(endpoint) ? endpoint : typeof endpoint === 'string' && severalRuns ? [endpoint] : [];
  if (urls.length === 0 || urls.includes('embedded') || dialectOf(urls) === 'openai') return null;
  return urls;
}

/** What a judge does not list it is asked for only where the run expects that. */
function modelFlags({ model, model_alias: alias }: JudgedRun['reward']): readonly string[] {
  if (alias === false) return [];
  return ['--model', model, '--model-alias', ...(alias === true ? [] : alias)];
}

export interface EmbeddedJudgesOptions {
  readonly say: ServerReporter;
  /** Guards the judges; default: a guardian of their own. */
  readonly guardian?: Guardian;
  /** The command line's file; this program's own by default. */
  readonly program?: string;
  readonly clock?: Clock;
}

function specification(program: string, model: string): ServerSpecification {
  return {
    name: 'the embedded judge',
    where: 'reward.endpoint',
    next: 'Check whether memory runs out, or name another reward.endpoint (`editrl serve judge` serves the same judge). Then run the same command again.',
    reached: { kind: 'printed', urlIn: urlOfJson },
    command: (port) => [
      ...[process.execPath, program, 'serve', 'judge', '--model', model, '--port', String(port)],
      ...['--token-env', TOKEN_VARIABLE, '--json', '--exit-with-parent'],
    ],
    startTimeoutS: 30,
    shownLines: 5,
  };
}

/** Embedded judges: each is started when first needed, one for each model name. */
export class EmbeddedJudges {
  readonly #judges = new SharedServers();
  readonly #guardian: Guardian;

  constructor(private readonly options: EmbeddedJudgesOptions) {
    this.#guardian = options.guardian ?? new Guardian();
  }

  /**
   * The address of a reward's judge; the user of an embedded one is informed about it. One that could not be kept up is started again at another
   * address. Raises EndpointError when the embedded judge does not start.
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
