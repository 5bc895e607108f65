/** What the rows of padding leave behind where they are left out: the same results, fewer rows, and a batch that grows smaller. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterAll, describe, expect, it, vi } from 'vitest';
import { InternalError } from '../../../src/core/errors.js';
import { RandomStream } from '../../../src/core/random.js';
import { Session } from '../../../src/compute/onnx/session.js';
import { plainProcessor } from '../../../src/models/images/processor.js';
import { withImages } from '../../../src/models/images/vision_input.js';
import { RowTables } from '../../../src/train/policies/tokens/batch.js';
import type { TokenPrompt } from '../../../src/models/tokenizer/format.js';
import { DecodingBatch, smallerBatch } from '../../../src/train/policies/tokens/decoding_batch.js';
import { FreeText } from '../../../src/models/tokenizer/format.js';
import type { TokenTrainGroup } from '../../../src/train/policies/tokens/learner.js';
import { initVisionPolicy } from '../../../src/train/policies/tokens/load.js';
import type { PolicyModel } from '../../../src/models/adapters/policy_model.js';
import { Sampler } from '../../../src/train/policies/tokens/rollout.js';
import type { TokenSampling } from '../../../src/train/policies/tokens/sampling.js';
import { decoderInit, visionInit } from '../../../src/config/schema/model.js';
import { learnerOf } from './small_lesson.js';
import { smallModel, smallSpace } from './small_policy.js';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

const END = 0;
const tokens = { image_token_id: 5, video_token_id: 6, vision_start_token_id: 7, vision_end_token_id: 8 };
const init = decoderInit.parse({
  ...{ hidden_size: 16, intermediate_size: 24, num_hidden_layers: 2, num_attention_heads: 2, num_key_value_heads: 1 },
  embedding_std: 0.5,
});
const eyes = visionInit.parse({ depth: 1, hidden_size: 16, intermediate_size: 24, num_heads: 2, patch_size: 4 });
const processor = plainProcessor(eyes, { min_pixels: 64, max_pixels: 1024 });
/** A multiple of 8 tokens: the bits of a sum over a row of another size depend on where the row begins. */
const format = new FreeText({ size: 16, files: {} }, new Set([END]));

/** All of it trains, so that images get a gradient, too. */
const seeing = initVisionPolicy(init, format, 3, {
  init: eyes,
  parts: { mm_vision: true, mm_mlp: true, mm_llm: true },
  tokens,
  processor: processor.settings,
});
const space = smallSpace();
const blind = { ...smallModel(space), format: new FreeText({ size: space.size, files: {} }, new Set([END])) };

/** Its first layer sees the last five columns alone. */
const windowed = { ...blind, config: { ...blind.config, sliding_window: 5, sliding_layers: [0] } };

function image(seed: number, side: number) {
  const stream = new RandomStream(seed, 'image');
  const data = Uint8Array.from({ length: side * side * 3 }, () => stream.integer(256));
  return processor.image({ width: side, height: side, data }, 'here');
}

/** Prompts of different lengths; those of a model that sees have an image, or none. */
function promptOf(model: PolicyModel, index: number): TokenPrompt {
  const words = Array.from({ length: 1 + 3 * index }, (_, i) => 1 + ((i + index) % 4));
  if (model !== seeing || index === 1) return { ids: words };
  const shown = image(index, 8 * (1 + (index % 2)));
  const ids = [tokens.vision_start_token_id, tokens.image_token_id, tokens.vision_end_token_id, ...words];
  return { ids: withImages(ids, [shown], tokens, eyes, 'here'), images: [shown] };
}

/** Groups of answers of these lengths. */
function trainGroupsOf(model: PolicyModel, lengths: readonly (readonly number[])[]): TokenTrainGroup[] {
  return lengths.map((ofGroup, index) => {
    const stream = new RandomStream('answers', index);
    const answers = ofGroup.map((length) => ({ ids: Int32Array.from({ length }, () => stream.integer(5)) }));
    const targets = answers.map(({ ids }) => ({
      weights: Float32Array.from(ids, () => 0.05),
      advantages: stream.normal(),
      reference: { logProbs: Float32Array.from(ids, () => -2 + stream.normal()) },
      old: null,
    }));
    return { prompt: { tokens: promptOf(model, index) }, answers, targets };
  });
}

const KL = { policy: 'reinforce', kl: { coefficient: 0.1 } } as const;

async function learnt(
  model: PolicyModel,
  lessons: readonly TokenTrainGroup[],
  microBatch: number,
  gradientCheckpointing = false,
) {
  const learner = learnerOf(model, { temperature: 0.7, microBatch, gradientCheckpointing });
  const graphs = vi.spyOn(learner, 'lossGraph');
  const { loss, statistics } = await learner.learn(lessons, KL);
  const gradients = new Map([...(await learner.gradients())].map(([name, gradient]) => [name, gradient.slice()]));
  const asked = await learner.statistics(lessons, model.weights);
  await learner.dispose();
  return { loss, statistics, gradients, asked, shape: graphs.mock.calls[0][1] };
}

