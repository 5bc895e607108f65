/**
 * Opens a reward section for serving: its terms, their judge, and an identity of everything that decides the scores.
 */
import type { RewardSettings } from '../../rewards/schema/reward.js';
import { ConfigError } from '../../core/errors.js';
import { rewardName } from '../../rewards/score/choice.js';
import { createReward } from '../../rewards/score/combined.js';
import type { JudgeAddress } from '../../rewards/judge/endpoints.js';
import type { JudgementStore } from '../../rewards/score/types.js';
import type { ServedReward } from '../../rewards/server/scorer.js';
import type { RunResolver } from '../../models/reference.js';
import { Judges, noStore, termServices } from '../../train/scoring/judges.js';
import { EmbeddedJudges } from '../servers/gateway.js';
import { rewardDigest } from '../../run/exams.js';
import type { ServerUser } from '../servers/managed.js';

export interface ServedRewardOptions {
  readonly resolveRun: RunResolver;
  readonly onWaiting: (found: string, waitedS: number) => void;
  /** Receives notes about the judge. See `WaitOptions`. */
  readonly onNote: (note: string) => void;
  /** Receives notices about a judge that was started for the reward. */
  readonly judge: ServerUser;
  readonly signal: AbortSignal;
  /** Stores judgements and returns stored ones. Default: no store. */
  readonly store?: JudgementStore;
}

/** A reward that is ready to be served. */
export interface OpenedReward extends ServedReward {
  /** Whether an answer's outcome depends on the others of its group. */
  readonly compares: boolean;
  close(): Promise<void>;
}

/**
 * Creates the terms of a reward section and waits for their judges. Raises ConfigError for terms that this machine
 * cannot create, EndpointError for a judge that stays unreachable for `max_wait_s`.
 */
export async function openServedReward(settings: RewardSettings, options: ServedRewardOptions): Promise<OpenedReward> {
  const judges = new Judges();
  const closers: (() => Promise<void>)[] = [];
  const close = async (): Promise<void> => {
    for (const closer of closers.reverse()) await closer();
    closers.length = 0;
  };
  try {
    const services = termServices(settings, judges, options.resolveRun);
    const reward = await createReward(settings, services);
    closers.push(() => reward.close());
    const { onWaiting, onNote, signal } = options;
    const waiting = { maxWaitS: settings.max_wait_s, onWaiting, onNote, signal };
    await reward.untilReady(waiting);
    if (judges.models.length > 0) {
      const address = await judgeAddress(settings, judges.models, closers, options.judge);
      await judges.open(settings, address, { ...waiting, store: options.store ?? noStore });
    }
    closers.push(() => judges.close());
    return {
      compares: reward.compares === true,
      terms: reward.terms,
      scoreTerms: (item, signal, call) => reward.scoreTerms(item, signal, call),
      digest: rewardDigest(settings, services.prompts),
      canary: (call) => judges.canary(reward, call),
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

async function judgeAddress(
  settings: RewardSettings,
  models: readonly string[],
  closers: (() => Promise<void>)[],
  user: ServerUser,
): Promise<JudgeAddress> {
  const { endpoint } = settings;
  if (endpoint === '') {
    throw new ConfigError(`the reward '${rewardName(settings)}' asks a judge, but none is named`, {
      where: 'reward.endpoint',
      next: 'Give --endpoint http://HOST:4877, or export APP__REWARD_FUNCTION_API_BASE for a config.',
    });
  }
  const embedded = new EmbeddedJudges({ say: () => undefined });
  closers.push(() => embedded.close());
  return embedded.addressOf({ endpoint, model: models[0] }, user);
}
