import { expect, it } from 'vitest';
import { hashRequest } from '../../../src/rewards/judge/chat_request.js';
import type { JudgeQuery } from '../../../src/rewards/judge/judge.js';
import type { Judgement } from '../../../src/rewards/score/types.js';
import { RecordedJudge } from '../../../src/train/rescore/recorded_judge.js';

const query: JudgeQuery = {
  key: '1/0/0/viescore_sc',
  messages: [{ role: 'user', parts: ['how good is it?'] }],
  format: null,
  temperature: 0.7,
  maxCompletionTokens: 16,
  parse: () => ({ ok: false, problem: 'unparsable', detail: 'no scores' }),
};

function judgement(change: Partial<Judgement>): Judgement {
  const { key } = query;
  const base = { key, requestHash: '', model: 'm', text: '', problem: null, scores: [], attempts: 1, latencyMs: 1 };
  return { ...base, ...change };
}

it('takes the record that has scores, in whichever dialect it was asked', async () => {
  const failed = judgement({ problem: 'timeout' });
  const scored = judgement({ scores: [7], text: '7' });
  const dialects = ['vllm', 'openai'] as const;
  for (const good of dialects) {
    const records = new Map(
      dialects.map((dialect) => [
        hashRequest(query, 'm', { dialect, leaveOut: [] }),
        dialect === good ? scored : failed,
      ]),
    );
    expect(records.size).toBe(2);
    const counts = { replayed: 0, parsed_again: 0, asked: 0, missing: 0 };
    const judge = new RecordedJudge(
      { model: 'm', recorded: { find: (_, hash) => records.get(hash) }, leaveOut: [], judge: null },
      counts,
    );
    expect(await judge.ask(query)).toBe(scored);
    expect(counts).toEqual({ replayed: 1, parsed_again: 0, asked: 0, missing: 0 });
  }
});
