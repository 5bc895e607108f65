import { promptsPerIteration } from '../../../src/config/schema/training.js';
import { testServices } from '../../rewards/terms/term_services.js';
import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ImageEditSettings } from '../../../src/recipes/image_edit_tokens/settings.js';
import type { RewardSettings } from '../../../src/rewards/schema/reward.js';
import { sha256 } from '../../../src/core/images/image.js';
import { hashPrompt, hashRequest } from '../../../src/rewards/judge/chat_request.js';
import { createReward } from '../../../src/rewards/score/combined.js';
import type { Judge } from '../../../src/rewards/judge/judge.js';
import { scoreChunk } from '../../../src/rewards/score/iteration.js';
import { judgementForm, type Judgement } from '../../../src/rewards/score/types.js';
import { measureScale } from '../../../src/rewards/score/identity.js';
import { measureTerms, rewardSettingsSchema, type TermSettings } from '../../../src/rewards/score/settings.js';
import { writeHeldOutEpisodes } from '../../../src/run/episodes.js';
import { Exchanges } from '../../../src/run/exchanges.js';
import { RunPaths } from '../../../src/run/paths.js';
import { ImageEditTask } from '../../../src/recipes/image_edit_tokens/task.js';
import { recordEpisodes } from '../../../src/train/batch.js';
import { measuredBy, promptScores, readRescoredMeasures } from '../../../src/run/report/measures.js';
import { summarizeHeldOut } from '../../../src/run/report/read.js';
import { getPath } from '../../../src/core/schema/walk.js';
import { measureRecords } from '../../../src/train/rescore/measure.js';
import { rescore, type RescoreRequest } from '../../../src/train/rescore/rescore.js';
import type { RescoredEpisode } from '../../../src/train/rescore/rescore_summary.js';
import { byPicture, place, rewardOf, type ScoreTerm } from '../../rewards/server/served.js';
import { openAiError, startStubJudge, scoresText, stubModel, type StubJudge } from '../../rewards/judge/stub_judge.js';
import { makeSmallWorld, smallSettings, type SmallWorld } from '../../recipes/image_edit_tokens/small_world.js';
import { smallTraining } from '../small_training.js';

const root = mkdtempSync(join(tmpdir(), 'rescore-'));
let world: SmallWorld;
let settings: ImageEditSettings;
let paths: RunPaths;

function withImages(made: ImageEditSettings): ImageEditSettings {
  return { ...made, track: { ...made.track, log_episodes_every_n_iterations: 2 } };
}

/** Answers by the images alone, as a record would have it. */
function recordingJudge(store: Exchanges<Judgement>, model: string): Judge {
  let asked = 0;
  return {
    ask: async (query) => {
      const digest = sha256(JSON.stringify(query.messages));
      // Never 0: most episodes are, by rule, and correlation needs others.
      const scores = [0, 2].map((at) => 1 + (parseInt(digest.slice(at, at + 2), 16) % 10));
      // Some answers came in a form that the parser of its day did not read, some are beyond reading.
      const beyond = asked % 7 === 3;
      const unread = beyond || asked % 5 === 1;
      asked++;
      const text = beyond ? 'no idea' : JSON.stringify({ score: scores, reasoning: '' });
      const problem = unread ? ('unparsable' as const) : null;
      const judgement = {
        key: query.key,
        requestHash: hashRequest(query, model),
        promptHash: hashPrompt(query),
        model,
        text,
        problem,
        ...(problem === null ? {} : { detail: 'no scores in it' }),
        scores: problem === null ? scores : [],
        attempts: 1,
        latencyMs: 5,
      };
      store.put(judgement);
      return judgement;
    },
  };
}

