/**
 * Scores the episodes of an iteration in chunks, then decides over the whole iteration whether enough are scored to continue. Waits for a
 * judge that is down, but not for one whose answers cannot be read.
 */
import { EndpointError, RunError } from '../../core/errors.js';
import { type Clock, allOrAbort, sleep, systemClock } from '../../core/clock.js';
import { grouped } from '../../core/grouped.js';
import type { CanaryResult } from '../judge/client.js';
import {
  isHeldOut,
  type AnswerGroup,
  type JudgeItem,
  type Outcome,
  type Reward,
  type ScoreOptions,
  type UnscoredReason,
} from './types.js';

/**
 * Scores items at once, with outcomes in their order. Items of one group are compared with each other. If one raises (a dataset or disk
 * error), the others are canceled first.
 */
export async function scoreChunk(
  reward: Reward,
  items: readonly JudgeItem[],
  signal?: AbortSignal,
  options?: Omit<ScoreOptions, 'group'>,
): Promise<Outcome[]> {
  const groups = groupsAmong(items);
  return allOrAbort(
    items.map((item, i) => {
      const group = groups[i];
      return (stop) => reward.score(item, stop, group === null ? options : { ...options, group });
    }),
    signal,
  );
}

/** The common part of a group's keys. Null for a single answer, as held-out answers are. */
export function groupName({ key }: JudgeItem): string | null {
  const end = key.lastIndexOf('/');
  return end < 0 || isHeldOut({ key }) ? null : key.slice(0, end);
}

/** The group of each item, one object for all items of a group. Null for a single answer. */
function groupsAmong(items: readonly JudgeItem[]): readonly (AnswerGroup | null)[] {
  const byName = grouped(items, groupName);
  const groups = new Map<string | null, AnswerGroup>();
  for (const [name, answers] of byName) {
    if (name !== null && answers.length > 1) groups.set(name, { answers, ruledOut: 0 });
  }
  return items.map((item) => groups.get(groupName(item)) ?? null);
}

/** Number of an iteration's judged episodes that are unscored, and why. */
export interface UnscoredSummary {
  readonly unscored: number;
  /** Episodes that were sent to the judge: scored, or unscored by the reward or a measure, but not zero by rule. */
  readonly judged: number;
  readonly fraction: number;
  readonly reasons: Readonly<Partial<Record<UnscoredReason, number>>>;
  /** The detail of the first unscored episode. Empty if there is none. */
  readonly example: string;
}

export function summarizeUnscored(outcomes: readonly Outcome[]): UnscoredSummary {
  const reasons: Partial<Record<UnscoredReason, number>> = {};
  let unscored = 0;
  let judged = 0;
  let example = '';
  for (const outcome of outcomes) {
    const lacking = unscoredOf(outcome);
    if (outcome.kind === 'zero_by_rule' && lacking === null) continue;
    judged++;
    if (lacking === null) continue;
    if (unscored++ === 0) example = lacking.detail;
    reasons[lacking.reason] = (reasons[lacking.reason] ?? 0) + 1;
  }
  return { unscored, judged, fraction: judged === 0 ? 0 : unscored / judged, reasons, example };
}

/** The unscored outcome of an episode: the reward's, or the first of its measures'. Null if everything is scored. */
function unscoredOf(outcome: Outcome): Extract<Outcome, { kind: 'unscored' }> | null {
  const all = [outcome, ...Object.values(outcome.measures ?? {})];
  return all.find((one) => one.kind === 'unscored') ?? null;
}

export interface UnscoredPolicy {
  /** If more than this share of episodes is unscored, the run waits. */
  readonly maxUnscoredFraction: number;
  readonly maxWaitS: number;
}

/** Called while an iteration's outcomes are being settled. */
export interface SettleEvents {
  /** The run waits: called at once, and again at every check that finds no judge, about once a minute. */
  readonly onWaiting?: (summary: UnscoredSummary, waitedS: number, found: string) => void;
  /** Enough episodes are scored again. */
  readonly onRecovered?: (waitedS: number) => void;
  /** The judge works but its answers cannot be used: the run continues without these episodes. */
  readonly onAlarm?: (summary: UnscoredSummary) => void;
}

export interface SettleDeps extends SettleEvents {
  /** Whether the judge answers at all. */
  readonly canary: (signal?: AbortSignal) => Promise<CanaryResult>;
  /** Names the judge in errors, such as its URL. */
  readonly judgeName: string;
  readonly clock?: Clock;
  readonly signal?: AbortSignal;
}

const ASK_AGAIN_INTERVAL_MS = 60_000;

/** Whether a failure means that the judge is absent, which time may fix. The others are unusable answers. */
export const isJudgeAbsent: Readonly<Record<UnscoredReason, boolean>> = {
  timeout: true,
  connection: true,
  rate_limited: true,
  server_error: true,
  aborted: true,
  bad_request: false,
  unparsable: false,
  truncated: false,
  refused: false,
  empty: false,
  out_of_range: false,
  own_code: false,
};

