/** What terms are given in tests: a judge without a server, and nothing else that is real. */
import { ConfigError } from '../../../src/core/errors.js';
import type { Judge, JudgeQuery } from '../../../src/rewards/judge/judge.js';
import { openOwnJudge } from '../../../src/train/scoring/judges.js';
import { MemoryJudgementStore } from '../judge/memory_store.js';
import { builtInPrompts } from '../../../src/rewards/judge/prompts.js';
import type { TermServices } from '../../../src/rewards/terms/term.js';
import type { Judgement } from '../../../src/rewards/score/types.js';

/** The reply to a question, by its name: `viescore_sc` of `5/12/3/viescore_sc`; null for no answer in time. */
export type Reply = (question: string, query: JudgeQuery) => string | null;

export const usualReplies: Readonly<Record<string, string>> = {
  viescore_sc: '{"score": [9, 4], "reasoning": "x"}',
  viescore_pq: '{"score": [8, 5], "reasoning": "x"}',
  ground_score: 'same change\n<score>7</score>',
};

/** A judge that answers from a table; a question that is missing there has a problem. */
export function tableJudge(
  texts: Readonly<Record<string, string>> = usualReplies,
): Judge & { readonly asked: JudgeQuery[] } {
  return replyingJudge((question) => (Object.hasOwn(texts, question) ? texts[question] : null));
}

/** A judge that answers as it is told, one tick later, unless it is cancelled. */
export function replyingJudge(reply: Reply): Judge & { readonly asked: JudgeQuery[] } {
  const asked: JudgeQuery[] = [];
  return {
    asked,
    async ask(query, signal): Promise<Judgement> {
      asked.push(query);
      await new Promise((resolve) => setImmediate(resolve));
      const base = { key: query.key, requestHash: '', model: 'm', attempts: 1, latencyMs: 1, scores: [] };
      if (signal?.aborted === true) return { ...base, text: '', problem: 'aborted', detail: 'called off' };
      const text = reply(query.key.slice(query.key.lastIndexOf('/') + 1), query);
      if (text === null) return { ...base, text: '', problem: 'timeout', detail: 'no answer in time' };
      const parsed = query.parse(text);
      if (!parsed.ok) return { ...base, text, problem: parsed.problem, detail: parsed.detail };
      return { ...base, text, problem: null, scores: parsed.scores };
    },
  };
}

/** Services with a judge, if one is given; a model is a local folder, and answers are stored in memory. */
export function testServices(judge?: Judge, more: Partial<TermServices> = {}): TermServices {
  const store = new MemoryJudgementStore();
  const services: TermServices = {
    judge: () => {
      if (judge !== undefined) return judge;
      throw new ConfigError('this test has no judge');
    },
    ownJudge: (options) => openOwnJudge(options, services),
    prompts: builtInPrompts,
    modelFolder: (reference) => {
      if (typeof reference === 'string') return reference;
      throw new ConfigError(`no folder for ${JSON.stringify(reference)}`);
    },
    store: () => store,
    ...more,
  };
  return services;
}
