import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { MemoryJudgementStore } from '../../rewards/judge/memory_store.js';
import { twoScores } from '../../../src/rewards/judge/prompts.js';
import { Judges } from '../../../src/train/scoring/judges.js';
import { scoresText, startStubJudge, stubModel, type StubJudge } from '../../rewards/judge/stub_judge.js';

let stub: StubJudge;
const listed: (string | undefined)[] = [];
beforeEach(async () => {
  listed.length = 0;
  const models = (authorization: string | undefined) => {
    listed.push(authorization);
    return { kind: 'json', body: { data: [{ id: stubModel }] } } as const;
  };
  stub = await startStubJudge(() => scoresText(8, 6), { models });
});
afterEach(async () => {
  vi.unstubAllEnvs();
  await stub.close();
});

/** The keys that a judge is sent while it is waited for, and while it is asked. */
async function keysSent(token: string | null): Promise<Set<string | undefined>> {
  const judges = new Judges();
  const judge = judges.take(stubModel);
  const ready = await judges.untilReady({ endpoint: stub.url, token }, { maxWaitS: 0 });
  judges.connect({ ...ready, store: new MemoryJudgementStore(), concurrency: 1 });
  const asked = stub.requests.length;
  await judge.ask({
    key: 'a',
    messages: [{ role: 'user', parts: ['Instruction: x'] }],
    format: twoScores,
    temperature: 0,
    maxCompletionTokens: 10,
    parse: () => ({ ok: true, scores: [8, 6] }),
  });
  expect(stub.requests.length).toBeGreaterThan(asked);
  await judges.close();
  return new Set([...listed, ...stub.requests.map(({ authorization }) => authorization)]);
}

describe('the key of a judge', () => {
  it('is its token for one that this program has started, which is not sent the key of others', async () => {
    vi.stubEnv('OPENAI_API_KEY', 'sk-of-the-user');
    expect(await keysSent('its-own-token')).toEqual(new Set(['Bearer its-own-token']));
  });
});
