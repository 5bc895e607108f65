/** The judges that a reward's terms ask: all at `reward.endpoint`, one client for each model that a term names. */
import type { RewardSettings } from '../rewards/schema/reward.js';
import { must } from '../core/errors.js';
import type { CombinedReward } from '../rewards/score/combined.js';
import type { Judge } from '../rewards/judge/judge.js';
import type { CanaryResult } from '../rewards/judge/client.js';
import { JudgeClient, type JudgeClientOptions } from '../rewards/judge/client.js';
import type { ServerLimits } from '../rewards/terms/term.js';

/** What a reward section allows one of so many processes. */
export function limitsOf(
  reward: Pick<RewardSettings, 'concurrency' | 'timeout_s' | 'max_attempts'>,
  processes = 1,
): ServerLimits {
  return {
    concurrency: Math.max(1, Math.floor(reward.concurrency / processes)),
    processes,
    attemptTimeoutMs: reward.timeout_s * 1000,
    maxAttempts: reward.max_attempts,
  };
}

/** The key that the judges of a run ask for, where the environment has one. */
export function judgeKey(): { readonly apiKey?: string } {
  const apiKey = process.env['OPENAI_API_KEY'];
  return apiKey === undefined ? {} : { apiKey };
}

/**
 * Terms take their judges while they are made, and ask them only when they score: by then it is known which models are asked, and these
 * are ready. A run whose terms take none needs no endpoint.
 */
export class Judges {
  readonly #clients = new Map<string, JudgeClient | null>();

  /** The judge of this model; it answers once `connect` was called. */
  take(model: string): Judge {
    if (!this.#clients.has(model)) this.#clients.set(model, null);
    return {
      ask: (query, signal, options) =>
        must(this.#clients.get(model), `the connection to judge '${model}'`).ask(query, signal, options),
    };
  }

  /** The models that were taken, in the order in which they were. */
  get models(): readonly string[] {
    return [...this.#clients.keys()];
  }

  /** Connects all; `concurrency` is that of all together. */
  connect(options: Omit<JudgeClientOptions, 'model' | 'concurrency'> & { readonly concurrency: number }): void {
    const concurrency = Math.max(1, Math.floor(options.concurrency / this.models.length));
    for (const model of this.models) this.#clients.set(model, new JudgeClient({ ...options, model, concurrency }));
  }

  /** Whether every judge answers, and then every server that the reward's terms ask by themselves; the first that does not says why. */
  async canary(reward: Pick<CombinedReward, 'canary'>, signal?: AbortSignal): Promise<CanaryResult> {
    const found = await Promise.all(this.#connected().map((client) => client.canary(signal)));
    return found.find(({ ok }) => !ok) ?? reward.canary(signal);
  }

  async close(): Promise<void> {
    await Promise.all(this.#connected().map((client) => client.close()));
  }

  #connected(): JudgeClient[] {
    return [...this.#clients.values()].filter((client) => client !== null);
  }
}
