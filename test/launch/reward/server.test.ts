import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { reward as rewardSchema } from '../../../src/rewards/schema/reward.js';
import { EndpointError } from '../../../src/core/errors.js';
import { openServedReward } from '../../../src/launch/reward/server.js';
import { choosy, openAiError, scoresText, startStubJudge, stubModel } from '../../rewards/judge/stub_judge.js';
import { wholeItem } from '../../rewards/terms/term_contract.js';
import { testFolders } from '../../support/folder.js';

const newFolder = testFolders('reward-server-module');
const closing: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

function open(endpoint: string, model = stubModel) {
  const terms = [{ name: 'align_quality', weight: 1, model, endpoint }];
  const settings = rewardSchema.parse({ mode: null, terms, max_wait_s: 0 });
  const resolveRun = (): string => '';
  const { signal } = new AbortController();
  const judge = { notice: () => undefined, lost: () => undefined, over: signal };
  return openServedReward(settings, { resolveRun, onWaiting: () => undefined, onNote: () => undefined, judge, signal });
}

describe('a reward server that asks a judge', () => {
  it('leaves out what reward.leave_out names, and takes another name for its model', async () => {
    const stub = await startStubJudge(choosy(['top_k', 'seed'], scoresText(8, 6), 'deployment-7'));
    closing.push(stub.close);
    const settings = rewardSchema.parse({
      endpoint: stub.url,
      model: stubModel,
      model_alias: true,
      leave_out: ['top_k', 'seed'],
      mode: 'viescore',
      max_wait_s: 0,
    });
    const { signal } = new AbortController();
    const reward = await openServedReward(settings, {
      resolveRun: () => '',
      onWaiting: () => undefined,
      onNote: () => undefined,
      judge: { notice: () => undefined, lost: () => undefined, over: signal },
      signal,
    });
    closing.push(() => reward.close());
    expect((await reward.scoreTerms(wholeItem())).outcome).toMatchObject({ kind: 'scored', value: 6 });
    expect(stub.requests.filter(({ body }) => 'seed' in body)).toEqual([]);
  });
});

describe('a reward server whose term has a judge of its own', () => {
  it('scores by that judge alone', async () => {
    const stub = await startStubJudge(() => scoresText(8, 6));
    closing.push(stub.close);
    const reward = await open(stub.url);
    closing.push(() => reward.close());
    expect(stub.requests).toHaveLength(1);
    expect((await reward.scoreTerms(wholeItem())).outcome).toMatchObject({ kind: 'scored', value: 0.7 });
  });

  it('reports when that judge refuses', async () => {
    let refuses = false;
    const stub = await startStubJudge(() =>
      refuses ? openAiError(403, 'this key is no longer valid') : scoresText(8, 6),
    );
    closing.push(stub.close);
    const reward = await open(stub.url);
    closing.push(() => reward.close());
    expect(await reward.canary?.()).toEqual({ ok: true });
    refuses = true;
    expect(await reward.canary?.()).toEqual({
      ok: false,
      detail: expect.stringContaining('this key is no longer valid') as string,
    });
  });

  it('does not open before that judge is there, and says which it is', async () => {
    const opening = open('http://127.0.0.1:9');
    await expect(opening).rejects.toThrow(EndpointError);
    await expect(opening).rejects.toThrow(/the judge of align_quality is not ready: .*ECONNREFUSED/);
  });
});

it('has the same identity wherever a reward module is, and another one if its text differs', async () => {
  const digestOf = async (text: string): Promise<string> => {
    const module = join(newFolder(), 'mine.mjs');
    writeFileSync(module, text);
    const settings = rewardSchema.parse({ mode: null, terms: [{ name: 'module', module, weight: 1 }] });
    const { signal } = new AbortController();
    const judge = { notice: () => undefined, lost: () => undefined, over: signal };
    const reward = await openServedReward(settings, {
      resolveRun: () => '',
      onWaiting: () => undefined,
      onNote: () => undefined,
      judge,
      signal,
    });
    closing.push(() => reward.close());
    expect(reward.terms).toEqual([{ name: 'mine', weight: 1 }]);
    return reward.digest;
  };
  const [one, same, other] = await Promise.all(
    ['1', '1', '0'].map((score) => digestOf(`export default () => ${score};`)),
  );
  expect(same).toBe(one);
  expect(other).not.toBe(one);
});
