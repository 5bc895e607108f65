import { testServices } from '../terms/term_services.js';
import { describe, expect, it } from 'vitest';
import { RandomStream } from '../../../src/core/random.js';
import { createReward } from '../../../src/rewards/score/combined.js';
import { JudgeClient } from '../../../src/rewards/judge/client.js';
import { judgeImage } from '../../../src/rewards/judge/images.js';
import { MemoryJudgementStore } from './memory_store.js';
import { scoreChunk } from '../../../src/rewards/score/iteration.js';
import { rewardSettingsSchema } from '../../../src/rewards/score/settings.js';
import type { JudgeItem, Judgement, Reward, UnscoredReason } from '../../../src/rewards/score/types.js';
import type { Behave, Behaviour } from './stub_judge.js';
import { stubPlace } from './stub_place.js';
import {
  completion,
  fastClock,
  numberedImage,
  numberOf,
  openAiError,
  scoresText,
  startStubJudge,
  stubModel,
} from './stub_judge.js';

/** A time limit that tests of a judge's silence wait out, and that any other reply keeps. */
const shortAttempts = { attemptTimeoutMs: 40_000 };
const { closing, serve, connect } = stubPlace();

/** The reward of some settings over a client, made when it is first asked. */
function rewardOver(client: JudgeClient, settings: object = {}): Reward {
  const made = createReward(rewardSettingsSchema.parse(settings), testServices(client));
  return { name: 'under test', score: async (...asked) => (await made).score(...asked) };
}

function item(number: number, changes: Partial<JudgeItem> = {}): JudgeItem {
  const images = { source: numberedImage(200), edited: numberedImage(number), truth: numberedImage(201) };
  return { key: `0/${number}/0`, instruction: 'paint the ball red', finished: true, ...images, ...changes };
}

/** Scores that name the edited image's number, so that a judgement that reaches the wrong item shows. */
const naming: Behave = async ({ images, kind }) => {
  const number = await numberOf(images[images.length - 1]);
  const [low, high] = [number % 11, Math.floor(number / 11)];
  return kind === 'sc' ? scoresText(low, high) : scoresText(high, low);
};

function expectNamed(parts: Readonly<Record<string, number>>, number: number): void {
  expect(parts).toMatchObject({
    'viescore/edit_success': number % 11,
    'viescore/overedit': Math.floor(number / 11),
    'viescore/naturalness': Math.floor(number / 11),
    'viescore/artifacts': number % 11,
  });
}

describe('requests', () => {
  it('send every sampling field, texts and images in order, and a schema where scores are a list', async () => {
    const stub = await serve(({ kind }) =>
      kind === 'ground' ? { kind: 'text', text: '<score>6</score>' } : scoresText(7, 8),
    );
    const { client } = connect(stub);
    await rewardOver(client, { mode: 'ground_score', also_compute: ['viescore'] }).score(item(5));
    expect(stub.requests.map(({ kind }) => kind).sort()).toEqual(['ground', 'pq', 'sc']);
    for (const { body, kind, images, text, system } of stub.requests) {
      expect(body).toMatchObject({
        model: stubModel,
        temperature: kind === 'ground' ? 0.3 : 0,
        top_p: 1,
        top_k: -1,
        repetition_penalty: 1,
        seed: 42,
        max_completion_tokens: kind === 'ground' ? 700 : 400,
      });
      expect('response_format' in body).toBe(kind !== 'ground');
      expect(await Promise.all(images.map(numberOf))).toEqual({ sc: [200, 5], pq: [5], ground: [201, 5] }[kind]);
      if (kind !== 'pq') expect(text.trimEnd().endsWith('\nInstruction: paint the ball red')).toBe(true);
      if (kind === 'ground') expect(system).toContain('<score>');
    }
  });

  it('stay within the bound on questions in flight', async () => {
    const stub = await serve(async (request) => {
      await new Promise((resolve) => setTimeout(resolve, 2));
      return naming(request);
    });
    const { client } = connect(stub, { concurrency: 5 });
    const outcomes = await scoreChunk(
      rewardOver(client),
      Array.from({ length: 40 }, (_, i) => item(i)),
    );
    // How many meet depends on the machine's load; that some do is what makes the bound a test.
    expect(stub.peak()).toBeLessThanOrEqual(5);
    expect(stub.peak()).toBeGreaterThan(1);
    for (const [i, outcome] of outcomes.entries()) expectNamed(outcome.parts, i);
  });

  it('that are the same and come at the same time are one', async () => {
    const stub = await serve(() => scoresText(7, 8));
    const { client } = connect(stub);
    const reward = rewardOver(client, { mode: 'viescore', also_compute: ['sqrt(viescore_pqxground_score)'] });
    const outcome = await reward.score(item(1, { truth: numberedImage(3) }));
    expect(outcome.parts).toHaveProperty('viescore/overall');
    const aboutQuality = stub.requests.filter((request) => JSON.stringify(request).includes('technical quality'));
    expect(aboutQuality).toHaveLength(1);
  });

  it('are encoded while others are in flight, as many again as are, and no more', async () => {
    let answer = (): void => undefined;
    const held = new Promise<void>((resolve) => (answer = resolve));
    const stub = await serve(async () => {
      await held;
      return scoresText(7, 8);
    });
    const { client } = connect(stub, { concurrency: 4 });
    let encoded = 0;
    const ask = (number: number): Promise<Judgement> => {
      const image = judgeImage(numberedImage(number), 'a picture');
      const dataUrl = (): Promise<string> => {
        encoded++;
        return image.dataUrl();
      };
      return client.ask({
        key: `0/${number}/0/question`,
        messages: [{ role: 'user', parts: [{ id: image.id, dataUrl }] }],
        format: null,
        temperature: 0,
        maxCompletionTokens: 10,
        parse: () => ({ ok: true, scores: [1] }),
      });
    };
    const asked = Array.from({ length: 20 }, (_, i) => ask(i));
    await expect.poll(() => stub.requests.length).toBe(4);
    await expect.poll(() => encoded).toBe(8);
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect([encoded, stub.requests.length]).toEqual([8, 4]);
    answer();
    expect((await Promise.all(asked)).every(({ problem }) => problem === null)).toBe(true);
  });
});

