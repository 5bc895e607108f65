/**
 * A judge that the policy is not trained on scores some of its episodes: if the training judge's scores rise and its scores do not, the policy has
 * learned to please one judge. Its scores never enter the reward, and the run continues while it is down.
 */
import type { RewardSettings } from '../rewards/schema/reward.js';
import { ConfigError } from '../core/errors.js';
import { average } from '../core/statistics.js';
import type { ProcessGroup } from '../group/process_group.js';
import type { RunResolver } from '../models/reference.js';
import { createReward } from '../rewards/score/combined.js';
import { resolveEndpoints } from '../rewards/judge/endpoints.js';
import { scoreChunk, summariseUnscored } from '../rewards/score/iteration.js';
import type { OpenSender } from '../rewards/judge/sender.js';
import type { JudgeItem, JudgementStore, Outcome, Reward } from '../rewards/score/types.js';
import { Judges, termServices } from './judges.js';

/** An episode as the training judge scored it. */
export interface ScoredItem {
  readonly item: JudgeItem;
  readonly outcome: Outcome;
}

/** Its judgements are kept with the others, under keys of their own. */
const KEY_PREFIX = 'held_out_judge/';

/** Whether an episode of an iteration, counted over all ranks, is among the share that is asked about; they are spread evenly. */
export function isInShare(index: number, fraction: number): boolean {
  return Math.floor((index + 1) * fraction) > Math.floor(index * fraction);
}

export interface HeldOutJudgeOptions {
  readonly reward: Reward;
  /** Episodes without an answer by then stay without its score. */
  readonly timeoutMs: number;
  /** Called when it stops answering, and when it answers again. */
  readonly warn: (message: string) => void;
  readonly close: () => Promise<void>;
}

export class HeldOutJudge {
  #down = false;

  constructor(private readonly options: HeldOutJudgeOptions) {}

  /**
   * Metrics `hack/judge_gap`, the mean of the training judge's score less this one's over the episodes that both scored, both from 0 to 1;
   * `hack/held_out_judge`, the mean of this one's scores; and `hack/held_out_unscored`, the share that it left without one. The means are
   * absent where nothing was scored by both.
   */
  async compare(iteration: number, episodes: readonly ScoredItem[]): Promise<Record<string, number>> {
    const judged = episodes.filter(({ outcome }) => outcome.kind === 'scored');
    if (judged.length === 0) return {};
    const { reward, timeoutMs } = this.options;
    const items = judged.map(({ item }) => ({ ...item, key: `${KEY_PREFIX}${item.key}` }));
    const outcomes = await scoreChunk(reward, items, AbortSignal.timeout(timeoutMs));
    const pairs = judged.flatMap(({ outcome: theirs }, i) => {
      const own = outcomes[i];
      return theirs.kind === 'scored' && own.kind === 'scored'
        ? [{ training: theirs.normalised, heldOut: own.normalised }]
        : [];
    });
    this.#tell(iteration, outcomes);
    const unscored = { 'hack/held_out_unscored': summariseUnscored(outcomes).fraction };
    if (pairs.length === 0) return unscored;
    return {
      ...unscored,
      'hack/judge_gap': average(pairs.map(({ training, heldOut }) => training - heldOut)),
      'hack/held_out_judge': average(pairs.map(({ heldOut }) => heldOut)),
    };
  }

  close(): Promise<void> {
    return this.options.close();
  }

  #tell(iteration: number, outcomes: readonly Outcome[]): void {
    const { unscored, judged, fraction, example } = summariseUnscored(outcomes);
    const down = fraction > 0.5;
    if (down && !this.#down) {
      this.options.warn(
        `iteration ${iteration}: the held-out judge left ${unscored} of ${judged} episodes without a score (${example}); the run goes on without it`,
      );
    }
    if (!down && this.#down) this.options.warn(`iteration ${iteration}: the held-out judge answers again`);
    this.#down = down;
  }
}

/** A rank's results for its share of a round of an iteration's prompts, of which `start` is the number of the first. */
interface OwnShare {
  readonly start: number;
  readonly rendered: readonly (readonly { readonly item: JudgeItem }[])[];
  readonly outcomes: readonly (readonly Outcome[])[];
}

/**
 * Begins asking the held-out judge about some episodes of all ranks, on rank 0, while the policy is updated; gives its metrics when
 * asked to. Every rank calls it.
 */
export async function askHeldOutJudge(
  iteration: number,
  rounds: readonly OwnShare[],
  {
    held_out_judge: second,
    group,
    judge,
  }: Pick<RewardSettings, 'held_out_judge'> & {
    readonly group: ProcessGroup;
    readonly judge: HeldOutJudge | null;
  },
): Promise<() => Promise<Record<string, number>>> {
  const nothing = async (): Promise<Record<string, number>> => ({});
  if (second === null || iteration % second.every_n_iterations !== 0) return nothing;
  const own = rounds.flatMap(({ start, rendered, outcomes }) => {
    const first = start * (rendered.at(0)?.length ?? 0);
    return rendered
      .flatMap((one, g) => one.map(({ item }, i): ScoredItem => ({ item, outcome: outcomes[g][i] })))
      .filter((_, i) => isInShare(first + i, second.fraction));
  });
  const all = await group.gather(own);
  if (all === null || judge === null) return nothing;
  const asked = judge.compare(iteration, all.flat());
  // Awaited after the update; until then a failure must not count as unhandled.
  asked.catch(() => undefined);
  return () => asked;
}

export interface HeldOutJudgeServices {
  readonly store: JudgementStore;
  readonly resolveRun: RunResolver;
  readonly openSender: OpenSender;
  readonly warn: (message: string) => void;
}

/**
 * The judge at `reward.held_out_judge`, null if there is none; it is not waited for. Raises ConfigError for an address of the wrong form, and for a
 * reward that asks no judge.
 */
export async function openHeldOutJudge(
  reward: RewardSettings,
  { store, resolveRun, openSender, warn }: HeldOutJudgeServices,
): Promise<HeldOutJudge | null> {
  const second = reward.held_out_judge;
  if (second === null) return null;
  const endpoints = resolveEndpoints(second.endpoint);
  const timeoutMs = second.timeout_s * 1000;
  // An iteration without its scores is better than one that waits for it.
  const policy = { attemptTimeoutMs: timeoutMs, maxAttempts: 2 };
  const limits = { ...policy, concurrency: reward.concurrency, processes: 1 };
  const judges = new Judges();
  const choice = second.mode === null ? reward : { ...reward, mode: second.mode, terms: [] };
  const scored = await createReward(
    { ...choice, also_compute: [] },
    {
      ...termServices(reward, judges, resolveRun),
      judge: () => judges.take(second.model),
      store: () => store,
      limits,
      openSender,
    },
  );
  if (judges.models.length === 0) {
    await scored.close();
    throw new ConfigError(
      `the reward '${scored.name}' asks no judge, so that a second judge has nothing to say to it`,
      {
        where: 'reward.held_out_judge',
        next: "Say what it is to be asked, such as reward.held_out_judge.mode: 'viescore'.",
      },
    );
  }
  judges.connect({
    endpoints,
    token: null,
    store,
    alias: second.model_alias,
    leaveOut: reward.leave_out,
    concurrency: reward.concurrency,
    queryTimeoutMs: timeoutMs,
    policy,
    openSender,
  });
  const close = async (): Promise<void> => {
    await scored.close();
    await judges.close();
  };
  return new HeldOutJudge({ reward: scored, timeoutMs, warn, close });
}
