/**
 * The scorer of a real run: its reward's terms and their judge. Stores every judgement in the run directory before
 * using it.
 */
import type { RewardSettings } from '../../rewards/schema/reward.js';
import type { ModelFileOptions } from '../../compute/onnx/model_file.js';
import { ConfigError, must } from '../../core/errors.js';
import { decidingTerms, questionsOf, recordedTerms, rewardName } from '../../rewards/score/choice.js';
import { createReward, type CombinedReward } from '../../rewards/score/combined.js';
import type { JudgeAddress } from '../../rewards/judge/endpoints.js';
import type { WaitOptions } from '../../rewards/judge/readiness.js';
import {
  judgementForm,
  type JudgeCalls,
  type Judgement,
  type JudgementStore,
  type JudgeItem,
  type Outcome,
} from '../../rewards/score/types.js';
import { scoreChunk, settleOutcomes, summarizeUnscored } from '../../rewards/score/iteration.js';
import type { RunHandle } from '../../run/claim/claim.js';
import { examsOf } from '../../run/exams.js';
import { openExchanges, storedCalls, type Exchanges } from '../../run/exchanges.js';
import type { RunLog } from '../../run/logs.js';
import { RunPaths } from '../../run/paths.js';
import type { RunResolver } from '../../models/reference.js';
import { CallLimit } from './call_limit.js';
import { ExamWatch } from './exam_watch.js';
import { Judges, judgeLimits, requestsOf, termServices, type ReadyJudges } from './judges.js';
import { WaitInterrupted, runOnRankZero } from '../../core/group/rank_zero.js';
import type { ProcessGroup } from '../../core/group/process_group.js';
import type { Scorer } from './scorer.js';

/** The run settings that its scorer depends on. */
export interface ScoredRun {
  readonly run_name: string;
  readonly base_exp_dir: string;
  readonly reward: RewardSettings;
}

export interface ScorerServices {
  readonly group: ProcessGroup;
  /** Null on all ranks except 0. */
  readonly handle: RunHandle | null;
  readonly log: RunLog;
  readonly resolveRun: RunResolver;
  /** Folder of the checkpoint to continue from. Null for a new run. */
  readonly checkpoint: string | null;
  readonly stop: AbortSignal;
  /** The device of the reward's own models. Default: the CPU. */
  readonly rewardSession?: ModelFileOptions;
}

/**
 * Creates the reward's terms and connects to their judges, on every rank. A reward without judges waits for none.
 * `sources` is that of `Task`. Raises EndpointError if a judge stays unreachable, ConfigError if this machine
 * cannot create a term, and WaitInterrupted if the run is asked to stop meanwhile.
 */
export async function openScorer(
  settings: ScoredRun,
  services: ScorerServices,
  address: JudgeAddress | null,
  sources?: number,
): Promise<Scorer> {
  const { reward } = settings;
  const judges = new Judges();
  let store: Exchanges<Judgement> | null = null;
  let judgements: JudgementStore | null = null;
  const limits = judgeLimits(reward, services.group.size);
  const made = termServices(reward, judges, services.resolveRun, {
    judge: (model = reward.model) => {
      if (address !== null) return judges.take(model);
      throw new ConfigError(`the reward '${rewardName(reward)}' needs a judge, but none is configured`, {
        where: 'reward.endpoint',
        next: 'Export APP__REWARD_FUNCTION_API_BASE=http://HOST:4877, or set reward.endpoint.',
      });
    },
    store: () => must(judgements, "the run's judgements"),
    limits,
    onNote: (note) => services.log.logger.warn(note),
    ...(services.rewardSession === undefined ? {} : { session: services.rewardSession }),
  });
  const scored = await createReward(reward, made);
  try {
    const ready = await readyJudges(scored, judges, address, { reward, sources }, services);
    const path = (services.handle?.paths ?? RunPaths.of(settings)).judgements;
    store = openExchanges(path, judgementForm, services);
    const most = reward.max_judge_calls;
    const calls = most === null ? null : new CallLimit(most, storedCalls(path).requests, services.group.size);
    judgements = countedIn(store, calls);
    // No rank may request or write judgements before every rank has read the stored ones.
    await services.group.barrier();
    judges.connect({
      ...ready,
      store: judgements,
      ...requestsOf(reward, sources),
      concurrency: limits.concurrency,
      policy: limits,
    });
    const watch = watchExam(scored, settings, services, calls);
    return scorerOf({ scored, judges, endpoints: ready.endpoints, store, calls, watch }, settings, services);
  } catch (error) {
    await scored.close();
    throw error;
  }
}