/** A judge's fault, the reason that it leaves, and the requests for one question that meets nothing else. */
type Fault = readonly [name: string, behaviour: Behaviour, reason: UnscoredReason, attempts: number];

function isSlow({ kind }: Behaviour): boolean {
  return kind === 'silent' || kind === 'stall';
}

const html = '<html><body>Bad gateway</body></html>';
const sent = (status: number, body: unknown): Behaviour => ({ kind: 'json', status, body });
const raw = (status: number, body: string, contentType = 'application/json'): Behaviour => ({
  kind: 'raw',
  status,
  contentType,
  body,
});
const text = (words: string, finishReason = 'stop'): Behaviour => ({ kind: 'text', text: words, finishReason });

const faults: readonly Fault[] = [
  ['no answer', { kind: 'silent' }, 'timeout', 5],
  ['stall after the headers', { kind: 'stall' }, 'timeout', 5],
  ['connection reset', { kind: 'reset' }, 'connection', 5],
  ['429', openAiError(429, 'slow down'), 'rate_limited', 5],
  ['500', openAiError(500, 'oh no'), 'server_error', 5],
  ['503 with HTML', raw(503, html, 'text/html'), 'server_error', 5],
  ['409', openAiError(409, 'locked'), 'server_error', 5],
  ['408', openAiError(408, 'too slow'), 'timeout', 5],
  ['400 as FastAPI words it', sent(400, { detail: 'no' }), 'bad_request', 1],
  ['content filter', sent(400, { error: { message: 'blocked', code: 'content_filter' } }), 'refused', 1],
  ['HTML at 200', raw(200, html, 'text/html'), 'server_error', 3],
  ['broken JSON', raw(200, '{"choices": ['), 'server_error', 3],
  ['an error at 200', sent(200, { error: { message: 'x' } }), 'server_error', 3],
  ['null', sent(200, null), 'server_error', 3],
  ['no body', raw(204, ''), 'server_error', 3],
  ['no choices', sent(200, { choices: [] }), 'empty', 3],
  ['choices of the wrong form', sent(200, { choices: [null] }), 'empty', 3],
  ['null content', sent(200, completion(null, 'stop')), 'empty', 3],
  ['empty content', text(''), 'empty', 3],
  ['malformed scores', text('{"score": [7, "eight"]}'), 'unparsable', 3],
  ['out of range', scoresText(70, 80), 'out_of_range', 3],
  ['cut off', text('{"score": [7, 1', 'length'), 'truncated', 3],
  ['refusal', text("I'm sorry, I can't help with that."), 'refused', 1],
];

