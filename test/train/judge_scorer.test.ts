import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { ConfigError } from '../../src/core/errors.js';
import { claimRun, type RunHandle } from '../../src/run/claim.js';
import { openRunLog, type RunLog } from '../../src/run/logs.js';
import { openScorer } from '../../src/train/judge_scorer.js';
import { soloGroup } from '../../src/train/process_group.js';
import { pictureOf, wholeItem } from '../rewards/term_contract.js';
import { scoresText, startStubJudge, stubModel, type StubJudge } from '../rewards/stub_judge.js';
import { makeSmallWorld, smallSettings, type SmallWorld } from '../tasks/small_world.js';

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

function open(reward: Record<string, unknown>, endpoint: string | null) {
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
  return openScorer(settings, { group: soloGroup(), handle, log, resolveRun: (run) => run, stop }, endpoint);
}

async function judge(): Promise<StubJudge> {
  const stub = await startStubJudge(() => scoresText(8, 6));
  closing.push(stub.close);
  return stub;
}

describe('a scorer', () => {
  it('needs no judge where no term asks it', async () => {
    const scorer = await open({ mode: 'image_similarity' }, null);
    const items = [wholeItem(), wholeItem({ edited: pictureOf(1) })];
    const outcomes = await scorer.settle(items, await scorer.begin(items));
    expect(outcomes.map(({ kind }) => kind)).toEqual(['scored', 'scored']);
    expect(outcomes[1]).toMatchObject({ value: 1 });
    await scorer.close();
  });

  it('waits for no judge that no term asks, though one is configured', async () => {
    const scorer = await open({ mode: 'jpeg_size', max_wait_s: 0 }, 'http://127.0.0.1:1/v1');
    expect((await scorer.begin([wholeItem()]))[0].kind).toBe('scored');
    await scorer.close();
  });

  it('says that a judge is missing', async () => {
    const opening = open({ mode: 'viescore' }, null);
    await expect(opening).rejects.toThrow(ConfigError);
    await expect(opening).rejects.toMatchObject({ where: 'reward.endpoint' });
  });

  it('weighs what the judge says with what is measured here', async () => {
    const stub = await judge();
    const terms = [
      { name: 'viescore', weight: 0.5 },
      { name: 'image_similarity', weight: 0.5 },
    ];
    const scorer = await open({ mode: null, terms, model: stubModel }, stub.url);
    const [outcome] = await scorer.begin([wholeItem({ edited: pictureOf(1) })]);
    // viescore: sqrt(6 * 6) of 10
    expect(outcome).toMatchObject({ kind: 'scored', value: 0.5 * 0.6 + 0.5 * 1 });
    await scorer.close();
  });

  it('asks the model that a term names, and waits for that one', async () => {
    const stub = await judge();
    const terms = [{ name: 'align_quality', weight: 1, model: stubModel }];
    const scorer = await open({ mode: null, terms, model: 'another' }, stub.url);
    expect(await scorer.begin([wholeItem()])).toMatchObject([{ kind: 'scored', value: 0.7 }]);
    expect(new Set(stub.requests.map(({ body }) => body['model']))).toEqual(new Set([stubModel]));
    await scorer.close();
  });
});
