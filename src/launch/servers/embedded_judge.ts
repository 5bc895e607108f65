/** The embedded judge: the rule judge as a process of its own, so that a run cannot tell it from any other server. */
import { fileURLToPath } from 'node:url';
import type { Clock } from '../../core/clock.js';
import type { JudgeAddress } from '../../rewards/judge/endpoints.js';
import type { RewardSettings } from '../../rewards/schema/reward.js';
import { KeptServer } from './kept_server.js';
import type { SayOfServer, ServerUser } from './upkeep.js';

export interface EmbeddedJudgesOptions {
  readonly say: SayOfServer;
  /** The module of its process; this program's own by default. */
  readonly program?: string;
  readonly clock?: Clock;
}

/** The embedded judge for whoever is told to use it: started when it is first asked for, one for each model name. */
export class EmbeddedJudges {
  readonly #judges = new Map<string, Promise<KeptServer>>();

  constructor(private readonly options: EmbeddedJudgesOptions) {}

  /**
   * Where the judge of a reward is; the user of an embedded one is told how it fares. One that could not be kept up is started anew, at
   * another address. Raises EndpointError where the embedded one does not start.
   */
  async addressOf(
    { endpoint, model }: Pick<RewardSettings, 'endpoint' | 'model'>,
    user?: ServerUser,
  ): Promise<JudgeAddress> {
    if (endpoint !== 'embedded') return { endpoint, token: null };
    const starting = this.#judges.get(model) ?? this.#start(model);
    this.#judges.set(model, starting);
    try {
      const judge = await starting;
      if (user !== undefined) judge.use(user);
      return { endpoint: `${judge.origin}/v1`, token: judge.token };
    } catch (error) {
      if (this.#judges.get(model) === starting) this.#judges.delete(model);
      throw error;
    }
  }

  async close(): Promise<void> {
    const judges = [...this.#judges.values()];
    this.#judges.clear();
    await Promise.all(judges.map(async (judge) => (await judge.catch(() => null))?.close()));
  }

  #start(model: string): Promise<KeptServer> {
    const { say, clock, program = fileURLToPath(new URL('./embedded_judge_main.js', import.meta.url)) } = this.options;
    return KeptServer.start({
      name: 'the embedded judge',
      command: [program, model],
      say,
      next: 'Look whether memory runs out, or name another reward.endpoint (`editrl judge` serves the same judge by hand); then run the same command again.',
      onLost: () => this.#judges.delete(model),
      ...(clock === undefined ? {} : { clock }),
    });
  }
}