/** The opened parts of scoring. */
interface Opened {
  readonly scored: CombinedReward;
  readonly judges: Judges;
  readonly endpoints: readonly string[];
  readonly store: Exchanges<Judgement>;
  readonly calls: CallLimit | null;
  readonly watch: ExamWatch | null;
}

/** Maximum number of requests for a question: the first one, and two after unusable replies. */
const REQUESTS_OF_A_QUESTION = 3;

/** Maximum number of requests per edit of an exam. The watch skips a check if fewer are left. Held-out measures do not judge it. */
export function requestsOfAnEdit(reward: RewardSettings): number {
  return REQUESTS_OF_A_QUESTION * questionsOf([...decidingTerms(reward), ...recordedTerms(reward)], 1);
}

/** Compares the judge with the reward's latest exam, on rank 0. Null if there was no exam. */
function watchExam(
  scored: CombinedReward,
  { reward, base_exp_dir }: ScoredRun,
  { handle, log: { logger } }: ScorerServices,
  calls: CallLimit | null,
): ExamWatch | null {
  const every = reward.recheck_every_min;
  const exam = handle === null || every === null ? undefined : examsOf(base_exp_dir, reward).at(-1);
  if (exam === undefined || every === null) return null;
  const perEdit = requestsOfAnEdit(reward);
  return new ExamWatch({
    exam,
    reward: scored,
    everyMs: every * 60_000,
    asker: `${process.pid}-${Date.now()}`,
    hasRoom: (edits) => calls === null || calls.room > edits * perEdit,
    warn: (message) => void logger.warn(message),
    info: (message) => void logger.info(message),
  });
}

/** The store of judgements, which counts requests for missing ones. */
function countedIn(store: Exchanges<Judgement>, calls: JudgeCalls | null): JudgementStore {
  if (calls === null) return store;
  return { find: (key, hash) => store.find(key, hash), put: (judgement) => store.put(judgement), calls };
}

function scorerOf(
  { scored, judges, endpoints, store, calls, watch }: Opened,
  settings: ScoredRun,
  services: ScorerServices,
): Scorer {
  const { reward } = settings;
  const { group, handle, log, stop } = services;
  // Once the limit is reached, waiting for the judge is pointless.
  const signal = calls === null ? stop : AbortSignal.any([stop, calls.exhausted]);
  const local: Scorer = {
    begin: (items) => scoreChunk(scored, items),
    settle: async (items, outcomes) => {
      // On this path, rank 0 needs no other reports: it has them already, or there are no other ranks.
      const requireAllowed = (): void => void calls?.total([calls.report()]);
      requireAllowed();
      const settled = await settleOutcomes(
        scored,
        items,
        outcomes,
        { maxUnscoredFraction: reward.max_unscored_fraction, maxWaitS: reward.max_wait_s },
        {
          canary: (signal) => judges.canary(scored, signal),
          judgeName: endpoints.join(', ') || rewardName(reward),
          signal,
          onWaiting: (summary, waitedS, found) => {
            handle?.setState({ state: 'waiting', reason: found });
            log.logger.warn(
              `${summary.unscored} of ${summary.judged} episodes are unscored; waiting for the judge (${waitedS} s): ${found}`,
            );
          },
          onRecovered: (waitedS) => {
            handle?.setState({ state: 'running', reason: null });
            log.logger.info(`the judge is back after ${waitedS} s`);
          },
          onAlarm: (summary) => {
            handle?.setState({ state: 'running', reason: null });
            const { unscored, judged, reasons, example } = summary;
            log.logger.warn(
              reasons.own_code === unscored
                ? `the reward's own code gave no score for ${unscored} of ${judged} episodes: ${example}`
                : `the judge answers, but ${unscored} of ${judged} answers cannot be used: ${example}`,
            );
          },
        },
      );
      // Outcomes that a stop request cut short are not learned from. A resumed run requests them again.
      if (stop.aborted && summarizeUnscored(settled).fraction > reward.max_unscored_fraction) {
        throw new WaitInterrupted();
      }
      // Outcomes that the request limit cut short are not learned from either, however few there are.
      requireAllowed();
      return [...settled];
    },
    close: async () => {
      await watch?.close();
      await scored.close();
      await judges.close();
      store.close();
    },
  };
  return sharedScorer({
    group,
    local,
    take: () => store.take(),
    store: (judgement) => store.put(judgement),
    needsSettling: (outcomes) => summarizeUnscored(outcomes).fraction > reward.max_unscored_fraction,
    calls,
  });
}

