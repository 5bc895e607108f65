import { afterEach, describe, expect, it } from 'vitest';
import { Deadline } from '../../../../src/core/clock.js';
import { EndpointError } from '../../../../src/core/errors.js';
import { encodePng, sha256 } from '../../../../src/core/images/image.js';
import { ImagesClient, type ImagesClientOptions } from '../../../../src/train/environments/images_api.js';
import type { ImageReply } from '../../../../src/train/environments/served.js';
import { imagesApi } from '../../../../src/config/schema/images_api.js';
import { fastClock } from '../../../rewards/judge/stub_judge.js';
import {
  bomb,
  digestIn,
  digestOf,
  imageOf,
  StubImages,
  type Fault,
  type StubOptions,
  type StubReply,
} from './stub_images.js';

/** A second passes in twenty milliseconds. */
const clock = fastClock(50);
const closers: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0)) await close();
});

async function started(options: StubOptions = {}): Promise<StubImages> {
  const stub = await StubImages.start(options);
  closers.push(() => stub.close());
  return stub;
}

type Options = Omit<Partial<ImagesClientOptions>, 'settings'> & { readonly settings?: object };

function clientOf(base_url: string | readonly string[], { settings, ...options }: Options = {}): ImagesClient {
  const client = new ImagesClient({
    settings: imagesApi.parse({ type: 'images_api', base_url, served_model: 'stub-image', size: '16x24', ...settings }),
    clock,
    random: () => 0.5,
    ...options,
  });
  closers.push(() => client.close());
  return client;
}

const within = (seconds: number): Deadline => new Deadline(clock, seconds * 1000);
const asked = { prompt: 'a cat', seed: 7 };

const always = (stub: StubImages, fault: Fault): void => void (stub.fault = () => fault);
const replying = (body: (right: StubReply) => unknown): Fault => ({ kind: 'body', body });
const holding = (b64_json: string): Fault => replying(() => ({ created: 0, data: [{ b64_json }] }));
const status = (code: number, body?: unknown): Fault => ({ kind: 'status', status: code, body });

function shown(answered: ImageReply): string {
  if ('refused' in answered) throw new Error(`refused: ${answered.refused}`);
  return digestIn(answered.image);
}

async function failureOf(work: Promise<unknown>): Promise<string> {
  const error: unknown = await work.then(
    () => null,
    (found: unknown) => found,
  );
  if (!(error instanceof EndpointError)) throw new Error(`no EndpointError: ${String(error)}`);
  return error.toText().replace(/127\.0\.0\.1:\d+/g, 'HOST');
}

