/**
 * The gateway that runs share: started where a run names several judges, and where several runs of this launcher ask the same one.
 * It is a process of its own. Passing on megabytes of images would hold up the launcher's heartbeats and its supervision; a gateway
 * that fails is started again at the same address while the runs go on; and it is the same program that a person would start.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { createWriteStream, mkdirSync, type WriteStream } from 'node:fs';
import { Socket } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { EndpointError } from '../../core/errors.js';
import { dialectOf } from '../../rewards/judge/traits.js';
import type { Endpoint, JudgeAddress } from '../../rewards/judge/endpoints.js';
import type { RewardSettings } from '../../rewards/schema/reward.js';
import { exitReason } from '../processes/failure.js';
import { newToken, TOKEN_VARIABLE } from './token.js';
import { Upkeep, type SayOfServer, type ServerUser } from './upkeep.js';

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
  readonly say: SayOfServer;
  /** The command line's file; this program's own by default. */
  readonly program?: string;
}

const START_TIMEOUT_MS = 60_000;
const ADVICE = 'Run `editrl gateway` by hand to see why, or name a single judge as reward.endpoint.';
/** A hung judge has to be noticed here before the run's own time limit ends the request. */
const SHARE_OF_TIMEOUT = 0.8;

export class SharedGateways {
  readonly #gateways = new Map<string, Promise<GatewayProcess>>();

  constructor(private readonly options: SharedGatewaysOptions) {}