beforeAll(async () => {
  world = await makeSmallWorld(root);
  settings = withImages(smallSettings(world, { reward: { endpoint: 'http://127.0.0.1:9/v1', model: stubModel } }));
  paths = new RunPaths(join(root, 'runs'), settings.run_name);
  const store = new Exchanges(paths.judgements, judgementForm, { isOwner: true, from: null });
  const reward = await createReward(settings.reward, testServices(recordingJudge(store, stubModel)));
  const made = smallTraining(
    settings,
    {
      begin: (items) => scoreChunk(reward, items),
      settle: async (_items, outcomes) => [...outcomes],
      close: async () => store.close(),
    },
    undefined,
    {
      recordHeldOut: (iteration, episodes) =>
        writeHeldOutEpisodes(
          paths,
          iteration,
          episodes.map(({ line }) => line),
        ),
    },
  );
  for (const iteration of [1, 2]) {
    await made.training.step(iteration);
    const withImages = iteration % settings.track.log_episodes_every_n_iterations === 0;
    const record = made.records[iteration - 1];
    await recordEpisodes(paths, record, record.advantages, withImages);
  }
  await made.training.evaluate(2);
  await made.training.dispose();
});
afterAll(() => rmSync(root, { recursive: true }));

function request(more: Partial<RescoreRequest> = {}): RescoreRequest {
  return {
    paths,
    ...opening(settings),
    recordedReward: settings.reward,
    reward: settings.reward,
    name: 'again',
    resolveRun: () => '',
    judge: null,
    ...more,
  };
}

/** Data and models as other settings say. */
function opening(other: ImageEditSettings): Pick<RescoreRequest, 'openTask' | 'promptsPerIteration'> {
  return {
    openTask: async () => ImageEditTask.open(other, () => ''),
    promptsPerIteration: promptsPerIteration(other.rollout),
  };
}

function changed(reward: Partial<RewardSettings>): RewardSettings {
  return { ...settings.reward, ...reward };
}

function linesOf(name: string): RescoredEpisode[] {
  const text = readFileSync(paths.rescored(name).outcomes, 'utf8');
  return text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as RescoredEpisode);
}

