/** Scoring items with VIEScore through the client, as a run does it. */
import { InternalError } from '../../src/core/errors.js';
import { createReward } from '../../src/rewards/score/combined.js';
import { JudgeClient } from '../../src/rewards/judge/client.js';
import { JudgeImages } from '../../src/rewards/judge/images.js';
import { MemoryJudgementStore } from '../../src/rewards/judge/memory_store.js';
import { builtInPrompts } from '../../src/rewards/judge/prompts.js';
import { scoreChunk } from '../../src/rewards/score/iteration.js';
import { rewardSettingsSchema } from '../../src/rewards/score/settings.js';
import type { Term } from '../../src/rewards/terms/term.js';
import type { JudgeItem, Outcome } from '../../src/rewards/score/types.js';
import { JUDGE_MODEL } from '../../src/tiny/judge/server.js';

export type JudgedMode = 'viescore' | 'sqrt(viescore_pqxground_score)';

/** The reward of a mode, with built-in prompts, that asks this client. */
export function judgedReward(mode: JudgedMode, judge: JudgeClient): Promise<Term> {
  return createReward(rewardSettingsSchema.parse({ mode }), {
    judge: () => judge,
    images: new JudgeImages(),
    prompts: builtInPrompts,
    modelFolder: () => {
      throw new InternalError('a judged reward needs no model of its own');
    },
  });
}

export interface Scoring {
  readonly outcomes: readonly Outcome[];
  readonly seconds: number;
  /** Processor seconds of this process, all threads. */
  readonly cpuSeconds: number;
}

/** Scores all items at once: the client bounds what is under way. */
export async function scoreAll(url: string, items: readonly JudgeItem[], concurrency: number): Promise<Scoring> {
  const judge = new JudgeClient({
    endpoints: [url],
    model: JUDGE_MODEL,
    store: new MemoryJudgementStore(),
    concurrency,
  });
  const reward = await judgedReward('viescore', judge);
  try {
    const cpu = process.cpuUsage();
    const start = performance.now();
    const outcomes = await scoreChunk(reward, items);
    const seconds = (performance.now() - start) / 1000;
    const { user, system } = process.cpuUsage(cpu);
    return { outcomes, seconds, cpuSeconds: (user + system) / 1e6 };
  } finally {
    await judge.close();
  }
}
