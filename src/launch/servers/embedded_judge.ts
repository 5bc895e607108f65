/** The embedded judge: the rule judge in its own process, so that a run cannot tell it from any other server. */
import { fileURLToPath } from 'node:url';
import type { Clock } from '../../core/clock.js';
import type { JudgeAddress } from '../../rewards/judge/endpoints.js';
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
    next: 'Look whether memory runs out, or name another reward.endpoint (`editrl judge` serves the same judge by hand); then run the same command again.',
    reached: { kind: 'printed', urlIn: urlOfJson },
    command: (port) => [
      ...[process.execPath, program, 'judge', '--model', model, '--port', String(port)],
      ...['--token-env', TOKEN_VARIABLE, '--json', '--exit-with-parent'],
    ],
    startTimeoutS: 30,
    lastWords: 5,
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
