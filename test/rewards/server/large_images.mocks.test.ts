/** The reward server while somebody sends images that take long to decode. */
import { availableParallelism } from 'node:os';
import { afterEach, describe, expect, it, vi } from 'vitest';
import * as images from '../../../src/rewards/server/images.js';
import type { Outcome } from '../../../src/rewards/score/types.js';
import { until } from '../../core/http/client.js';
import { imageOf } from '../terms/term_contract.js';
import { base64Of, place, postJson, readsAndJudges, rewardOf } from './served.js';

vi.mock('../../../src/rewards/server/images.js', { spy: true });

const here = place();
afterEach(async () => {
  vi.resetAllMocks();
  await here.close();
});

const scored: Outcome = { kind: 'scored', value: 1, normalised: 1, parts: {} };

describe('large images', () => {
  /** Six requests of two items, each of which decodes to more than small ones may. */
  const askForLarge = async (url: string): Promise<Promise<unknown>[]> => {
    const side = 200;
    const image = await base64Of({ width: side, height: side, data: new Uint8Array(side * side * 3) });
    const items = Array.from({ length: 2 }, () => ({ prompt: 'large', image, source: image, truth: image }));
    return Array.from({ length: 6 }, () => postJson(url, { items }));
  };
  const decodedBytes = 2 * 3 * 200 * 200 * 3;

  it('keep no small one waiting for room', async () => {
    let go = (): void => undefined;
    const over = new Promise<Outcome>((resolve) => (go = () => resolve(scored)));
    let large = 0;
    const reward = rewardOf({
      a: {
        weight: 1,
        score: ({ edited }) => {
          if (edited?.width !== 200) return scored;
          large++;
          return over;
        },
      },
    });
    const { url } = await here.start(reward, { limits: { decodedBytes, concurrency: 8 } });
    const all = await askForLarge(url);
    await until(() => large === 2);
    const small = await postJson(url, { prompt: 'a', image: await base64Of(imageOf(1)) });
    expect(small.body['outcome']).toMatchObject({ kind: 'scored' });
    expect(large).toBe(2);
    go();
    await Promise.all(all);
  });

  it('leave a processor to others while they are decoded, one image of an item after another', async () => {
    let reading = 0;
    let most = 0;
    const { readImage } = await vi.importActual<typeof images>('../../../src/rewards/server/images.js');
    vi.mocked(images.readImage).mockImplementation(async (...asked) => {
      most = Math.max(most, ++reading);
      await new Promise((resolve) => setTimeout(resolve, 5));
      reading--;
      return readImage(...asked);
    });
    const { url } = await here.start(readsAndJudges, { limits: { decodedBytes: 20 * decodedBytes, concurrency: 128 } });
    await Promise.all(await askForLarge(url));
    expect(most).toBe(Math.max(1, Math.min(4, availableParallelism()) - 1));
  });
});