describe('an image', () => {
  it('is that of its prompt and seed, in the size that was asked for', async () => {
    const stub = await started({ apiKey: 'a-key-of-the-server' });
    const client = clientOf(`${stub.url}/v1/`, {
      apiKey: 'a-key-of-the-server',
      settings: { extra: { negative_prompt: 'dogs', num_inference_steps: 20, true_cfg_scale: 4 } },
    });
    const answered = await client.draw(asked, within(60));
    expect(shown(answered)).toBe(digestOf('a cat', 7));
    expect(answered).toMatchObject({ image: { width: 16, height: 24 }, revised: null });
    expect(stub.asked.map(({ fields }) => fields)).toEqual([
      {
        model: 'stub-image',
        prompt: 'a cat',
        n: 1,
        size: '16x24',
        negative_prompt: 'dogs',
        num_inference_steps: 20,
        response_format: 'b64_json',
        seed: 7,
        true_cfg_scale: 4,
      },
    ]);
  });

  it('is made of another one if there is a source', async () => {
    const stub = await started();
    const source = await encodePng(imageOf(digestOf('source', 0), 16, 24));
    const answered = await clientOf(stub.url).draw({ prompt: 'make it red', seed: 3, source }, within(60));
    expect(stub.asked[0]).toMatchObject({ path: '/v1/images/edits', source: sha256(source) });
    expect(shown(answered)).toBe(digestOf('make it red', 3, sha256(source)));
  });

  it('may have another prompt than the one that was asked for, which is reported', async () => {
    const stub = await started();
    always(
      stub,
      replying(({ data: [entry] }) => ({ data: [{ ...entry, revised_prompt: 'A fine cat' }] })),
    );
    expect(await clientOf(stub.url).draw(asked, within(60))).toMatchObject({ revised: 'A fine cat' });
  });

  it('comes from hosted models, too, without the fields that they refuse', async () => {
    const stub = await started({ kind: 'hosted' });
    const notes: string[] = [];
    const client = clientOf(stub.url, { onNote: (note) => notes.push(note) });
    expect(shown(await client.draw(asked, within(60)))).toBe(digestOf('a cat', null));
    expect(shown(await client.draw({ prompt: 'a dog', seed: 1 }, within(60)))).toBe(digestOf('a dog', null));
    expect(notes).toEqual([
      'the images server does not accept response_format; requests leave it out',
      'the images server accepts no seed, so the same prompt gives another image each time',
    ]);
    // What was refused once is not sent again.
    expect(stub.asked).toHaveLength(4);
  });

  it('comes from hosted models at once if several are asked for first, and after others were drawn before', async () => {
    const stub = await started({ kind: 'hosted' });
    const notes: string[] = [];
    const client = clientOf(stub.url, { onNote: (note) => notes.push(note) });
    client.hasDrawn();
    const prompts = Array.from({ length: 8 }, (_, i) => `cat ${i}`);
    const drawn = await Promise.all(prompts.map((prompt, seed) => client.draw({ prompt, seed }, within(60))));
    expect(drawn.map(shown)).toEqual(prompts.map((prompt) => digestOf(prompt, null)));
    expect(notes).toHaveLength(2);
  });
});