/**
 * The judges at the address, ready for all requested models. No endpoints if there are none. Rank 0 waits for them and
 * for the terms' own servers, and reports the wait.
 */
async function readyJudges(
  scored: CombinedReward,
  judges: Judges,
  address: JudgeAddress | null,
  { reward, sources }: { readonly reward: RewardSettings; readonly sources: number | undefined },
  { group, handle, log, stop }: ScorerServices,
): Promise<ReadyJudges> {
  const waiting: WaitOptions = {
    maxWaitS: reward.max_wait_s,
    signal: stop,
    ...(sources === undefined ? {} : { sources }),
    onNote: (note) => log.logger.warn(note),
    onWaiting: (found, waitedS) => {
      handle?.setState({ state: 'waiting', reason: found });
      log.logger.warn(`waiting for the judge (${Math.round(waitedS)} s): ${found}`);
    },
  };
  const ready = await runOnRankZero(group, async (): Promise<ReadyJudges> => {
    try {
      await scored.untilReady(waiting);
      if (address === null) return { endpoints: [], token: null, contexts: {} };
      return await judges.untilReady(address, {
        ...waiting,
        ...requestsOf(reward, sources),
      });
    } catch (error) {
      throw stop.aborted ? new WaitInterrupted() : error;
    }
  });
  if (handle?.state.state === 'waiting') handle.setState({ state: 'running', reason: null });
  return ready;
}

export interface SharedScoring {
  readonly group: ProcessGroup;
  /** This rank's scorer. On rank 0, its `settle` decides for all ranks. */
  readonly local: Scorer;
  /** Returns new judgements of this rank that are not stored yet. Rank 0 stores its own. */
  readonly take: () => Judgement[];
  /** Called on rank 0 with the others' judgements. */
  readonly store: (judgement: Judgement) => void;
  /** Whether too many of all ranks' outcomes are unscored. */
  readonly needsSettling: (outcomes: readonly Outcome[]) => boolean;
  /** The limit of all ranks' requests. Null for none. */
  readonly calls: CallLimit | null;
}

/** Lets each rank score its own episodes. Rank 0 decides whether enough episodes are scored. */
export function sharedScorer({ group, local, take, store, needsSettling, calls }: SharedScoring): Scorer {
  if (group.size === 1) return local;
  return {
    begin: (items) => local.begin(items),
    settle: async (items, outcomes) => {
      const all = await group.gather({ judgements: take(), outcomes, calls: calls?.report() ?? null });
      const { waits, requests } = await runOnRankZero(group, async () => {
        for (const { judgements } of all ?? []) for (const judgement of judgements) store(judgement);
        return {
          waits: needsSettling((all ?? []).flatMap((one) => one.outcomes)),
          requests: calls?.total((all ?? []).flatMap((one) => one.calls ?? [])) ?? 0,
        };
      });
      calls?.known(requests);
      if (!waits) return [...outcomes];
      // Only rank 0 retries, so that one process watches the judge.
      const gathered = await group.gather<readonly JudgeItem[]>(items);
      const settled = await runOnRankZero(group, () =>
        local.settle(
          (gathered ?? []).flat(),
          (all ?? []).flatMap((one) => one.outcomes),
        ),
      );
      const counts = await group.allGather(items.length);
      const start = counts.slice(0, group.rank).reduce((sum, count) => sum + count, 0);
      return settled.slice(start, start + items.length);
    },
    close: () => local.close(),
  };
}