/** Every file of the run but what rescoring writes. */
function ownFiles(): Map<string, string> {
  const names = readdirSync(paths.dir, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  const files = names.map((entry) => join(entry.parentPath, entry.name)).filter((name) => !name.includes('/rescored/'));
  return new Map(files.map((name) => [name, sha256(readFileSync(name))]));
}

describe('scoring a run again by the same reward', () => {
  it('gives what was recorded, from the records alone, but for what the present parser reads', async () => {
    const before = ownFiles();
    const summary = await rescore(request());
    expect(ownFiles()).toEqual(before);
    // 2 iterations of 12, and 4 prompts sampled and greedy.
    expect(summary).toMatchObject({ episodes: 32, not_rescored: {}, differ: 0 });
    expect(summary.correlation).toBeCloseTo(1, 9);
    expect(summary.judgements).toMatchObject({ asked: 0, missing: 0 });
    expect(summary.judgements.parsed_again).toBeGreaterThan(0);
    expect(summary.rows.map(({ set, iteration, episodes }) => [set, iteration, episodes])).toEqual([
      ['training', 1, 12],
      ['training', 2, 12],
      ['s/sampled', 2, 4],
      ['s/greedy', 2, 4],
    ]);
    const lines = linesOf('again');
    expect(lines).toHaveLength(32);
    for (const { recorded, rescored } of lines) {
      if (recorded.kind !== 'unscored') expect(rescored).toEqual(recorded);
    }
    const mended = lines.filter(
      ({ recorded, rescored }) => recorded.kind === 'unscored' && rescored?.kind === 'scored',
    );
    const beyond = lines.filter(({ rescored }) => rescored?.kind === 'unscored');
    expect(mended.length).toBeGreaterThan(0);
    expect(beyond.length).toBeGreaterThan(0);
    expect(summary.rescored.unscored).toBe(beyond.length);
    expect(JSON.parse(readFileSync(paths.rescored('again').summary, 'utf8'))).toEqual(summary);
  });

  it('does without the data where images were kept, and says of the rest why not', async () => {
    const gone = { ...settings, environment: { ...settings.environment, model: join(root, 'nowhere') } };
    const summary = await rescore(request({ ...opening(gone), name: 'gone' }));
    expect(summary.rows.map(({ compared, episodes }) => [compared > 0, episodes])).toEqual([
      [false, 12],
      [true, 12],
      [false, 4],
      [false, 4],
    ]);
    const [[why, count]] = Object.entries(summary.not_rescored);
    expect(why).toMatch(
      /its artifact has to be rendered again, but the run's data or a model is missing \(.*no such model/,
    );
    expect(count).toBe(20);
    expect(
      linesOf('gone').filter(
        ({ iteration, set, missing }) => iteration === 2 && set === 'training' && missing !== null,
      ),
    ).toEqual([]);
  });
});

describe('scoring a run again by another reward', () => {
  it('needs no judge where the other asks the same questions', async () => {
    const terms = [{ name: 'viescore', weight: 1 } as const];
    const summary = await rescore(request({ reward: changed({ mode: null, terms }), name: 'terms' }));
    expect(summary).toMatchObject({ reward: 'viescore', recorded_reward: 'viescore', differ: 0 });
    expect(summary.judgements.missing).toBe(0);
    expect(summary.rows[0].rescored_mean).toBeCloseTo((summary.rows[0].recorded_mean ?? NaN) / 10, 9);
  });

  it('reports what the data lack', async () => {
    const summary = await rescore(request({ reward: changed({ mode: 'ground_score' }), name: 'ground' }));
    expect(summary.not_rescored['its prompt has no labeled result']).toBe(24);
  });

  it('leaves out prompts of several images where the judge would be shown one', async () => {
    const file = paths.episodes(2);
    const before = readFileSync(file, 'utf8');
    writeFileSync(file, before.replaceAll('"key":', '"beside":1,"key":'));
    const openTask: RescoreRequest['openTask'] = async () => {
      const task = ImageEditTask.open(settings, () => '');
      const beside = [{ width: 1, height: 1, data: Uint8Array.of(1, 2, 3) }];
      return Object.assign(task, { labels: () => Promise.resolve({ truth: null, beside }) });
    };
    const summary = await rescore(request({ openTask, name: 'several' }));
    writeFileSync(file, before);
    expect(summary.not_rescored).toMatchObject({
      "its prompt has several images, but 'viescore' shows the judge one": expect.any(Number) as number,
    });
    expect(summary.rows.find(({ set, iteration }) => set === 'training' && iteration === 2)?.compared).toBe(0);
  });

  it('continues if a prompt does not suit the reward, and reports what is wrong with it', async () => {
    const summary = await rescore(request({ reward: changed({ mode: 'ocr' }), name: 'ocr' }));
    const { zero_by_rule } = summary.rescored;
    expect(summary.not_rescored).toEqual({ 'its prompt does not fit the reward': 32 - zero_by_rule });
    expect(zero_by_rule).toBeLessThan(32);
    expect(linesOf('ocr').find(({ missing }) => missing !== null)?.detail).toMatch(/^the prompt quotes no text: ".+"$/);
  });

  it('asks the judge for what is not recorded, once', async () => {
    const judge = await startStubJudge(() => scoresText(4, 9));
    try {
      const reward = changed({ prompts: { ...settings.reward.prompts, viescore_pq: join(root, 'pq.txt') } });
      writeFileSync(join(root, 'pq.txt'), 'How good does this look?');
      const asking = request({ reward, name: 'asked', judge: async () => ({ endpoint: judge.url, token: null }) });
      const summary = await rescore(asking);
      // Semantic consistency is as it was; perceptual quality was never asked in these words.
      expect(summary.not_rescored).toEqual({});
      expect(summary.judgements.asked).toBeGreaterThan(0);
      expect(summary.judgements.replayed).toBeGreaterThan(0);
      const scored = linesOf('asked').flatMap(({ rescored }) => (rescored?.kind === 'scored' ? [rescored] : []));
      expect(scored.length).toBeGreaterThan(0);
      expect(new Set(scored.map(({ parts }) => parts['viescore/perceptual_quality']))).toEqual(new Set([4]));
      const requests = judge.requests.length;
      const again = await rescore(asking);
      expect(again.rows).toEqual(summary.rows);
      expect(judge.requests.length).toBeLessThan(requests + 4);
      expect(existsSync(paths.rescored('asked').judgements)).toBe(true);
    } finally {
      await judge.close();
    }
  });

  it('asks a judge that has recovered for what it did not answer before', async () => {
    let isDown = true;
    const seen: string[] = [];
    // It is there, and fails for all images but one.
    const judge = await startStubJudge(({ text, images: [image], kind }) => {
      if (kind !== 'pq' || text.startsWith('This is a check')) return scoresText(4, 9);
      seen.push(image);
      return isDown && image !== seen[0] ? openAiError(500, 'out of memory') : scoresText(4, 9);
    });
    try {
      writeFileSync(join(root, 'down.txt'), 'How good does this look, all in all?');
      const prompts = { ...settings.reward.prompts, viescore_pq: join(root, 'down.txt') };
      const reward = changed({ prompts, max_attempts: 1 });
      const asking = request({ reward, name: 'recovers', judge: async () => ({ endpoint: judge.url, token: null }) });
      expect((await rescore(asking)).rescored.unscored).toBeGreaterThan(0);
      seen.length = 0;
      const [term] = measureTerms.parse([{ name: 'viescore' }]);
      const measuring = { ...asking, recordedReward: reward, term, settings: () => undefined };
      await expect(measureRecords(measuring)).rejects.toThrow(/held-out answers got no reply for 'viescore'/);
      expect(readRescoredMeasures(paths).filter(({ name }) => name === 'viescore')).toEqual([]);
      isDown = false;
      expect((await rescore(asking)).rescored.unscored).toBe(0);
      expect((await measureRecords(measuring)).rescored.unscored).toBe(0);
    } finally {
      await judge.close();
      for (const name of readdirSync(paths.rescoredDir).filter((one) => one.startsWith('measure-viescore'))) {
        rmSync(join(paths.rescoredDir, name));
      }
    }
  });

  it('ends with the address of a judge that has to be asked and is missing', async () => {
    const reward = changed({ model: 'another' });
    const asking = request({
      reward,
      name: 'down',
      judge: async () => ({ endpoint: 'http://127.0.0.1:9/v1', token: null }),
    });
    await expect(rescore(asking)).rejects.toThrow(/the judge is not ready/);
    expect(existsSync(paths.rescored('down').outcomes)).toBe(false);
  });
});

describe('scoring again by terms with servers of their own', () => {
  const ours = async (): Promise<StubJudge> => startStubJudge(() => scoresText(8, 6));
  const judgedAt = (endpoint: string): Partial<RewardSettings> => ({
    mode: null,
    terms: [parseTerm({ name: 'align_quality', weight: 1, model: stubModel, endpoint })],
  });

  it('asks no one, and needs no key, if no one is to be asked', async () => {
    const summary = await rescore(
      request({ reward: changed(judgedAt('https://judge.invalid/v1')), name: 'own_offline', offline: true }),
    );
    expect(Object.keys(summary.not_rescored)).toEqual(['the judge was not asked this']);
    expect(summary.judgements).toMatchObject({ asked: 0, replayed: 0 });
    expect(summary.judgements.missing).toBeGreaterThan(0);
  });

  it('asks what is not recorded, and nothing that is', async () => {
    const stub = await ours();
    const copied = new RunPaths(join(root, 'runs'), 'copied');
    cpSync(paths.dir, copied.dir, { recursive: true });
    try {
      const reward = changed(judgedAt(stub.url));
      const first = await rescore(request({ paths: copied, reward, name: 'first' }));
      expect(first.rescored.scored).toBeGreaterThan(0);
      const asked = stub.requests.length;
      // What was got is now among what the run itself recorded.
      cpSync(copied.rescored('first').judgements, copied.judgements);
      const second = await rescore(request({ paths: copied, reward, name: 'second' }));
      expect(stub.requests).toHaveLength(asked);
      const offline = await rescore(request({ paths: copied, reward, name: 'third', offline: true }));
      for (const again of [second, offline]) {
        expect(again.judgements).toMatchObject({ asked: 0, missing: 0 });
        expect(again).toMatchObject({ rescored: first.rescored, rows: first.rows });
      }
    } finally {
      await stub.close();
    }
  });

  it('takes a reward server\u2019s recorded replies', async () => {
    const here = place();
    const copied = new RunPaths(join(root, 'runs'), 'copied_remote');
    cpSync(paths.dir, copied.dir, { recursive: true });
    let asked = 0;
    const counting: ScoreTerm = (item) => (asked++, byPicture('counting')(item));
    try {
      const { url } = await here.start(rewardOf({ counting: { weight: 1, score: counting } }));
      const rewardAt = (endpoint: string, weights: object | null = null): RewardSettings =>
        changed({ mode: null, terms: [parseTerm({ name: 'remote', weight: 1, endpoint, terms: weights })] });
      const first = await rescore(request({ paths: copied, reward: rewardAt(url), name: 'first' }));
      expect(first.rescored.scored).toBeGreaterThan(0);
      const before = asked;
      cpSync(copied.rescored('first').judgements, copied.judgements);
      const second = await rescore(request({ paths: copied, reward: rewardAt(url), name: 'second' }));
      const nobody = 'http://127.0.0.1:9';
      const offline = await rescore(request({ paths: copied, reward: rewardAt(nobody), name: 'third', offline: true }));
      expect(asked).toBe(before);
      for (const again of [second, offline]) {
        expect(again).toMatchObject({ rescored: first.rescored, rows: first.rows });
      }
      const other = rewardAt(nobody, { another: 1 });
      const lacking = await rescore(request({ paths: copied, reward: other, name: 'fourth', offline: true }));
      expect(Object.keys(lacking.not_rescored)).toEqual(['the judge was not asked this']);
      // A server that scores otherwise is asked itself.
      const changedServer = await here.start(rewardOf({ counting: { weight: 1, score: counting } }, 'other settings'));
      await rescore(request({ paths: copied, reward: rewardAt(changedServer.url), name: 'fifth' }));
      expect(asked).toBeGreaterThan(before);
    } finally {
      await here.close();
    }
  });
});

function parseTerm(term: object): TermSettings {
  return rewardSettingsSchema.parse({ mode: null, terms: [term] }).terms[0];
}

describe('measuring a run from its records', () => {
  it('gives reports what the evaluation would have given, and leaves the reward as it was', async () => {
    const [term] = measureTerms.parse([{ name: 'image_similarity', to: 'source' }]);
    const read = (path: string): unknown => getPath(settings, path);
    const before = ownFiles();
    const summary = await measureRecords({
      paths,
      ...opening(settings),
      recordedReward: settings.reward,
      resolveRun: () => '',
      judge: null,
      term,
      settings: read,
    });
    expect(ownFiles()).toEqual(before);
    expect(summary.reward).toBe('image_similarity');
    const [found] = readRescoredMeasures(paths);
    expect(found).toMatchObject({ name: 'image_similarity', identity: measureScale(term, read).identity });
    expect(found.lines.map(({ iteration }) => iteration)).toEqual([2]);
    const values = linesOf(summary.name).flatMap(({ key, rescored }) =>
      key.includes('/sampled/') && rescored?.kind === 'scored' ? [rescored.value] : [],
    );
    expect(values.length).toBeGreaterThan(0);
    // What does not decode is worth nothing, and counts.
    const all = linesOf(summary.name).filter(({ key }) => key.includes('/sampled/')).length;
    const mean = values.reduce((sum, value) => sum + value, 0) / all;
    expect(found.lines[0].metrics['validation/sampled/measure/image_similarity/mean']).toBeCloseTo(mean, 12);
    const evaluated = [{ iteration: 2, metrics: { 'validation/sampled/mean': 1 } }];
    const { numbers } = summarizeHeldOut(evaluated, { rescored: [found] });
    expect(measuredBy(term, numbers, read)[0].before?.mean).toBeCloseTo(mean, 12);
    expect(promptScores(paths, found).size).toBeGreaterThan(0);
  });

  it('is an error where not one answer could be scored', async () => {
    const [term] = measureTerms.parse([{ name: 'logit_expectation' }]);
    const asked = { paths, ...opening(settings), recordedReward: settings.reward, resolveRun: () => '', judge: null };
    await expect(measureRecords({ ...asked, offline: true, term, settings: () => undefined })).rejects.toThrow(
      /none of \d+ held-out answers could be scored by 'logit_expectation'/,
    );
  });
});