/** The largest difference of two lists of arrays, over the largest number. */
function relative(a: readonly Float32Array[], b: readonly Float32Array[]): number {
  const [one, other] = [a, b].map((arrays) => arrays.flatMap((array) => [...array]));
  expect(one).toHaveLength(other.length);
  const largest = Math.max(...one.map(Math.abs));
  return one.reduce((most, x, i) => Math.max(most, Math.abs(x - other[i])), 0) / largest;
}

describe.each([
  ['words', blind as PolicyModel],
  ['words in windows', windowed as PolicyModel],
  ['images', seeing],
])('whole sequences of %s without rows for padding', (_name, model) => {
  it('have as many rows as any micro-batch has tokens, rounded up, and the same bits in any of them', async () => {
    const lessons = trainGroupsOf(model, [[3, 9, 1, 5], [2, 2, 14, 7], [6, 1, 3, 4], [1, 1, 1, 1]]); // prettier-ignore
    const whole = await learnt(model, lessons, 8);
    const { tokenRows, prompts, answersPerPrompt, answerColumns } = whole.shape;
    expect(tokenRows?.answers).toBe(44);
    expect(prompts * answersPerPrompt * answerColumns).toBe(128);
    const learner = learnerOf(model, { temperature: 0.7, microBatch: 8 });
    for (const [i, lesson] of lessons.entries()) {
      const [alone] = await learner.statistics([lesson], model.weights, lessons);
      expect(alone).toEqual(whole.asked[i]);
    }
    await learner.dispose();
  });

  it('have the gradient of their own where blocks are computed again', async () => {
    const lessons = trainGroupsOf(model, [[3, 9], [2, 14]]); // prettier-ignore
    const again = await learnt(model, lessons, 4, true);
    const kept = await learnt(model, lessons, 4, false);
    expect(relative([...again.gradients.values()], [...kept.gradients.values()])).toBeLessThan(1e-6);
  });
});

describe('the tables of rows and columns', () => {
  it('lead from one to the other, and padding to padding', () => {
    const tables = new RowTables([0, 1, 4, 6], 7, 6);
    expect([...tables.columnOf]).toEqual([0, 1, 4, 6, 2, 2]);
    expect([...tables.rowOf]).toEqual([0, 1, 4, 4, 2, 4, 3]);
    expect([...tables.ofRows(Float32Array.of(10, 11, 0, 0, 14, 0, 16))]).toEqual([10, 11, 14, 16, 0, 0]);
    expect([...tables.ofColumns(Float32Array.of(10, 11, 14, 16, 0, 0))]).toEqual([10, 11, 0, 0, 14, 0, 16]);
    expect([...new RowTables([0, 1], 3, 4).columnOf]).toEqual([0, 1, 2, 2]);
  });

  it.each([
    ['rows', [0, 1, 2], 4, 3],
    ['columns', [0, 1, 2], 3, 5],
  ])('need %s to spare', (_of, held, columns, rows) => {
    expect(() => new RowTables(held, columns, rows)).toThrow(InternalError);
  });
});

