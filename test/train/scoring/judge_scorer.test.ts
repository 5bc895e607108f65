import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { ConfigError, EndpointError, JudgeLimitError } from '../../../src/core/errors.js';
import { runExam } from '../../../src/launch/reward/exam.js';
import { claimRun, type RunHandle } from '../../../src/run/claim/claim.js';
import { storedCalls } from '../../../src/run/exchanges.js';
import { RunPaths } from '../../../src/run/paths.js';
import { openRunLog, type RunLog } from '../../../src/run/logs.js';
import { openScorer, requestsOfAnEdit } from '../../../src/train/scoring/judge_scorer.js';
import { reward as rewardSection } from '../../../src/rewards/schema/reward.js';
import { soloGroup, type ProcessGroup } from '../../../src/core/group/process_group.js';
import { tinyExam } from '../../../src/rewards/rule_judge/exam_cases.js';
import { JUDGE_MODEL, startJudge } from '../../../src/rewards/rule_judge/server.js';
import { imageOf, wholeItem } from '../../rewards/terms/term_contract.js';
import {
  openAiError,
  scoresText,
  startStubJudge,
  stubModel,
  type Behaviour,
  type StubJudge,
} from '../../rewards/judge/stub_judge.js';
import { isCanary } from '../../e2e/scorer.js';
import { makeSmallWorld, smallSettings, type SmallWorld } from '../../recipes/image_edit_tokens/small_world.js';

const root = mkdtempSync(join(tmpdir(), 'scorer-'));
let world: SmallWorld;
beforeAll(async () => {
  world = await makeSmallWorld(root);
});
afterAll(() => rmSync(root, { recursive: true }));

const closing: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

let runs = 0;

function open(
  reward: Record<string, unknown>,
  endpoint: string | null,
  { group = soloGroup(), sources }: { readonly group?: ProcessGroup; readonly sources?: number } = {},
) {
  const settings = { ...smallSettings(world, { reward }), run_name: `run_${runs++}`, base_exp_dir: root };
  const handle: RunHandle = claimRun({
    settings: { run_name: settings.run_name, base_exp_dir: root, num_iterations: 4 },
    compare: () => [],
    resultHash: 'a',
    importHash: 'b',
    command: [],
    versions: {},
  });
  const log: RunLog = openRunLog({ paths: handle.paths, attempt: 1, rank: 0, terminal: null });
  closing.push(() => log.close());
  const stop = new AbortController().signal;
  return openScorer(
    settings,
    { group, handle, log, resolveRun: () => '', checkpoint: null, stop },
    endpoint === null ? null : { endpoint, token: null },
    sources,
  );
}

async function judge(): Promise<StubJudge> {
  const stub = await startStubJudge(() => scoresText(8, 6));
  closing.push(stub.close);
  return stub;
}

describe('the requests about an edit that is judged again', () => {
  const term = { name: 'editscore', weight: 1, prompt_sc: 'a', prompt_pq: 'b' };
  it.each([
    [{ mode: 'viescore' }, 6],
    [{ mode: 'viescore', also_compute: ['ground_score'] }, 9],
    [{ mode: null, terms: [{ ...term, repeats: 4 }] }, 24],
  ])('with %j are at most %i', (reward, most) => {
    expect(requestsOfAnEdit(rewardSection.parse(reward))).toBe(most);
  });
});

