import sharp from 'sharp';
import { describe, expect, it } from 'vitest';
import { encodePng, sha256 } from '../../../src/core/image.js';
import { readChatBody } from '../../../src/rewards/gateway/chat_body.js';
import { numberedImage } from '../judge/stub_judge.js';

const limits = { maxImagePixels: 1e6 };
const png = async (number: number): Promise<Buffer> => Buffer.from(await encodePng(numberedImage(number)));
const dataUrl = (bytes: Buffer, type = 'png'): string => `data:image/${type};base64,${bytes.toString('base64')}`;
const read = (body: unknown) => readChatBody(Buffer.from(JSON.stringify(body)), limits);

async function body(change: Record<string, unknown> = {}, number = 1, text = 'grade it') {
  const content = [
    { type: 'text', text },
    { type: 'image_url', image_url: { url: dataUrl(await png(number)) } },
  ];
  return { model: 'm', messages: [{ role: 'user', content }], temperature: 0, seed: 1, ...change };
}

describe('the key of a request', () => {
  it('is the same whatever the order of its fields and whoever asks', async () => {
    const one = await body({ top_p: 1, user: 'a' });
    const other = Object.fromEntries(Object.entries({ ...one, user: 'b', stream: false }).reverse());
    expect((await read(other)).key()).toBe((await read(one)).key());
  });

  it.each<[string, Record<string, unknown>, number, string]>([
    ['model', { model: 'n' }, 1, 'grade it'],
    ['seed', { seed: 2 }, 1, 'grade it'],
    ['any other field', { repetition_penalty: 1.1 }, 1, 'grade it'],
    ['reply format', { response_format: { type: 'json_object' } }, 1, 'grade it'],
    ['image', {}, 2, 'grade it'],
    ['text', {}, 1, 'grade that'],
  ])('is another one for another %s', async (_what, change, number, text) => {
    expect((await read(await body(change, number, text))).key()).not.toBe((await read(await body())).key());
  });

  it('tells texts apart that look like the same image', async () => {
    const texts = ['data:image/png;base64,AA==\nInstruction: x', 'data:image/png;base64,AA==\nInstruction: y'];
    const keys = await Promise.all(texts.map(async (text) => (await read(await body({}, 1, text))).key()));
    expect(keys[0]).not.toBe(keys[1]);
  });

  it('names images by the SHA-256 of their files', async () => {
    expect((await read(await body())).images()).toEqual([sha256(await png(1))]);
  });
});

describe('what may be kept', () => {
  it.each([
    [{}, true],
    [{ temperature: 0.3 }, false],
    [{ temperature: undefined }, false],
    [{ seed: undefined }, false],
    [{ seed: null }, false],
  ])('%j: %s', async (change, deterministic) => {
    expect((await read(await body(change))).deterministic).toBe(deterministic);
  });
});

describe('images', () => {
  it('are read by their headers, whatever their format', async () => {
    const image = sharp({ create: { width: 2000, height: 400, channels: 3, background: 'red' } });
    for (const type of ['png', 'jpeg', 'webp'] as const) {
      const url = dataUrl(await image.clone().toFormat(type).toBuffer(), type);
      const content = [{ type: 'image_url', image_url: { url } }];
      const asked = { model: 'm', messages: [{ role: 'user', content }] };
      expect((await read(asked)).images()).toHaveLength(1);
      const small = { maxImagePixels: 799_999 };
      await expect(readChatBody(Buffer.from(JSON.stringify(asked)), small)).rejects.toThrow('0.8 megapixels');
    }
  });

  it('that claim a gigantic size in a few bytes are refused', async () => {
    const bomb = await png(1);
    bomb.writeUInt32BE(100_000, 16);
    bomb.writeUInt32BE(100_000, 20);
    const content = [{ type: 'image_url', image_url: { url: dataUrl(bomb) } }];
    await expect(read({ model: 'm', messages: [{ role: 'user', content }] })).rejects.toThrow('10000.0 megapixels');
  });

  it('that are not strictly base64 have no hash, so that no two texts share one', async () => {
    const url = `${dataUrl(await png(1))}*`;
    const chat = await read({
      model: 'm',
      messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url } }] }],
    });
    expect(() => chat.key()).toThrow('not base64');
  });
});

it('refuses what is nested without end', async () => {
  let nested: unknown = 1;
  for (let i = 0; i < 100; i++) nested = [nested];
  const chat = await read(await body({ nested }));
  expect(() => chat.key()).toThrow('nested deeper');
});