describe('a batch that decodes', () => {
  const columns = { prompt: 40, answer: 64 };

  it.each([
    ['half of each prompt', [4, 4, 4, 4], { places: 4, answers: 8 }, { places: 4, answers: 4 }],
    ['all of half of the prompts', [8, 8, 0, 0], { places: 4, answers: 8 }, { places: 2, answers: 8 }],
    [
      'more of some: halves keep 24 rows, and places of two 16',
      [7, 2, 4, 1],
      { places: 4, answers: 8 },
      { places: 8, answers: 2 },
    ],
    [
      'an eighth more rows to share a prompt',
      [8, 8, 8, 6, 0, 0, 0, 0],
      { places: 8, answers: 8 },
      { places: 4, answers: 8 },
    ],
    ['one answer of each', [1, 1, 1, 1, 1, 1, 1, 1], { places: 8, answers: 8 }, { places: 8, answers: 1 }],
    ['one answer: no fewer than eight rows', [1], { places: 4, answers: 8 }, { places: 1, answers: 8 }],
    ['groups of seven, which have no half', [3, 0, 3], { places: 3, answers: 7 }, { places: 2, answers: 7 }],
  ])('moves together to %s', (_of, left, now, next) => {
    expect(smallerBatch(left, now, columns, 2)).toEqual(next);
  });

  it.each([
    ['less than a quarter of it has ended', [7, 7, 7, 7], { places: 4, answers: 8 }, columns, 2],
    ['it has few rows', [1, 1], { places: 2, answers: 4 }, columns, 2],
    [
      'repeated prompts would take more memory',
      [3, 3, 3, 3],
      { places: 4, answers: 5 },
      { prompt: 4000, answer: 8 },
      2,
    ],
  ])('stays as it is where %s', (_why, left, now, held, queries) => {
    expect(smallerBatch(left, now, held, queries)).toBeNull();
  });

  it('has two rows in a place where each head has one query, since one row rounds differently', () => {
    const now = { places: 8, answers: 8 };
    expect(smallerBatch([1, 1, 1, 1, 1, 1, 1, 1], now, columns, 1)).toEqual({ places: 8, answers: 2 });
    expect(smallerBatch(Array<number>(8).fill(1), { places: 16, answers: 1 }, columns, 1)).toEqual({ places: 8, answers: 1 }); // prettier-ignore
  });

  const samplers: Sampler<TokenPrompt>[] = [];
  afterAll(async () => {
    await Promise.all(samplers.map((made) => made.dispose()));
  });

  async function sampled(model: PolicyModel, caches: 'arrays' | 'cells', only?: number) {
    const made = new Sampler(model, {
      ...{ constrained: false, separateVocabularies: false, contextSize: 120, caches },
      session: { threads: 1, frozen: new Set(model.weights.keys()) },
    });
    samplers.push(made);
    const among = [0, 1, 2, 3].map((i) => ({ tokens: promptOf(model, i) }));
    const how: TokenSampling = { maxTokens: 80, temperature: 1, topP: 1, topK: -1, logProbTemperature: 1 };
    const held: WeakRef<Float32Array>[] = [];
    const old: number[] = [];
    const shrink: (goesOn: (answer: number) => boolean) => boolean = Reflect.get(DecodingBatch.prototype, 'shrink');
    const shrunk = vi.spyOn(DecodingBatch.prototype, 'shrink').mockImplementation(function (
      this: DecodingBatch,
      goesOn,
    ) {
      const before = [...Object.values(this.promptCaches), ...Object.values(this.caches.feeds)];
      if (this.smaller(goesOn) !== null) held.push(...before.map((array) => new WeakRef(array as Float32Array)));
      return shrink.call(this, goesOn);
    });
    const sizes: number[] = [];
    const run: (...given: Parameters<Session['run']>) => ReturnType<Session['run']> = Reflect.get(
      Session.prototype,
      'run',
    );
    // No spy, which would hold what it was given.
    Session.prototype.run = async function (this: Session, ...given) {
      if ('ids' in given[0]) sizes.push((given[0]['ids'] as BigInt64Array).length);
      if (held.length > 0) {
        // The runtime lets go of what it was fed some turns later.
        for (let turn = 0; turn < 20 && held.some((array) => array.deref() !== undefined); turn++) {
          await nextTurn();
          collect();
        }
        old.push(held.splice(0).filter((array) => array.deref() !== undefined).length);
      }
      return run.apply(this, given);
    };
    const answers = await made.sample(
      {
        ...{ prompts: only === undefined ? among : [among[only]], among, answersPerPrompt: 8, how, weights: 'current' },
        random: (p, g) => new RandomStream(4, 'answers', only ?? p, g),
      },
      model.weights,
      'made',
    );
    const times = shrunk.mock.results.filter(({ value }) => value === true).length;
    shrunk.mockRestore();
    Session.prototype.run = run;
    return { answers, sizes, times, old };
  }

  it.each([
    ['words', blind as PolicyModel],
    ['words in windows', windowed as PolicyModel],
    ['images', seeing],
  ])('gives the same bits as one that stays, with fewer rows: %s', async (_name, model) => {
    const stays = await sampled(model, 'cells');
    const leaves = await sampled(model, 'arrays');
    expect(leaves.answers).toEqual(stays.answers);
    const lengths = stays.answers.flat().map(({ ids }) => ids.length);
    // Of words alone it outgrows the first width of the caches.
    expect(Math.max(...lengths)).toBeGreaterThan(model === seeing ? 30 : 64);
    expect(Math.min(...lengths)).toBeLessThan(20);
    expect([stays.times, leaves.times > 1]).toEqual([0, true]);
    expect(new Set(stays.sizes)).toEqual(new Set([32]));
    expect(leaves.sizes).toHaveLength(stays.sizes.length);
    expect(leaves.sizes).toEqual([...leaves.sizes].sort((a, b) => b - a));
    expect(leaves.sizes.at(-1)).toBe(8);
    // What it moved out of is held by nobody.
    expect(leaves.old).toEqual(leaves.old.map(() => 0));
    expect(leaves.old).toHaveLength(leaves.times);
    // Whatever it is sampled with.
    expect((await sampled(model, 'arrays', 2)).answers[0]).toEqual(stays.answers[2]);
  });
});
