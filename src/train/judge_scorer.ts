/** The scorer of a real run: a judge behind an endpoint, every judgement stored in the run directory before it is used. */
import type { ImageEditSettings } from '../config/settings.js';
import { createReward } from '../rewards/combined.js';
import type { Endpoint } from '../rewards/endpoints.js';
import { JudgeClient } from '../rewards/judge_client.js';
import { waitUntilReady } from '../rewards/readiness.js';
import { scoreChunk, settleOutcomes, summariseUnscored } from '../rewards/score_iteration.js';
import type { RunHandle } from '../run/claim.js';
import { FileJudgementStore } from '../run/judgements.js';
import type { RunLog } from '../run/logs.js';
import { RunPaths } from '../run/paths.js';
import { Abandoned, lead } from './lead.js';
import type { ProcessGroup } from './process_group.js';
import type { Scorer } from './scorer.js';
import { FollowerJudgements, sharedScorer } from './shared_judgements.js';

export interface ScorerServices {
  readonly group: ProcessGroup;
  /** Null on every rank but the first. */
  readonly handle: RunHandle | null;
  readonly log: RunLog;
  readonly stop: AbortSignal;
}

/** Connects to the judge, on every rank. Raises EndpointError where it stays away, Abandoned where the run is asked to stop meanwhile. */
export async function openScorer(
  settings: ImageEditSettings,
  services: ScorerServices,
  endpoint: Endpoint,
): Promise<Scorer> {
  const { reward } = settings;
  const { group, handle, log, stop } = services;
  const apiKey = process.env['OPENAI_API_KEY'];
  const ready = await lead(group, () =>
    waitUntilReady(endpoint, reward.model, {
      ...(apiKey === undefined ? {} : { apiKey }),
      maxWaitS: reward.max_wait_s,
      signal: stop,
      onWaiting: (found, waitedS) => {
        handle?.setState({ state: 'waiting', reason: found });
        log.logger.warn(`waiting for the judge (${Math.round(waitedS)} s): ${found}`);
      },
    }).catch((error: unknown) => {
      throw stop.aborted ? new Abandoned() : error;
    }),
  );
  if (handle?.state.state === 'waiting') handle.setState({ state: 'running', reason: null });
  const store =
    handle === null
      ? new FollowerJudgements(new RunPaths(settings.base_exp_dir, settings.run_name))
      : new FileJudgementStore(handle.paths);
  // Nobody asks the judge, and so nobody writes, before everyone has read what is there.
  await group.barrier();
  const judge = new JudgeClient({
    endpoints: ready.endpoints,
    model: reward.model,
    store,
    ...(apiKey === undefined ? {} : { apiKey }),
    concurrency: Math.max(1, Math.floor(reward.concurrency / group.size)),
    policy: { attemptTimeoutMs: reward.timeout_s * 1000, maxAttempts: reward.max_attempts },
  });
  const scored = createReward(
    {
      mode: reward.mode,
      also_compute: reward.also_compute,
      prompts: { sc: reward.prompts.viescore_sc, pq: reward.prompts.viescore_pq, ground: reward.prompts.ground_score },
      zero_if_unfinished: reward.zero_if_unfinished,
    },
    { judge },
  );
  const local: Scorer = {
    begin: (items) => scoreChunk(scored, items),
    settle: async (items, outcomes) => {
      const settled = await settleOutcomes(
        scored,
        items,
        outcomes,
        { maxUnscoredFraction: reward.max_unscored_fraction, maxWaitS: reward.max_wait_s },
        {
          canary: (signal) => judge.canary(signal),
          judgeName: ready.endpoints.join(', '),
          signal: stop,
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
            log.logger.warn(
              `the judge answers, but ${summary.unscored} of ${summary.judged} answers cannot be used: ${summary.example}`,
            );
          },
        },
      );
      // What a stop request cut short is not learned from: a resumed run asks for it again.
      if (stop.aborted && summariseUnscored(settled).fraction > reward.max_unscored_fraction) throw new Abandoned();
      return [...settled];
    },
    close: async () => {
      await judge.close();
      store.close();
    },
  };
  return sharedScorer({
    group,
    local,
    take: () => (store instanceof FollowerJudgements ? store.take() : []),
    store: (judgement) => store.put(judgement),
    needsSettling: (outcomes) => summariseUnscored(outcomes).fraction > reward.max_unscored_fraction,
  });
}
