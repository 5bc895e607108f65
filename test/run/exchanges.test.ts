import { appendFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { LineForm, RemoteExchange } from '../../src/core/remote/exchange.js';
import { answerForm } from '../../src/train/policies/vllm/sampler.js';
import { judgementForm, type Judgement } from '../../src/rewards/score/types.js';
import { Exchanges, storedCalls } from '../../src/run/exchanges.js';
import { imageForm } from '../../src/train/remote/remote_images.js';
import { testFolder } from '../support/folder.js';

const key = '5/12/3/viescore_sc';
const question = { key, requestHash: 'ab', model: 'm', text: 'good', scores: [7.5], attempts: 2, latencyMs: 81 };
const told = `{"key":"${key}","request_hash":"ab",`;

function kind<T extends RemoteExchange>(name: string, form: LineForm<T>, exchange: T, line: string) {
  return [name, form as unknown as LineForm<RemoteExchange>, exchange as RemoteExchange, line] as const;
}

/** One exchange of each kind, and its line: the format on disk, which recorded runs have. */
const kinds = [
  kind(
    'a judgement',
    judgementForm,
    { ...question, problem: null },
    `${told}"model":"m","text":"good","problem":null,"scores":[7.5],"attempts":2,"latency_ms":81}`,
  ),
  kind(
    'a judgement with all that it may have',
    judgementForm,
    {
      ...question,
      ...{ promptHash: 'cd', problem: 'empty' as const, detail: 'no words' },
      tokens: { prompt: 812, completion: 40 },
    },
    `${told}"model":"m","prompt_hash":"cd","text":"good","problem":"empty","detail":"no words","scores":[7.5],"attempts":2,"latency_ms":81,"tokens":{"prompt":812,"completion":40}}`,
  ),
  kind(
    'an answer',
    answerForm,
    { key, requestHash: 'ab', ids: [3, 1], logProbs: [-0.123456789, -2], finished: true },
    `${told}"ids":[3,1],"log_probs":[-0.123456789,-2],"finished":true}`,
  ),
  kind(
    'an answer without log-probabilities',
    answerForm,
    { key, requestHash: 'ab', ids: [3], logProbs: null, finished: false },
    `${told}"ids":[3],"log_probs":null,"finished":false}`,
  ),
  kind(
    'an image',
    imageForm,
    { key, requestHash: 'ab', image: 'ef', refused: null, revised: 'a fine cat' },
    `${told}"image":"ef","refused":null,"revised_prompt":"a fine cat"}`,
  ),
];

describe.each(kinds)('%s', (_, form, exchange, line) => {
  const path = join(testFolder('exchanges'), `${line.length}.jsonl`);

  it('is stored before it is used, and found again under its key and hash by everyone who opens the file later', () => {
    const owner = new Exchanges(path, form, { isOwner: true, from: 0 });
    expect(owner.find(key, 'ab')).toBeUndefined();
    owner.put(exchange);
    expect(readFileSync(path, 'utf8')).toBe(`${line}\n`);
    expect([owner.find(key, 'ab'), owner.find(key, 'cd'), owner.find('5/12/4/viescore_sc', 'ab')]).toEqual([
      exchange,
      undefined,
      undefined,
    ]);
    expect(owner.take()).toEqual([]);
    owner.close();
    for (const isOwner of [true, false]) {
      const again = new Exchanges(path, form, { isOwner, from: 5 });
      expect([again.size, again.find(key, 'ab')]).toEqual([1, exchange]);
      again.close();
      const later = new Exchanges(path, form, { isOwner, from: 6 });
      expect(later.find(key, 'ab')).toBeUndefined();
      later.close();
    }
  });

  it('is collected by a rank that does not own the file, which takes the latest of each key', () => {
    const follower = new Exchanges(path, form, { isOwner: false, from: 0 });
    const other = { ...exchange, requestHash: 'other' };
    follower.put(other);
    const later = { ...exchange };
    follower.put(later);
    expect(follower.find(key, 'other')).toBe(other);
    expect(follower.find(key, 'ab')).toBe(later);
    expect(follower.take()).toEqual([other, exchange]);
    expect([follower.take(), follower.find(key, 'other'), follower.find(key, 'ab')]).toEqual([[], undefined, exchange]);
    follower.close();
    expect(readFileSync(path, 'utf8')).toBe(`${line}\n`);
  });

  it('is rejected with its place where its line is broken', () => {
    appendFileSync(path, `no JSON\n${line}\n`);
    for (const isOwner of [true, false]) {
      expect(() => new Exchanges(path, form, { isOwner, from: null })).toThrow(
        expect.objectContaining({ where: `${path}:2` }) as Error,
      );
    }
  });
});

describe('judgements', () => {
  const folder = testFolder('judgements');
  const judgement = (of: string): Judgement => ({ ...question, key: of, requestHash: 'h', problem: null, attempts: 1 });
  const stored = (name: string, all: readonly Judgement[]): string => {
    const path = join(folder, name);
    const store = new Exchanges(path, judgementForm, { isOwner: true, from: null });
    for (const one of all) store.put(one);
    store.close();
    return path;
  };

  it('lose only a torn last line', () => {
    const path = stored(
      'torn',
      Array.from({ length: 9 }, (_, i) => judgement(`1/0/${i}/q`)),
    );
    const whole = readFileSync(path);
    writeFileSync(path, whole.subarray(0, whole.length - 20));
    const again = new Exchanges(path, judgementForm, { isOwner: true, from: null });
    expect([again.size, again.find('1/0/8/q', 'h')]).toEqual([8, undefined]);
    again.put(judgement('1/0/8/q'));
    again.close();
    expect(readFileSync(path).equals(whole)).toBe(true);
  });

  it('are indexed only as far as a training that continues asks for them', () => {
    const keys = ['probe', ...[1, 2, 3, 4].flatMap((i) => [`${i}/0/0/sc`, `validation/${i}/s/greedy/0/sc`])];
    const path = stored('long', [...keys, 'exam/2/0/0/sc'].map(judgement));
    const resumed = new Exchanges(path, judgementForm, { isOwner: true, from: 3 });
    // The exchanges of iterations 3 and 4, and those of no iteration.
    expect(resumed.size).toBe(5);
    expect(resumed.find('3/0/0/sc', 'h')).toBeDefined();
    expect(resumed.find('validation/2/s/greedy/0/sc', 'h')).toBeUndefined();
    resumed.put(judgement('5/0/0/sc'));
    expect(resumed.size).toBe(4);
    expect(resumed.find('validation/4/s/greedy/0/sc', 'h')).toBeDefined();
    for (let i = 6; i < 200; i++) resumed.put(judgement(`${i}/0/0/sc`));
    expect(resumed.size).toBe(3);
    expect(resumed.find('probe', 'h')).toBeDefined();
    resumed.close();
  });

  it('count every request, including repeated ones, but not the replies of reward servers', () => {
    const path = stored('asked', [
      { ...judgement('1/0/0/sc'), attempts: 3 },
      { ...judgement('2/0/1/sc'), problem: 'timeout', attempts: 2 },
      judgement('2/0/1/sc'),
      judgement('2/0/2/remote'),
    ]);
    expect(storedCalls(join(folder, 'none'))).toEqual({ requests: 0, known: 0 });
    expect(storedCalls(path)).toEqual({ requests: 6, known: 2 });
    expect(storedCalls(path, 2)).toEqual({ requests: 6, known: 1 });
  });
});
