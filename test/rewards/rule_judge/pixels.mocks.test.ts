/** The rule judge's memory, by how many pixels it decodes at once. */
import { afterAll, expect, it, vi } from 'vitest';
import { encodePlainPng } from '../../../src/core/images/png.js';
import { JUDGE_MODEL, startJudge } from '../../../src/rewards/rule_judge/server.js';

const decoding = vi.hoisted(() => ({ now: 0, most: 0, all: 0 }));
vi.mock(import('../../../src/core/images/image.js'), async (original) => ({
  ...(await original()),
  decodeImage: async () => {
    decoding.all++;
    decoding.most = Math.max(decoding.most, ++decoding.now);
    await new Promise((resolve) => setTimeout(resolve, 50));
    decoding.now--;
    return { width: 1, height: 1, data: new Uint8Array(3) };
  },
}));

const judge = await startJudge({ port: 0, host: '127.0.0.1' });
afterAll(() => judge.close());

it('has five of its largest images decoded at once, however many are sent', async () => {
  const [width, height] = [2048, 2048];
  const png = encodePlainPng({ width, height, data: new Uint8Array(width * height * 3) });
  const ask = async (number: number): Promise<number> => {
    // What follows a picture's end makes it another one.
    const url = `data:image/png;base64,${Buffer.concat([png, Buffer.from([number])]).toString('base64')}`;
    const content = [{ type: 'image_url', image_url: { url } }];
    const body = JSON.stringify({ model: JUDGE_MODEL, messages: [{ role: 'user', content }] });
    return (await fetch(`${judge.url}/chat/completions`, { method: 'POST', body })).status;
  };
  const replies = await Promise.all(Array.from({ length: 20 }, (_, i) => ask(i)));
  expect(new Set(replies)).toEqual(new Set([200]));
  expect(decoding).toMatchObject({ now: 0, all: 20 });
  // How many meet depends on the machine's load.
  expect(decoding.most).toBeGreaterThan(1);
  expect(decoding.most).toBeLessThanOrEqual(5);
});
