/** The judges of a reward's terms: all at `reward.endpoint`, with one client for each model that a term names. */
import type { RewardSettings } from '../../rewards/schema/reward.js';
import { must } from '../../core/errors.js';
import type { CombinedReward } from '../../rewards/score/combined.js';
import type { Judge } from '../../rewards/judge/judge.js';
import type { CanaryResult } from '../../rewards/judge/client.js';
import { JudgeClient, type JudgeClientOptions } from '../../rewards/judge/client.js';
import { allowBySetting, resolveEndpoints, type JudgeAddress } from '../../rewards/judge/endpoints.js';
import { imagesOfEdit } from '../../rewards/judge/judge.js';
import { keyFor } from '../../core/http/key.js';
import {
  waitUntilReady,
  type JudgeNames,
  type ReadinessOptions,
  type WaitOptions,
} from '../../rewards/judge/readiness.js';
import { loadPrompts } from '../../rewards/judge/prompts.js';
import { longestReply, shownToJudge } from '../../rewards/score/choice.js';
import type { JudgementStore } from '../../rewards/score/types.js';
import type { OwnJudge, OwnJudgeOptions, ServerLimits, TermServices } from '../../rewards/terms/term.js';
import { modelFolder, type RunResolver } from '../../models/reference.js';
import type { ModelReference } from '../../config/schema/model.js';

export type JudgesOptions = Omit<JudgeClientOptions, 'model' | 'concurrency' | 'context' | 'apiKey'> &
  Pick<JudgeAddress, 'token'> & {
    readonly concurrency: number;
    readonly contexts?: ReadyJudges['contexts'];
  };