describe('a judge that fails', () => {
  it.each(faults)('%s: unscored', async (_name, behaviour, reason, attempts) => {
    const stub = await serve(({ kind }) => (kind === 'sc' ? behaviour : scoresText(7, 8)));
    const { client, store } = connect(stub, isSlow(behaviour) ? { policy: shortAttempts } : {});
    const outcome = await rewardOver(client).score(item(5));
    expect(outcome).toMatchObject({ kind: 'unscored', reason });
    expect(outcome.parts).toEqual({
      'viescore/naturalness': 7,
      'viescore/artifacts': 8,
      'viescore/perceptual_quality': 7,
    });
    const failed = store.all().find(({ key }) => key.endsWith('_sc'));
    expect(failed).toMatchObject({ problem: reason, scores: [], attempts });
    expect(stub.requests.filter(({ kind }) => kind === 'sc')).toHaveLength(attempts);
    if (!isSlow(behaviour)) expect(stub.requests.filter(({ kind }) => kind === 'pq')).toHaveLength(1);
  });

  it('a server that is missing', async () => {
    const stub = await startStubJudge(() => scoresText(7, 8));
    await stub.close();
    const outcome = await rewardOver(connect(stub).client).score(item(5));
    expect(outcome).toMatchObject({
      kind: 'unscored',
      reason: 'connection',
      detail: expect.stringContaining('ECONNREFUSED') as string,
    });
  });

  it('has by default as much time in all as its attempts and the pauses between them take', async () => {
    const stub = await serve(({ asked }) =>
      asked < 11 ? openAiError(503, 'x', { 'retry-after': '30' }) : scoresText(7, 8),
    );
    const store = new MemoryJudgementStore();
    const clock = fastClock(1000);
    const policy = { attemptTimeoutMs: 2_000_000, maxAttempts: 12 };
    const client = new JudgeClient({ endpoints: [stub.url], model: stubModel, store, clock, policy });
    closing.push(() => client.close());
    expect(await rewardOver(client).score(item(5))).toMatchObject({ kind: 'scored' });
    // Eleven pauses of 30 s.
    expect(store.all().map(({ attempts }) => attempts)).toEqual([12, 12]);
    // With two further requests after replies without scores; a pause may be 30 s and 16 s of jitter.
    expect(Math.max(...clock.waits)).toBe(14 * 2_000_000 + 13 * 46_000);
  });
});

describe('under load and faults together', () => {
  it('every score belongs to its item, and what is not scored has a reason', async () => {
    const random = new RandomStream('stub faults');
    const transient = faults.map(([, behaviour]) => behaviour).filter((behaviour) => !isSlow(behaviour));
    const stub = await serve((request) => (random.uniform() < 0.3 ? random.pick(transient) : naming(request)));
    const { client } = connect(stub, { random: () => random.uniform() });
    const outcomes = await scoreChunk(
      rewardOver(client),
      Array.from({ length: 110 }, (_, i) => item(i)),
    );
    expect(outcomes).toHaveLength(110);
    for (const [i, outcome] of outcomes.entries()) {
      if (outcome.kind === 'scored') expectNamed(outcome.parts, i);
      else expect(outcome.kind).toBe('unscored');
    }
    expect(outcomes.filter(({ kind }) => kind === 'scored').length).toBeGreaterThan(30);
  });

  it('being canceled leaves nothing in the store', async () => {
    const stub = await serve(() => ({ kind: 'silent' }));
    const { client, store } = connect(stub, { concurrency: 3 });
    const controller = new AbortController();
    const scoring = scoreChunk(rewardOver(client), [item(1), item(2), item(3)], controller.signal);
    while (stub.requests.length < 3) await new Promise((resolve) => setTimeout(resolve, 1));
    controller.abort();
    for (const outcome of await scoring) expect(outcome).toMatchObject({ kind: 'unscored', reason: 'aborted' });
    expect(store.all()).toEqual([]);
  });
});

describe('stored judgements', () => {
  it('are replayed for the same question, and only for it', async () => {
    const stub = await serve(naming);
    const { client, store } = connect(stub);
    const reward = rewardOver(client);
    const first = await reward.score(item(30));
    expect(await reward.score(item(30))).toEqual(first);
    expect(stub.requests).toHaveLength(2);
    expect(
      store
        .all()
        .map(({ key }) => key)
        .sort(),
    ).toEqual(['0/30/0/viescore_pq', '0/30/0/viescore_sc']);
    await reward.score(item(30, { instruction: 'paint the ball blue' }));
    expect(stub.requests).toHaveLength(3);
    await reward.score(item(30, { edited: numberedImage(31) }));
    expect(stub.requests).toHaveLength(5);
    await reward.score(item(30, { key: '1/30/0' }));
    expect(stub.requests).toHaveLength(7);
  });

  it('replay failures too, until they are asked again', async () => {
    let sane = false;
    const stub = await serve((request) => (sane ? naming(request) : { kind: 'text', text: 'hm' }));
    const reward = rewardOver(connect(stub).client);
    const first = await reward.score(item(30));
    sane = true;
    expect(await reward.score(item(30))).toEqual(first);
    expect(await reward.score(item(30), undefined, { askAgain: true })).toMatchObject({ kind: 'scored' });
    expect(await reward.score(item(30))).toMatchObject({ kind: 'scored' });
    expect(stub.requests).toHaveLength(8);
  });

  it('are stored before anyone sees them: a full disk is an error, not a score', async () => {
    const stub = await serve(naming);
    const store = {
      find: () => undefined,
      put: (judgement: Judgement) => {
        throw new Error(`no space for ${judgement.key}`);
      },
    };
    const { client } = connect(stub, { store });
    await expect(scoreChunk(rewardOver(client), [item(1), item(2)])).rejects.toThrow('no space for');
  });
});