describe('what goes wrong each time', () => {
  const png = async (width: number, height: number): Promise<Buffer> =>
    Buffer.from(await encodePng(imageOf(digestOf('', 0), width, height)));
  const base64 = (bytes: Buffer): string => bytes.toString('base64');

  it.each<[string, () => Fault | Promise<Fault>, string]>([
    ['an error', () => status(500, { error: { message: 'CUDA out of memory' } }), 'HTTP 500 CUDA out of memory'],
    ['broken JSON', () => replying(() => '{"data": ['), 'broken JSON'],
    ['no data', () => replying(() => ({ created: 0 })), 'no data: "{"created":0}"'],
    ['no image', () => replying(() => ({ created: 0, data: [] })), 'no image; requested: one'],
    ['an empty image', () => holding(''), 'it returned no image'],
    ['two images', () => replying(({ data }) => ({ created: 0, data: [...data, ...data] })), '2 images'],
    [
      'an address',
      () => replying(() => ({ created: 0, data: [{ url: 'http://elsewhere/1.png' }] })),
      'URL instead of the image',
    ],
    ['another size', async () => holding(base64(await png(24, 16))), '24x16 pixels; requested: 16x24'],
    ['a bomb', async () => holding(await bomb(60_000, 60_000)), '3600000000 pixels'],
    ['no base64', () => holding('not base64!'), 'not base64'],
    ['no image in it', () => holding(base64(Buffer.from('<svg/>'))), 'invalid image: cannot decode'],
    ['one that ends early', async () => holding(base64((await png(24, 16)).subarray(0, 60))), 'invalid image: cannot'],
    ['text', () => replying(() => '"a cat, drawn"'), 'text instead of an image: "a cat, drawn"'],
  ])('is reported: %s', async (_, fault, says) => {
    const stub = await started();
    always(stub, await fault());
    const client = clientOf(stub.url, { settings: { max_attempts: 2 } });
    const [message] = (await failureOf(client.draw(asked, within(600)))).split('\n');
    expect(message).toContain('http://HOST/v1: the images server returned no image: ');
    expect(message).toContain(says);
    expect(stub.asked).toHaveLength(2);
  });

  it.each<[string, object, string, string]>([
    ['401 Incorrect API key', {}, 'environment.api_key_env', 'a-key-of-the-server'],
    ['400 Invalid size 4x4', { size: '4x4' }, 'environment.size', ''],
    ["404 The model 'flux'", { served_model: 'flux' }, 'environment.served_model', ''],
    ["400 Unknown parameter: 'steps'", { extra: { steps: 4 } }, 'environment.extra', ''],
  ])(
    'is not asked again where settings or key are wrong, and what to do is said: %s',
    async (says, settings, next, apiKey) => {
      const stub = await started(apiKey === '' ? {} : { apiKey });
      const message = await failureOf(clientOf(stub.url, { settings }).ready(within(60)));
      expect(message).toContain(says);
      expect(message).toContain(next);
      expect(stub.asked.length).toBeLessThan(2);
    },
  );

  it('is distinguished from a canceled request', async () => {
    const stub = await started();
    always(stub, { kind: 'stall' });
    const over = new AbortController();
    const drawn = clientOf(stub.url).draw(asked, new Deadline(clock, 600_000, over.signal));
    while (stub.asked.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    over.abort();
    expect(await failureOf(drawn)).toContain('canceled');
  });
});

describe('a prompt that is rejected', () => {
  const policy = status(400, {
    error: { message: 'Your request was rejected by the safety system.', code: 'content_policy_violation' },
  });

  it('is not asked again, and no image stands for it', async () => {
    const stub = await started();
    always(stub, policy);
    expect(await clientOf(stub.url).draw(asked, within(60))).toEqual({
      refused: 'HTTP 400 Your request was rejected by the safety system.',
    });
    expect(stub.asked).toHaveLength(1);
  });

  it('without a reason is distinguished from rejected settings by another image', async () => {
    const stub = await started();
    const client = clientOf(stub.url);
    const tooLong = status(400, { detail: 'the words about a seed are too long' });
    stub.fault = ({ fields }) => (fields['prompt'] === asked.prompt ? tooLong : null);
    expect(await failureOf(client.draw(asked, within(60)))).toContain('HTTP 400 the words about a seed');
    await client.ready(within(60));
    expect(await client.draw(asked, within(60))).toEqual({ refused: 'HTTP 400 the words about a seed are too long' });
    const source = await encodePng(imageOf(digestOf('source', 0), 16, 24));
    expect(await client.draw({ ...asked, source }, within(60))).toMatchObject({
      refused: expect.any(String) as string,
    });
    expect(stub.asked.at(-1)?.path).toBe('/v1/images/edits');
  });

  it('is none where the server draws nothing more', async () => {
    const stub = await started();
    const client = clientOf(stub.url);
    await client.ready(within(60));
    for (const [code, error] of [
      [400, { message: 'Billing hard limit has been reached', code: 'billing_hard_limit_reached' }],
      [400, { message: "Unknown parameter: 'moderation'", param: 'moderation', code: 'unknown_parameter' }],
      [404, { message: "The model 'safety-xl' does not exist", code: 'model_not_found' }],
    ] as const) {
      always(stub, status(code, { error }));
      expect(await failureOf(client.draw(asked, within(60)))).toContain(error.message);
    }
  });
});

describe('a look at servers', () => {
  it('finds one that has the model, or lists none', async () => {
    const [open, bare] = [await started(), await started({ kind: 'bare' })];
    expect(await clientOf([open.url, bare.url]).problems(within(60))).toEqual([]);
  });

  it('reports what is wrong with each', async () => {
    const [other, gone, keyed] = [
      await started({ model: 'flux' }),
      await started(),
      await started({ apiKey: 'secret-key' }),
    ];
    const { url } = gone;
    await gone.close();
    const found = await clientOf([other.url, url, keyed.url]).problems(within(60));
    const says = ["serves flux, not 'stub-image'", 'connect ECONNREFUSED', 'HTTP 401 Incorrect API key'];
    expect(found.map((one, i) => one.includes(says[i]))).toEqual([true, true, true]);
  });
});
