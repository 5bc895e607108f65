/** Pictures that vLLM is sent: that they arrive as the policy sees them, and that a server which sees them otherwise is noticed before anything is learnt. */
import { afterEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../../../src/core/clock.js';
import { DataError, EndpointError } from '../../../../src/core/errors.js';
import { decodeImage } from '../../../../src/core/images/image.js';
import { RandomStream } from '../../../../src/core/random.js';
import { VllmClient } from '../../../../src/train/policies/vllm/client.js';
import { soloGroup } from '../../../../src/core/group/process_group.js';
import type { VisionInput } from '../../../../src/models/images/vision_input.js';
import { positionsOf } from '../../../../src/compute/nets/vision/layout.js';
import type { TokenAnswer } from '../../../../src/train/policies/tokens/batch.js';
import type { TokenPrompt } from '../../../../src/models/tokenizer/format.js';
import { fractionOf, ImageUploads } from '../../../../src/train/policies/vllm/images.js';
import { VllmSampler } from '../../../../src/train/policies/vllm/sampler.js';
import { writeSmallBase, smallConfig } from './small_base.js';
import { readPart, type StubEyes } from './stub_pictures.js';
import { StubVllm } from './stub_vllm.js';
import { testFolder } from '../../../support/folder.js';
import { format, MemoryAnswers } from './sampled_policy.js';
import { eyes, processor, seeingPrompts } from './seeing_base.js';
import { evenClip } from '../../../support/even_clip.js';

const base = writeSmallBase(testFolder('vllm-base'));
const closers: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

/** Placeholders among the words of the small model. */
const small = { ...eyes, image_token_id: 7, video_token_id: 8 };
const prompts = (await seeingPrompts()).map(({ ids, images = [] }): TokenPrompt => {
  const own = new Map([
    [eyes.image_token_id, small.image_token_id],
    [eyes.video_token_id, small.video_token_id],
  ]);
  return { ids: ids.map((id) => own.get(id) ?? (id % 6) + 1), images };
});

async function started(seen: Partial<StubEyes> = {}, store = new MemoryAnswers()) {
  const stub = await StubVllm.start({ base, logprobsMode: 'processed_logprobs', eyes: { ...small, ...seen } });
  const client = new VllmClient({ url: stub.url, concurrency: 4, timeoutMs: 60_000 });
  const loader = {
    ...{ clear: async () => undefined, nameOf: () => base, add: async () => undefined },
    ...{ load: async () => undefined, remove: async () => undefined },
    servedAs: () => ({ model: base, version: null }),
  };
  const sampler = new VllmSampler({
    ...{ client, loader, format, vocabulary: smallConfig.vocab_size, contextSize: 128, separateVocabularies: false },
    ...{
      mode: 'processed',
      constrained: false,
      vision: small,
      store,
      keep: async () => undefined,
      group: soloGroup(),
      concurrency: 4,
    },
    ...{ maxWaitMs: 60_000, stop: new AbortController().signal, close: () => client.close(), clock: systemClock },
  });
  closers.push(async () => {
    await sampler.dispose();
    await stub.close();
  });
  await sampler.publish({ steps: 0, of: 'current', files: () => ({}) });
  const sample = (asked = prompts): Promise<TokenAnswer[][]> =>
    sampler.sample({
      prompts: asked.map((tokens) => ({ tokens })),
      among: [],
      answersPerPrompt: 2,
      how: { temperature: 1, topP: 1, topK: -1, maxTokens: 3, logProbTemperature: 1 },
      weights: 'current',
      random: (p, g) => new RandomStream('images', p, g),
      key: (p, g) => `1/${p}/${g}`,
    });
  return { stub, sample, store };
}

type Part = Parameters<typeof readPart>[0];

describe('images', () => {
  it('arrive as the policy sees them, frame by frame and at their times', async () => {
    const { stub, sample } = await started();
    await sample();
    const asked = stub.requestsOf('/inference/v1/generate').map(({ body }) => body);
    expect(asked).toHaveLength(2 * prompts.length);
    for (const { ids, images = [] } of prompts) {
      // One token stands for each image.
      const collapsed = ids.filter((id, i) => (id !== 7 && id !== 8) || ids[i - 1] !== id);
      const both = asked.filter(({ token_ids }) => String(token_ids) === String(collapsed));
      expect(both).toHaveLength(2);
      const parts = (both[0]['content_parts'] ?? []) as Part[];
      expect(parts.length).toBe(images.length);
      for (const [i, image] of images.entries()) {
        const found = readPart(parts[i]);
        expect(found.kind).toBe(image.kind);
        const frames = await Promise.all(found.frames.map((file) => decodeImage(file, 'here')));
        expect(frames.map(({ data }) => [...data])).toEqual(image.frames.map(({ data }) => [...data]));
        if (image.kind === 'video') expect(found.framesPerSecond).toBe(3);
      }
    }
  });

  it('are part of what an answer is stored under', async () => {
    const { sample, store, stub } = await started();
    const answers = await sample();
    const asked = stub.requests.length;
    const again = await started({}, store);
    expect(await again.sample()).toEqual(answers);
    expect(again.stub.requests).toHaveLength(0);
    // The same words with another image of the same size.
    const other = prompts.map(({ ids, images = [] }) => ({
      ids,
      images: images.map((image): VisionInput => {
        const [first, ...rest] = image.frames;
        const data = first.data.slice();
        data[0] ^= 1;
        return { ...image, frames: [{ ...first, data }, ...rest] };
      }),
    }));
    await again.sample(other);
    expect(again.stub.requests).toHaveLength(asked - 2);
  });
});

describe('a server that reads another prompt', () => {
  it('is detected by the first different image, before an answer is used', async () => {
    const { sample, store } = await started({ enlarges: 2 });
    const error: unknown = await sample().catch((found: unknown) => found);
    expect(error).toBeInstanceOf(EndpointError);
    const said = (error as EndpointError).toText();
    expect(said).toMatch(/vLLM makes 24 tokens of image 1 of 1, an image of 16x24 pixels, and the policy has 6/);
    expect(said).toContain('--mm-processor-kwargs');
    expect(said).not.toContain('--media-io-kwargs');
    expect([...store.all.values()].every(({ key }) => key.startsWith('1/0/'))).toBe(true);
  });

  it('is detected if frames are missing or words differ', () => {
    const mail = new ImageUploads(small);
    const [, , clip] = prompts;
    const fewer = clip.ids.filter((id, i) => id !== 8 || i % 2 === 0);
    expect(() => mail.requireSame(clip, fewer, 'there')).toThrow(
      /tokens of image 1 of 1, a clip of 3 steps of 0.6+\d* s, 32x40 pixels, and the policy has 60/,
    );
    const words = [...clip.ids];
    words[words.length - 1] = (words[words.length - 1] % 6) + 1;
    expect(() => mail.requireSame(clip, words, 'there')).toThrow('which is not the one of');
    expect(() => mail.requireSame(clip, clip.ids, 'there')).not.toThrow();
  });
});

describe('a clip that vLLM would see at other times', () => {
  const noted = async (seconds: number, frames = 6): Promise<VisionInput> => {
    const frame = { width: 32, height: 40, data: new Uint8Array(32 * 40 * 3) };
    const [clip] = await processor.video(evenClip(Array<typeof frame>(frames).fill(frame), seconds), 'here');
    return clip;
  };
  const send = (image: VisionInput): Promise<unknown> => {
    const count = image.grid.steps * 4 * 5;
    return new ImageUploads(small).sent({ ids: [1, ...Array<number>(count).fill(8), 2], images: [image] });
  };

  it('is rejected where the words behind it would begin elsewhere', async () => {
    // Its larger side has 5 tokens; three steps of a second each, two positions a second, end at position 4.
    const fits = await noted(0.5);
    await expect(send(fits)).resolves.toBeDefined();
    const { axes, next } = positionsOf([1, ...Array<number>(60).fill(8), 2], [fits], {
      ...small,
      family: 'qwen2_5_vl',
    });
    expect(next).toBe(1 + 5 + 1);
    expect(Math.max(...axes[0])).toBe(1 + 5);
    const long = send(await noted(0.7));
    await expect(long).rejects.toThrow(DataError);
    await expect(long).rejects.toThrow('the words after it start at position 5 in the policy and 6 in vLLM');
  });

  it('is rejected where vLLM rounds a time otherwise', async () => {
    // Steps of 10/3 s: the fourth is at 20 or at 19, far before its larger side of 25 tokens.
    const frame = { width: 200, height: 16, data: new Uint8Array(200 * 16 * 3) };
    const [clip] = await processor.video(evenClip(Array<typeof frame>(8).fill(frame), 5 / 3), 'here');
    const sent = new ImageUploads(small).sent({ ids: [1, ...Array<number>(4 * 25 * 2).fill(8), 2], images: [clip] });
    await expect(sent).rejects.toThrow("its position of step 3 is 19, and the policy's 20");
  });
});

describe('a time as a fraction', () => {
  it.each([
    [0.5, [1, 2]],
    [1 / 3, [1, 3]],
    [10.01 / 24, [1001, 2400]],
    [2, [2, 1]],
  ])('%d', (value, fraction) => {
    expect(fractionOf(value)).toEqual(fraction);
  });

  it('is as near as two numbers of 31 bits can be', () => {
    for (let i = 0; i < 100; i++) {
      const value = new RandomStream('fraction', i).uniform() * 20;
      const [above, below] = fractionOf(value);
      expect(Math.max(above, below)).toBeLessThan(2 ** 31);
      expect(Math.abs(above / below / value - 1)).toBeLessThan(1e-12);
    }
  });
});
