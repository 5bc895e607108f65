/**
 * Judgements under faults: a judge that misbehaves scores many different episodes through the client, a chunk at a time as in a run, and
 * every outcome is compared with the score that the judge would have given without faults. The judge gives digest scores
 * (`editrl judge --scores digest`), which follow from the request, so that the true scores can be computed here, and a reply to the wrong
 * question is noticed.
 */
import { InternalError } from '../../../src/core/errors.js';
import { RandomStream } from '../../../src/core/random.js';
import type { RgbImage } from '../../../src/core/images/image.js';
import type { Clock } from '../../../src/core/clock.js';
import { JudgeClient } from '../../../src/rewards/judge/client.js';
import { judgeImage } from '../../../src/rewards/judge/images.js';
import { MemoryJudgementStore } from './memory_store.js';
import { scoreChunk, settleOutcomes } from '../../../src/rewards/score/iteration.js';
import type { TransportPolicy } from '../../../src/rewards/judge/transport.js';
import type { Judgement, JudgeItem, Outcome } from '../../../src/rewards/score/types.js';
import { digestAnswer, type Answer } from '../../../src/rewards/rule_judge/protocol.js';
import { JUDGE_MODEL } from '../../../src/rewards/rule_judge/server.js';
import { judgedReward, type JudgedMode } from './judge_scoring.js';

export interface Trial {
  /** Base URL of the judge with digest scores. */
  readonly url: string;
  /** The number of episodes; each takes two questions. */
  readonly episodes: number;
  readonly episodesPerIteration: number;
  readonly seed: number;
  readonly policy?: Partial<TransportPolicy>;
  readonly queryTimeoutMs?: number;
  readonly maxUnscoredFraction?: number;
}

/** The outcomes of the episodes. */
export interface Tally {
  readonly episodes: number;
  /** The number of episodes that were scored with exactly the true parts. */
  readonly right: number;
  /** Episodes that were scored with other parts: their keys and the parts. */
  readonly wrong: readonly string[];
  /** Keys of judgements whose text was written for another question. */
  readonly foreign: readonly string[];
  /** The number of episodes without a score in the end, by reason. */
  readonly masked: Readonly<Record<string, number>>;
  /** The number of episodes without a score before the iteration was settled, by reason. */
  readonly unscoredAtFirst: Readonly<Record<string, number>>;
  /** The number of episodes with neither a score nor a reason. */
  readonly lost: number;
  /** The number of different sets of true parts, which shows how well the true scores tell episodes apart. */
  readonly differentTruths: number;
  readonly judgements: number;
  readonly requests: number;
  readonly recoveries: number;
  readonly alarms: number;
}

/** Deadlines and pauses short enough for thousands of failures in minutes. */
export const hasty: Partial<TransportPolicy> = {
  attemptTimeoutMs: 1_000,
  backoffBaseMs: 10,
  backoffCapMs: 200,
  retryAfterCapMs: 100,
  breakerLimit: 64,
  breakerPauseMs: 200,
};

/** Both forms of reply occur: only lists in even episodes, a list and a tag in odd ones. */
const modes: readonly JudgedMode[] = ['viescore', 'sqrt(viescore_pqxground_score)'];
const modeOf = (episode: number): JudgedMode => modes[episode % 2];

const side = 32;

function noise(...key: readonly (number | string)[]): RgbImage {
  const random = new RandomStream(...key);
  const data = new Uint8Array(side * side * 3);
  // A few dozen random pixels are enough to tell images apart; more would only take time to draw.
  for (let i = 0; i < 96; i++) data[i * 32] = random.integer(256);
  return { width: side, height: side, data };
}

/** An episode that differs from all others in its instruction, source, edit and label. */
export function trialItem(seed: number, episode: number): JudgeItem {
  return {
    key: `1/${seed}/${episode}`,
    instruction: `paint shape ${episode} in shade ${episode * 7}`,
    source: noise(seed, episode, 'source'),
    edited: noise(seed, episode, 'edited'),
    truth: noise(seed, episode, 'truth'),
    finished: true,
  };
}

/** The judge's answers about an item without faults, by question. */
export async function trueAnswers(item: JudgeItem): Promise<Readonly<Record<string, Answer>>> {
  const url = (image: RgbImage | null): Promise<string> => {
    if (image === null) throw new InternalError('an item of a trial has all its images');
    return judgeImage(image, item.key).dataUrl();
  };
  const [source, edited, truth] = await Promise.all([url(item.source), url(item.edited), url(item.truth)]);
  const { instruction } = item;
  return {
    viescore_sc: digestAnswer({ kind: 'consistency', instruction, images: [source, edited] }),
    viescore_pq: digestAnswer({ kind: 'quality', instruction: '', images: [edited] }),
    ground_score: digestAnswer({ kind: 'ground', instruction, images: [truth, edited] }),
  };
}

function trueParts(mode: JudgedMode, answers: Readonly<Record<string, Answer>>): Readonly<Record<string, number>> {
  const [success, overedit] = answers['viescore_sc'].scores;
  const [naturalness, artifacts] = answers['viescore_pq'].scores;
  const [ground] = answers['ground_score'].scores;
  const consistency = Math.min(success, overedit);
  const quality = Math.min(naturalness, artifacts);
  const pq = {
    'viescore/naturalness': naturalness,
    'viescore/artifacts': artifacts,
    'viescore/perceptual_quality': quality,
  };
  if (mode === 'viescore') {
    return {
      ...pq,
      'viescore/edit_success': success,
      'viescore/overedit': overedit,
      'viescore/semantic_consistency': consistency,
      value: Math.sqrt(consistency * quality),
    };
  }
  return { ...pq, 'ground_score/overall': ground, value: Math.sqrt(quality * ground) };
}