  /**
   * Where the run's workers ask: the gateway's address, started at need, or the endpoint itself where nothing is shared. The first
   * run's limits are those of the gateway. Raises EndpointError where the gateway does not start.
   */
  async addressFor(endpoint: Endpoint, run: JudgedRun): Promise<JudgeAddress> {
    const urls = urlsToShare(endpoint, this.options.severalRuns);
    if (urls === null) return { endpoint, token: null };
    const asked = modelFlags(run.reward);
    const key = JSON.stringify([[...urls].sort(), asked]);
    const known = this.#gateways.get(key);
    const { say, program = fileURLToPath(new URL('../../cli/main.js', import.meta.url)) } = this.options;
    const onLost = (): void => void this.#gateways.delete(key);
    const starting = known ?? GatewayProcess.start({ program, urls, asked, run, say, onLost });
    this.#gateways.set(key, starting);
    try {
      const gateway = await starting;
      gateway.use(run.user);
      return { endpoint: gateway.urlOf(run.runName), token: gateway.token };
    } catch (error) {
      if (this.#gateways.get(key) === starting) this.#gateways.delete(key);
      throw error;
    }
  }

  async close(): Promise<void> {
    const gateways = [...this.#gateways.values()];
    this.#gateways.clear();
    await Promise.all(gateways.map(async (gateway) => (await gateway.catch(() => null))?.close()));
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

interface GatewayStart {
  readonly program: string;
  readonly urls: readonly string[];
  readonly asked: readonly string[];
  readonly run: JudgedRun;
  readonly say: SayOfServer;
  /** Told when it is given up. */
  readonly onLost: () => void;
}

class GatewayProcess {
  /** What its callers have to send, after a restart too. The judges behind it are sent their own key. */
  readonly token = newToken();
  #child: ChildProcess | null = null;
  #url = '';
  readonly #upkeep: Upkeep;

  private constructor(
    private readonly program: string,
    private readonly flags: readonly string[],
    private readonly say: SayOfServer,
    private readonly log: WriteStream,
    onLost: () => void,
  ) {
    // Runs that ask while it is down find nobody, and ask again: that is what they do for every judge.
    this.#upkeep = new Upkeep({
      name: 'the gateway in front of the judges',
      say,
      next: ADVICE,
      restart: () => this.#launch(Number(new URL(this.#url).port)),
      giveUp: onLost,
    });
  }

  /** Raises EndpointError where it does not start. */
  static async start({ program, urls, asked, run, say, onLost }: GatewayStart): Promise<GatewayProcess> {
    mkdirSync(run.baseExpDir, { recursive: true });
    const log = createWriteStream(join(run.baseExpDir, 'gateway.log'), { flags: 'a' });
    // The log is a convenience; what matters in it is said on the terminal, too.
    log.on('error', (error) => say(`the gateway's log cannot be written: ${error.message}`, false));
    const flags = [
      ...urls.flatMap((url) => ['--upstream', url]),
      ...asked,
      ...['--token-env', TOKEN_VARIABLE],
      ...[
        '--max-concurrency',
        String(run.reward.concurrency),
        '--timeout-s',
        String(run.reward.timeout_s * SHARE_OF_TIMEOUT),
      ],
    ];
    const gateway = new GatewayProcess(program, flags, say, log, onLost);
    const failed = await gateway.#launch(0);
    if (failed !== null) {
      throw new EndpointError(`the gateway in front of the judges did not start: it ${failed}`, { next: ADVICE });
    }
    say(`a gateway at ${gateway.#url} shares ${urls.join(', ')} between runs`, false);
    return gateway;
  }

  /** The run's name is in the address, so that every client of the run counts as the run. */
  urlOf(runName: string): string {
    const { origin } = new URL(this.#url);
    return `${origin}/run/${runName}/v1`;
  }

  /** Tells a user how the gateway fares. */
  use(user: ServerUser): void {
    this.#upkeep.use(user);
  }

  async close(): Promise<void> {
    this.#upkeep.close();
    const child = this.#child;
    if (child !== null && child.exitCode === null && child.signalCode === null) {
      // Its last words come after its exit, and nothing else may keep this process alive for them.
      const closed = new Promise<void>((resolve) => child.once('close', () => resolve()));
      child.ref();
      for (const stream of streamsOf(child)) stream.ref();
      child.stdin?.end();
      child.kill('SIGTERM');
      await closed;
    }
    await new Promise<void>((resolve) => this.log.end(() => resolve()));
  }

  /** Null once it listens, else how that failed. */
  async #launch(port: number): Promise<string | null> {
    const child = spawn(
      process.execPath,
      [this.program, 'gateway', ...this.flags, '--port', String(port), '--json', '--exit-with-parent'],
      // A process group of its own: Ctrl-C must reach the runs alone, which still need judges to finish their iterations.
      {
        stdio: ['pipe', 'pipe', 'pipe'],
        env: { ...process.env, [TOKEN_VARIABLE]: this.token },
        detached: true,
      },
    );
    this.#child = child;
    const errors: string[] = [];
    createInterface({ input: child.stderr }).on('line', (line) => {
      errors.push(line);
      if (errors.length > 5) errors.shift();
      this.log.write(`${line}\n`);
      if (/ warn: /.test(line)) this.say(`gateway: ${line.replace(/^\S+ warn: /, '')}`, false);
    });
    const failed = await new Promise<string | null>((resolve) => {
      const timer = setTimeout(() => {
        child.kill('SIGKILL');
        resolve(`gave no answer within ${START_TIMEOUT_MS / 1000} s`);
      }, START_TIMEOUT_MS);
      const settle = (how: string | null): void => {
        clearTimeout(timer);
        resolve(how);
      };
      child.once('error', (error) => settle(`could not be started: ${error.message}`));
      child.once('exit', (code, signal) => settle([exitOf(code, signal), ...errors].join('\n  | ')));
      createInterface({ input: child.stdout }).once('line', (line) => {
        this.#url = (JSON.parse(line) as { url: string }).url;
        settle(null);
      });
    });
    if (failed !== null) return failed;
    child.removeAllListeners('exit');
    child.once('exit', (code, signal) => this.#upkeep.ended(exitOf(code, signal)));
    child.unref();
    for (const stream of streamsOf(child)) stream.unref();
    return null;
  }
}

function exitOf(code: number | null, signal: NodeJS.Signals | null): string {
  return exitReason({ code, signal }, { told: null, kill: null }).reason;
}

/** A child's pipes, which are sockets. */
function streamsOf({ stdin, stdout, stderr }: ChildProcess): Socket[] {
  return [stdin, stdout, stderr].filter((stream) => stream instanceof Socket);
}
