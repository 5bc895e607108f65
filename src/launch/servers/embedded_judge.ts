/** The embedded judge: the rule judge as a process of its own, so that a run cannot tell it from any other server. */
import { fileURLToPath } from 'node:url';
import type { Clock } from '../../core/clock.js';
import type { JudgeAddress } from '../../rewards/judge/endpoints.js';
import type { RewardSettings } from '../../rewards/schema/reward.js';
import { Guardian } from '../processes/guardian.js';
import { ManagedServer, SharedServers, type ServerSpecification } from './managed.js';
import type { SayOfServer, ServerUser } from './upkeep.js';

export interface EmbeddedJudgesOptions {
  readonly say: SayOfServer;
  /** Guards the judges; one of their own where it is absent. */
  readonly guardian?: Guardian;
  /** The module of its process; this program's own by default. */
  readonly program?: string;
  readonly clock?: Clock;
}

/**
 * Its address is held by this process: a run whose judge is killed loses no request but those under way, and no other user of the machine can
 * take the address meanwhile and give scores.
 */
function specification(program: string, model: string): ServerSpecification {
  return {
    name: 'the embedded judge',
    where: 'reward.endpoint',
    next: 'Look whether memory runs out, or name another reward.endpoint (`editrl judge` serves the same judge by hand); then run the same command again.',
    address: { kind: 'handed_over' },
    command: () => [process.execPath, program, model],
    startTimeoutS: 30,
    // It keeps nothing that it would have to put away.
    endBy: 'SIGKILL',
    lastWords: 5,
  };
}

/** The embedded judge for whoever is told to use it: started when it is first asked for, one for each model name. */
export class EmbeddedJudges {
  readonly #judges = new SharedServers();
  readonly #guardian: Guardian;

  constructor(private readonly options: EmbeddedJudgesOptions) {
    this.#guardian = options.guardian ?? new Guardian();
  }

  /**
   * Where the judge of a reward is; the user of an embedded one is told how it fares. One that could not be kept up is started anew, at
   * another address. Raises EndpointError where the embedded one does not start.
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