/** How an outcome differs from the true score; null if it does not. */
function difference(outcome: Outcome & { kind: 'scored' }, truth: Readonly<Record<string, number>>): string | null {
  const found: Readonly<Record<string, number | undefined>> = { ...outcome.parts, value: outcome.value };
  for (const [name, value] of Object.entries(truth)) {
    if (found[name] !== value) return `${name} is ${found[name]} instead of ${value}`;
  }
  return Math.abs(outcome.normalised - outcome.value / 10) < 1e-12 ? null : `normalised is ${outcome.normalised}`;
}

/** A clock that passes a minute in a tenth of a second, for the minutes between two checks of a judge that is down. */
const hurried: Clock = {
  now: () => performance.now() * 600,
  after(milliseconds, callback) {
    const timer = setTimeout(callback, milliseconds / 600);
    return () => clearTimeout(timer);
  },
};

/** Scores the trial's episodes and compares the outcomes with the true scores. */
export async function judgeUnderFaults(trial: Trial): Promise<Tally> {
  const store = new MemoryJudgementStore();
  const judge = new JudgeClient({
    endpoints: [trial.url],
    model: JUDGE_MODEL,
    store,
    queryTimeoutMs: trial.queryTimeoutMs ?? 20_000,
    policy: { ...hasty, ...trial.policy },
  });
  const rewards = {
    viescore: await judgedReward('viescore', judge),
    'sqrt(viescore_pqxground_score)': await judgedReward('sqrt(viescore_pqxground_score)', judge),
  };
  const masked: Record<string, number> = {};
  const unscoredAtFirst: Record<string, number> = {};
  const wrong: string[] = [];
  const truths = new Set<string>();
  const digests = new Map<string, string>();
  let [right, lost, recoveries, alarms] = [0, 0, 0, 0];

  async function iteration(mode: JudgedMode, episodes: readonly number[]): Promise<void> {
    const items = episodes.map((episode) => trialItem(trial.seed, episode));
    const first = await scoreChunk(rewards[mode], items);
    for (const outcome of first) {
      if (outcome.kind === 'unscored') add(unscoredAtFirst, outcome.reason);
    }
    const settled = await settleOutcomes(
      rewards[mode],
      items,
      first,
      { maxUnscoredFraction: trial.maxUnscoredFraction ?? 0.2, maxWaitS: 1e6 },
      {
        canary: (signal) => judge.canary(signal),
        judgeName: trial.url,
        clock: hurried,
        onRecovered: () => recoveries++,
        onAlarm: () => alarms++,
      },
    );
    for (const [i, item] of items.entries()) {
      const answers = await trueAnswers(item);
      for (const [question, { reasoning }] of Object.entries(answers)) {
        digests.set(`${item.key}/${question}`, reasoning);
      }
      const truth = trueParts(mode, answers);
      truths.add(JSON.stringify(truth));
      const outcome = settled.at(i);
      if (outcome === undefined || (outcome.kind === 'unscored' && outcome.detail === '')) lost++;
      else if (outcome.kind === 'unscored') add(masked, outcome.reason);
      else if (outcome.kind === 'zero_by_rule') wrong.push(`${item.key}: zero by rule, ${outcome.reason}`);
      else {
        const found = difference(outcome, truth);
        if (found === null) right++;
        else wrong.push(`${item.key}: ${found}`);
      }
    }
  }

  try {
    for (let start = 0; start < trial.episodes; start += trial.episodesPerIteration) {
      const length = Math.min(trial.episodesPerIteration, trial.episodes - start);
      const episodes = Array.from({ length }, (_, i) => start + i);
      await Promise.all(
        modes.map((mode) =>
          iteration(
            mode,
            episodes.filter((each) => modeOf(each) === mode),
          ),
        ),
      );
    }
  } finally {
    await judge.close();
  }
  const judgements = store.all();
  return {
    episodes: trial.episodes,
    right,
    wrong,
    foreign: judgements.filter((judgement) => isForeign(judgement, digests)).map(({ key }) => key),
    masked,
    unscoredAtFirst,
    lost,
    differentTruths: truths.size,
    judgements: judgements.length,
    requests: judgements.reduce((sum, { attempts }) => sum + attempts, 0),
    recoveries,
    alarms,
  };
}

/** The reasoning of a reply names the question that it was written for, unless a fault removed it. */
function isForeign({ key, text }: Judgement, digests: ReadonlyMap<string, string>): boolean {
  const mark = /\([0-9a-f]{16}\)/.exec(text)?.[0];
  return mark !== undefined && digests.get(key)?.includes(mark) !== true;
}

function add(counts: Record<string, number>, name: string): void {
  counts[name] = (counts[name] ?? 0) + 1;
}

/** The tally as lines for people. */
export function tallyText(tally: Tally): string {
  const list = (counts: Readonly<Record<string, number>>): string =>
    Object.entries(counts)
      .map(([name, count]) => `${count} ${name}`)
      .join(', ') || 'none';
  const masked = Object.values(tally.masked).reduce((sum, count) => sum + count, 0);
  return [
    `${tally.judgements} judgements of ${tally.episodes} episodes (${tally.differentTruths} different true scores), at least ${tally.requests} requests`,
    `  scored right   ${tally.right}`,
    `  scored wrong   ${tally.wrong.length}${tally.wrong.map((each) => `\n    ${each}`).join('')}`,
    `  of another     ${tally.foreign.length}${tally.foreign.map((each) => `\n    ${each}`).join('')}`,
    `  masked         ${masked} (${list(tally.masked)})`,
    `  lost           ${tally.lost}`,
    `  unscored before settling: ${list(tally.unscoredAtFirst)}; waited and recovered ${tally.recoveries} times, alarms ${tally.alarms}`,
  ].join('\n');
}