/**
 * Returns the iteration's final outcomes: the given ones if at most `maxUnscoredFraction` of them are unscored. Else checks the judge at
 * once and then every minute, and scores the unscored episodes again whenever it answers. Ends when enough is scored, or when the judge
 * answers and only unusable answers are left: these episodes stay unscored, with an alarm. After `maxWaitS` it raises EndpointError (exit
 * code 3). If the signal aborts, returns the outcomes as they are. Does not wait for the user's own code, which returns the same for the
 * same item. If that leaves too many episodes unscored, raises an alarm at once, or RunError if nothing is scored and no judge is at fault.
 */
export async function settleOutcomes(
  reward: Reward,
  items: readonly JudgeItem[],
  outcomes: readonly Outcome[],
  policy: UnscoredPolicy,
  deps: SettleDeps,
): Promise<readonly Outcome[]> {
  const clock = deps.clock ?? systemClock;
  let current = outcomes;
  let summary = summarizeUnscored(current);
  if (summary.fraction <= policy.maxUnscoredFraction) return current;
  const ownCode = summary.reasons.own_code ?? 0;
  if (ownCode === summary.judged && ownCode > policy.maxUnscoredFraction * outcomes.length) throw codeAtFault(summary);
  if (ownCode === summary.unscored) {
    deps.onAlarm?.(summary);
    return current;
  }
  const started = clock.now();
  const waitedMs = (): number => clock.now() - started;
  const waiting = (found: string): void => deps.onWaiting?.(summary, Math.round(waitedMs() / 1000), found);
  waiting(summary.example);
  while (!isAborted(deps.signal)) {
    const canary = await deps.canary(deps.signal);
    if (canary.ok) {
      current = await askUnscoredAgain(reward, items, current, deps.signal);
      summary = summarizeUnscored(current);
      if (summary.fraction <= policy.maxUnscoredFraction) {
        deps.onRecovered?.(Math.round(waitedMs() / 1000));
        return current;
      }
      if (absentFraction(summary) <= policy.maxUnscoredFraction && !isAborted(deps.signal)) {
        deps.onAlarm?.(summary);
        return current;
      }
    }
    const left = policy.maxWaitS * 1000 - waitedMs();
    const found = canary.ok ? summary.example : canary.detail;
    if (isAborted(deps.signal)) break;
    if (left <= 0) throw gaveUp(summary, policy, deps.judgeName, found);
    await sleep(clock, Math.min(ASK_AGAIN_INTERVAL_MS, left), deps.signal);
    waiting(found);
  }
  return current;
}

/** A function call, because the compiler would assume that a signal's state cannot change. */
function isAborted(signal: AbortSignal | undefined): boolean {
  return signal?.aborted === true;
}

async function askUnscoredAgain(
  reward: Reward,
  items: readonly JudgeItem[],
  outcomes: readonly Outcome[],
  signal?: AbortSignal,
): Promise<readonly Outcome[]> {
  const lacking = new Set(outcomes.flatMap((outcome, i) => (unscoredOf(outcome) === null ? [] : [i])));
  // If answers are compared, one more answer of the judge changes the values of the whole group.
  const groups = new Set([...lacking].map((i) => groupName(items[i])));
  const isRequested = (i: number): boolean => {
    const name = groupName(items[i]);
    return lacking.has(i) || (reward.compares === true && name !== null && groups.has(name));
  };
  const indices = items.flatMap((_, i) => (isRequested(i) ? [i] : []));
  const again = await scoreChunk(
    reward,
    indices.map((i) => items[i]),
    signal,
    { askAgain: true },
  );
  const merged = [...outcomes];
  for (const [k, i] of indices.entries()) merged[i] = again[k];
  return merged;
}

function absentFraction({ reasons, judged }: UnscoredSummary): number {
  let absent = 0;
  for (const [reason, count] of Object.entries(reasons)) {
    if (isJudgeAbsent[reason as UnscoredReason]) absent += count;
  }
  return absent / judged;
}

function codeAtFault({ judged, example }: UnscoredSummary): RunError {
  return new RunError(`the reward's own code scored none of ${judged} episodes; the first: ${example}`, {
    next: 'Correct the code, check it with `editrl score CONFIG`, and give the same command again. A run that has a checkpoint needs --allow-changes with the key of the module, such as reward.terms.0.module.',
  });
}

function gaveUp(summary: UnscoredSummary, policy: UnscoredPolicy, judgeName: string, found: string): EndpointError {
  const reasons = Object.entries(summary.reasons).map(([reason, count]) => `${count} ${reason}`);
  return new EndpointError(
    `the judge did not answer again within ${policy.maxWaitS} s: ${summary.unscored} of ${summary.judged} episodes are unscored (${reasons.join(', ')}); last found: ${found}`,
    {
      where: judgeName,
      next: 'Start the judge again and resume the run by its name. The judgements that it has are kept.',
    },
  );
}