/** The limits of a reward section for one of this many processes. */
export function judgeLimits(
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

/**
 * The services that create a reward's terms. Their judges are in `judges`, and `resolveRun` finds models of other runs.
 */
export function termServices(
  reward: RewardSettings,
  judges: Pick<Judges, 'take'>,
  resolveRun: RunResolver,
  more: Partial<TermServices> = {},
): TermServices {
  const services: TermServices = {
    judge: (model = reward.model) => judges.take(model),
    ownJudge: (options) => openOwnJudge(options, services),
    prompts: loadPrompts(reward),
    modelFolder: (reference) => modelFolder(reference as ModelReference, resolveRun),
    store: () => noStore,
    limits: judgeLimits(reward),
    leaveOut: reward.leave_out,
    ...more,
  };
  return services;
}

/** A judge at a term's own address. Its judgements are stored with the run's. */
export function openOwnJudge(
  { term, endpoint, model, alias, keyVariable, replyTokens }: OwnJudgeOptions,
  { limits, store: kept, leaveOut = [] }: TermServices,
): OwnJudge {
  const [url] = resolveEndpoints(endpoint);
  const apiKey = keyFor(url, keyVariable, process.env);
  const key = apiKey === undefined ? {} : { apiKey };
  const store: JudgementStore = {
    find: (...args) => kept().find(...args),
    put: (judgement) => kept().put(judgement),
    get calls() {
      return kept().calls;
    },
  };
  const limited = limits === undefined ? {} : { concurrency: limits.concurrency, policy: limits };
  const client = new JudgeClient({ endpoints: [url], model, store, alias, leaveOut, ...key, ...limited });
  const names: JudgeNames = {
    judge: `the judge of ${term}`,
    endpoint: `endpoint of the term ${term}`,
    model: `model of the term ${term}`,
    allow: allowBySetting(`model_alias of the term ${term}`),
    key: keyVariable,
    start: 'Check the address and the network, or start the server, then run the same command again.',
  };
  return {
    ask: (...args) => client.ask(...args),
    untilReady: async (options) => {
      const shown = imagesOfEdit(Math.max(1, options.sources ?? 1));
      const ready = await waitUntilReady(url, model, {
        ...options,
        ...key,
        alias,
        leaveOut,
        replyTokens,
        names,
        shown,
      });
      client.setContext(ready.context);
    },
    canary: (signal) => client.canary(signal),
    close: () => client.close(),
  };
}

/** No store, for scoring outside of a run. A server's store would grow with every request. */
export const noStore: JudgementStore = { find: () => undefined, put: () => undefined };

/**
 * The API key for a judge: its token for a server that editrl started, and else the environment's key for judges, if
 * there is one. No other server gets the token.
 */
export function judgeKey({ token }: Pick<JudgeAddress, 'token'>): { readonly apiKey?: string } {
  const apiKey = token ?? process.env['OPENAI_API_KEY'];
  return apiKey === undefined ? {} : { apiKey };
}

/** Addresses of ready judges, and their known context sizes by model. Plain data. */
export interface ReadyJudges extends Pick<JudgeAddress, 'token'> {
  readonly endpoints: readonly string[];
  readonly contexts: Readonly<Record<string, number>>;
}

/** The requests that a reward's terms send to judges. */
export function requestsOf(
  reward: RewardSettings,
  sources?: number,
): Required<Pick<ReadinessOptions, 'alias' | 'shown' | 'leaveOut' | 'replyTokens'>> {
  return {
    alias: reward.model_alias,
    shown: shownToJudge(reward, sources),
    leaveOut: reward.leave_out,
    replyTokens: longestReply(reward),
  };
}

/**
 * Collects the judges of terms while these are created. Terms use them only for scoring, when all models are known and
 * ready. A run whose terms take no judge needs no endpoint.
 */
export class Judges {
  readonly #clients = new Map<string, JudgeClient | null>();

  /** The judge of this model. It works once `connect` was called. */
  take(model: string): Judge {
    if (!this.#clients.has(model)) this.#clients.set(model, null);
    return {
      ask: (query, signal, options) =>
        must(this.#clients.get(model), `the connection to judge '${model}'`).ask(query, signal, options),
    };
  }

  /** The models that terms have taken, in order. */
  get models(): readonly string[] {
    return [...this.#clients.keys()];
  }

  /**
   * Waits for all models at one address. Returns no endpoints if no model was taken. Raises the errors of
   * `waitUntilReady`.
   */
  async untilReady({ endpoint, token }: JudgeAddress, options: Omit<ReadinessOptions, 'apiKey'>): Promise<ReadyJudges> {
    const readiness = { ...options, ...judgeKey({ token }) };
    const ready = await Promise.all(this.models.map((model) => waitUntilReady(endpoint, model, readiness)));
    const contexts = this.models.flatMap((model, i) => {
      const { context } = ready[i];
      return context === null ? [] : [[model, context] as const];
    });
    return { endpoints: ready.at(0)?.endpoints ?? [], token, contexts: Object.fromEntries(contexts) };
  }

  /** Waits for a reward's models at one address and connects them. Raises the errors of `waitUntilReady`. */
  async open(
    reward: RewardSettings,
    address: JudgeAddress,
    { store, ...waiting }: WaitOptions & { readonly store: JudgementStore },
  ): Promise<void> {
    const requests = requestsOf(reward, waiting.sources);
    const ready = await this.untilReady(address, { ...waiting, ...requests });
    this.connect({ ...ready, ...requests, store, concurrency: reward.concurrency, policy: judgeLimits(reward) });
  }

  /** Connects all judges. They share `concurrency`. */
  connect({ concurrency: together, token, contexts = {}, ...options }: JudgesOptions): void {
    const concurrency = Math.max(1, Math.floor(together / this.models.length));
    for (const model of this.models) {
      const found = model in contexts ? { context: contexts[model] } : {};
      this.#clients.set(model, new JudgeClient({ ...options, ...judgeKey({ token }), ...found, model, concurrency }));
    }
  }

  /** Whether all judges answer, and then all servers of the reward's terms. Returns the first failure. */
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