describe('a scorer', () => {
  it('needs no judge if no term asks it', async () => {
    const scorer = await open({ mode: 'image_similarity' }, null);
    const items = [wholeItem(), wholeItem({ edited: imageOf(1) })];
    const outcomes = await scorer.settle(items, await scorer.begin(items));
    expect(outcomes.map(({ kind }) => kind)).toEqual(['scored', 'scored']);
    expect(outcomes[1]).toMatchObject({ value: 1 });
    await scorer.close();
  });

  it('reports that a judge is missing', async () => {
    const opening = open({ mode: 'viescore' }, null);
    await expect(opening).rejects.toThrow(ConfigError);
    await expect(opening).rejects.toMatchObject({ where: 'reward.endpoint' });
  });

  it('asks at the start for as many images as its longest question has', async () => {
    const stub = await startStubJudge(({ images }) =>
      images.length > 3 ? openAiError(400, 'At most 3 image(s) may be provided in one prompt.') : scoresText(8, 6),
    );
    closing.push(stub.close);
    const opening = (terms: readonly object[], sources?: number) =>
      open({ mode: null, terms, model: stubModel, max_wait_s: 0 }, stub.url, sources === undefined ? {} : { sources });
    const own = { name: 'align_quality', weight: 1, endpoint: stub.url, model: stubModel };
    for (const term of [{ name: 'align_quality', weight: 1 }, own]) {
      const fewer = [await opening([term]), await opening([term], 2)];
      expect(stub.requests.slice(-2).map(({ images }) => images.length)).toEqual([2, 3]);
      for (const scorer of fewer) await scorer.close();
      const error = await opening([term], 3).catch((found: unknown) => found);
      expect(error).toBeInstanceOf(EndpointError);
      expect((error as EndpointError).toText()).toContain(
        `Allow four images per request on the server: vllm serve ... --limit-mm-per-prompt '{"image":4,"video":0}'`,
      );
    }
  });

  it('waits for the server that a term has of its own, and not for the run\u2019s judge that no one asks', async () => {
    const stub = await judge();
    const own = { name: 'align_quality', weight: 1, model: stubModel, endpoint: stub.url };
    const nobody = 'http://127.0.0.1:1/v1';
    const scorer = await open({ mode: null, terms: [own], max_wait_s: 0 }, nobody);
    expect(stub.requests).toHaveLength(1);
    expect(await scorer.begin([wholeItem()])).toMatchObject([{ kind: 'scored', value: 0.7 }]);
    await scorer.close();
    const opening = open({ mode: null, terms: [{ ...own, model: 'another' }] }, null);
    await expect(opening).rejects.toThrow(EndpointError);
    await expect(opening).rejects.toMatchObject({
      message: expect.stringContaining("does not serve 'another'") as string,
      where: stub.url,
    });
  });

  it.each<readonly [string, Behaviour, RegExp]>([
    ['refuses the key', openAiError(401, 'Incorrect API key provided'), /401.*Incorrect API key/],
    ['lost its model', openAiError(404, 'The model does not exist'), /404.*does not exist/],
  ])('gives up where the judge of a term\u2019s own %s in the middle of a run', async (_what, refusal, found) => {
    let refuses = false;
    const stub = await startStubJudge(() => (refuses ? refusal : scoresText(8, 6)));
    closing.push(stub.close);
    const own = { name: 'align_quality', weight: 1, model: stubModel, endpoint: stub.url };
    const scorer = await open({ mode: null, terms: [own], max_wait_s: 0, max_attempts: 1 }, null);
    refuses = true;
    const items = [wholeItem()];
    const outcomes = await scorer.begin(items);
    expect(outcomes).toMatchObject([{ kind: 'unscored', reason: 'bad_request' }]);
    const settling = scorer.settle(items, outcomes);
    await expect(settling).rejects.toThrow(EndpointError);
    await expect(settling).rejects.toThrow(found);
    await scorer.close();
  });

  it('compares its judge with the exam that its reward had', async () => {
    const changed = await startJudge({ port: 0, host: '127.0.0.1', biases: { noise: 0.5 } });
    const honest = await startJudge({ port: 0, host: '127.0.0.1' });
    closing.push(
      () => changed.close(),
      () => honest.close(),
    );
    const reward = { mode: 'viescore', model: JUDGE_MODEL, max_wait_s: 0, recheck_every_min: 60 };
    const { signal } = new AbortController();
    await runExam({
      settings: smallSettings(world, { reward: { ...reward, endpoint: honest.url } }).reward,
      set: tinyExam(20),
      repeats: 2,
      folder: join(root, 'exams', 'of-this-reward'),
      resolveRun: () => '',
      onWaiting: () => undefined,
      onNote: () => undefined,
      judge: { notice: () => undefined, lost: () => undefined, over: signal },
      signal,
    });
    const log = () => readFileSync(new RunPaths(root, `run_${runs - 1}`).consoleLog(1), 'utf8');
    const watched = await open(reward, changed.url);
    await vi.waitFor(() => expect(log()).toContain('answers differently than in its exam of'), 30_000);
    await watched.close();
    for (const other of [
      { ...reward, recheck_every_min: null },
      { ...reward, zero_if_unfinished: false },
    ]) {
      const before = changed.stats().requests;
      await (await open(other, changed.url)).close();
      // The small question of every opening.
      expect(changed.stats().requests - before).toBe(1);
    }
  });

  describe('with a limit to the requests', () => {
    const items = (...keys: readonly string[]) => keys.map((key) => wholeItem({ key }));
    const asked = (stub: StubJudge): number => stub.requests.filter((request) => !isCanary(request)).length;
    const limited = { mode: 'viescore', model: stubModel, max_wait_s: 0, concurrency: 1 };

    it('asks no more once it is reached, and reports it however few answers lack', async () => {
      const stub = await judge();
      const scorer = await open({ ...limited, max_judge_calls: 3, max_unscored_fraction: 1 }, stub.url);
      const two = items('1/0/0', '1/0/1');
      const outcomes = await scorer.begin(two);
      expect(outcomes).toMatchObject([{ kind: 'scored' }, { kind: 'unscored', reason: 'aborted' }]);
      const settling = scorer.settle(two, outcomes);
      await expect(settling).rejects.toThrow(JudgeLimitError);
      await expect(settling).rejects.toThrow('judge request limit exceeded (3 of 3)');
      expect(asked(stub)).toBe(3);
      await scorer.close();
      // What was answered is stored, and nothing else is.
      expect(storedCalls(new RunPaths(root, `run_${runs - 1}`).judgements)).toEqual({ requests: 3, known: 3 });
    });

    it('does not count what is stored', async () => {
      const stub = await judge();
      const scorer = await open({ ...limited, max_judge_calls: 2 }, stub.url);
      const one = items('1/0/0');
      for (let i = 0; i < 3; i++) {
        expect(await scorer.settle(one, await scorer.begin(one))).toMatchObject([{ kind: 'scored' }]);
      }
      expect(asked(stub)).toBe(2);
      await scorer.close();
    });

    it('counts the requests of a term\u2019s own judge', async () => {
      const stub = await judge();
      const own = { name: 'align_quality', weight: 1, model: stubModel, endpoint: stub.url };
      const scorer = await open({ mode: null, terms: [own], max_judge_calls: 1, max_wait_s: 0 }, null);
      const two = items('1/0/0', '1/0/1');
      await expect(scorer.settle(two, await scorer.begin(two))).rejects.toThrow(JudgeLimitError);
      expect(asked(stub)).toBe(1);
      await scorer.close();
    });

    it('stops asking again for a judge that is unreachable', async () => {
      let away = true;
      const stub = await startStubJudge(() => (away ? openAiError(503, 'x') : scoresText(8, 6)));
      closing.push(stub.close);
      away = false;
      const scorer = await open({ ...limited, max_attempts: 1, max_judge_calls: 5, max_wait_s: 3600 }, stub.url);
      away = true;
      const two = items('1/0/0', '1/0/1');
      const outcomes = await scorer.begin(two);
      expect(outcomes.map(({ kind }) => kind)).toEqual(['unscored', 'unscored']);
      away = false;
      await expect(scorer.settle(two, outcomes)).rejects.toThrow('judge request limit exceeded (5 of 5)');
      await scorer.close();
    });
  });
});
