/** The embedded judge: the rule judge in its own process, so that a run cannot tell it from any other server. */
import { fileURLToPath } from 'node:url';
import type { Clock } from '../../core/clock.js';
import type { JudgeAddress } from '../../rewards/judge/endpoints.js';
import type { RewardSettings } from '../../rewards/schema/reward.js';
import { Guardian } from '../processes/guardian.js';
import { ManagedServer, SharedServers, type ServerSpecification } from './managed.js';
import type { ServerReporter, ServerUser } from './upkeep.js';

export interface EmbeddedJudgesOptions {
  readonly say: ServerReporter;
  /** Guards the judges; default: a guardian of their own. */
  readonly guardian?: Guardian;
  /** The module of its process; default: this program's own. */
  readonly program?: string;
  readonly clock?: Clock;
}

/**
 * This process holds its address: a run whose judge is killed loses only the requests under way, and no other user of the machine can take the
 * address meanwhile and give scores.
 */
function specification(program: string, model: string): ServerSpecification {
  return {
    name: 'the embedded judge',
    where: 'reward.endpoint',
    next: 'Look whether memory runs out, or name another reward.endpoint (`editrl judge` serves the same judge by hand); then run the same command again.',
    address: { kind: 'handed_over' },
    command: () => [process.execPath, program, model],
    startTimeoutS: 30,
    // It has no state to save.
    endBy: 'SIGKILL',
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
    const { program = fileURLToPath(new URL('./embedded_judge_main.js', import.meta.url)), ...options } = this.options;
    const judge = await this.#judges.use(
      model,
      (onLost) => ManagedServer.start(specification(program, model), { ...options, guardian: this.#guardian, onLost }),
      user,
    );
    return { endpoint: `${judge.url}/v1`, token: judge.token };
  }

  async close(): Promise<void> {
    await this.#judges.close();
    if (this.options.guardian === undefined) this.#guardian.close();
  }
}
