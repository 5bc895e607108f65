import sharp from 'sharp';
import { describe, expect, it } from 'vitest';
import { encodePng } from '../../../src/core/images/image.js';
import { readChatModel } from '../../../src/rewards/gateway/chat.js';
import { numberedImage } from '../judge/stub_judge.js';

const limits = { maxImages: 4, maxImagePixels: 1e6 } as const;
const png = async (number: number): Promise<Buffer> => Buffer.from(await encodePng(numberedImage(number)));
const dataUrl = (bytes: Buffer, type = 'png'): string => `data:image/${type};base64,${bytes.toString('base64')}`;
const read = (body: unknown) => readChatModel(Buffer.from(JSON.stringify(body)), limits);

async function body(change: Record<string, unknown> = {}, number = 1, text = 'grade it') {
  const content = [
    { type: 'text', text },
    { type: 'image_url', image_url: { url: dataUrl(await png(number)) } },
  ];
  return { model: 'm', messages: [{ role: 'user', content }], temperature: 0, seed: 1, ...change };
}

describe('images', () => {
  it('are read by their headers, whatever their format', async () => {
    const image = sharp({ create: { width: 2000, height: 400, channels: 3, background: 'red' } });
    for (const type of ['png', 'jpeg', 'webp'] as const) {
      const url = dataUrl(await image.clone().toFormat(type).toBuffer(), type);
      const content = [{ type: 'image_url', image_url: { url } }];
      const asked = { model: 'm', messages: [{ role: 'user', content }] };
      expect(await read(asked)).toBe('m');
      const small = { ...limits, maxImagePixels: 799_999 };
      await expect(readChatModel(Buffer.from(JSON.stringify(asked)), small)).rejects.toThrow('0.8 megapixels');
    }
  });

  it('that claim a gigantic size in a few bytes are rejected', async () => {
    const bomb = await png(1);
    bomb.writeUInt32BE(100_000, 16);
    bomb.writeUInt32BE(100_000, 20);
    const content = [{ type: 'image_url', image_url: { url: dataUrl(bomb) } }];
    await expect(read({ model: 'm', messages: [{ role: 'user', content }] })).rejects.toThrow('10000.0 megapixels');
  });

  it('are base64 as it is written in one way only, so that no two texts share a name', async () => {
    // Its base64 has a plus and a slash, and ends with padding that leaves bits over.
    const bytes = Buffer.concat([await png(1), Buffer.from([0xfb, 0xff])]);
    const padded = Buffer.concat([bytes, Buffer.alloc((4 - (bytes.length % 3)) % 3)]);
    const right = padded.toString('base64');
    expect(right).toMatch(/[+/].*=$/);
    const ask = (text: string) => read(imageRequest(`data:image/png;base64,${text}`));
    await expect(ask(right)).resolves.toBe('m');
    for (const text of [
      right.replaceAll('+', '-').replaceAll('/', '_'),
      right.replace(/=+$/, ''),
      `${right}*`,
      `${right.slice(0, 40)}\n${right.slice(40)}`,
      right.replace(/[A-Za-z0-9+/](?==+$)/, (last) => String.fromCharCode(last.charCodeAt(0) + 1)),
    ]) {
      await expect(ask(text), text.slice(-8)).rejects.toThrow('not base64');
    }
  });
});

const imageRequest = (url: string) => ({
  model: 'm',
  messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url } }] }],
});

it('rejects what is nested without end', async () => {
  let nested: unknown = 1;
  for (let i = 0; i < 100; i++) nested = [nested];
  await expect(read(await body({ nested }))).rejects.toThrow('nested deeper');
});

it('rejects more text than any model reads, and takes as many bytes of images', async () => {
  const text = 'x'.repeat(4_000_001);
  await expect(read(await body({}, 1, text))).rejects.toThrow('more than 4000000 bytes of text');
  const noise = Buffer.concat([await png(1), Buffer.alloc(4_500_000)]);
  await expect(read(imageRequest(dataUrl(noise)))).resolves.toBe('m');
});

it('leaves others their turn between large images', async () => {
  const noise = dataUrl(Buffer.concat([await png(1), Buffer.alloc(900_000)]));
  const content = Array.from({ length: 4 }, () => ({ type: 'image_url', image_url: { url: noise } }));
  const reading = read({ model: 'm', messages: [{ role: 'user', content }] });
  let turns = 0;
  let going = true;
  void reading.finally(() => (going = false));
  while (going) {
    await new Promise((resolve) => setImmediate(resolve));
    turns++;
  }
  expect(turns).toBeGreaterThanOrEqual(4);
});

it('does nothing for a caller who has gone', async () => {
  const bytes = Buffer.from(JSON.stringify(await body()));
  await expect(readChatModel(bytes, { ...limits, caller: AbortSignal.abort() })).rejects.toThrow('disconnected');
});
