import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { encodePng, sha256 } from '../../src/core/images/image.js';
import { RandomStream } from '../../src/core/random.js';
import type { MadeImage, ImageRequest } from '../../src/train/environments/image_model.js';
import type { ImagesRequest } from '../../src/train/environments/images_api.js';
import type { ServerImages } from '../../src/train/environments/served.js';
import { soloGroup, type ProcessGroup } from '../../src/core/group/process_group.js';
import { RunPaths } from '../../src/run/paths.js';
import { Exchanges } from '../../src/run/exchanges.js';
import { imagesApi } from '../../src/config/schema/images_api.js';
import { openImagesServer, openStoredImages } from '../../src/train/remote/remote_images.js';
import {
  bomb,
  digestIn,
  digestOf,
  imageOf,
  StubImages,
  type Fault,
  type StubOptions,
} from './environments/images_api/stub_images.js';
import { fastClock } from '../rewards/judge/stub_judge.js';
import { testFolders } from '../support/folder.js';
import { onRanks } from './groups.js';

const folder = testFolders('images');
/** A second passes in fifty milliseconds. */
const clock = fastClock(20);
const closers: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0)) await close();
});

async function started(options: StubOptions = {}): Promise<StubImages> {
  const stub = await StubImages.start(options);
  closers.push(() => stub.close());
  return stub;
}

interface Opening {
  readonly group?: ProcessGroup;
  readonly stop?: AbortSignal;
  readonly settings?: object;
  readonly lines?: string[];
  readonly states?: unknown[];
}

/** The images of the run `one` in a folder. */
function opened(
  base_exp_dir: string,
  base_url: string | readonly string[],
  opening: Opening = {},
): Promise<ServerImages<ImagesRequest>> {
  const { group = soloGroup(), stop = new AbortController().signal, settings, lines = [], states = [] } = opening;
  const logger = { warn: (line: string) => lines.push(line), info: (line: string) => lines.push(line) } as never;
  return openImagesServer({ run_name: 'one', base_exp_dir }, settingsOf(base_url, settings), {
    group,
    stop,
    checkpoint: null,
    handle:
      group.rank > 0
        ? null
        : { paths: new RunPaths(base_exp_dir, 'one'), setState: (state) => void states.push(state) },
    log: { logger },
    clock,
  });
}
function settingsOf(base_url: string | readonly string[], settings: object = {}) {
  const given = { type: 'images_api', base_url, served_model: 'stub-image', size: '16x16', timeout_s: 60, ...settings };
  return imagesApi.parse(given);
}

function requestsOf(iteration: number, count: number): ImageRequest[] {
  return Array.from({ length: count }, (_, i) => ({
    key: `${iteration}/${Math.floor(i / 4)}/${i % 4}`,
    prompt: `prompt ${Math.floor(i / 2)}`,
    seed: 100 * iteration + i,
  }));
}

function shown(made: readonly MadeImage[]): string[] {
  return made.map((one) => (one.kind === 'made' ? digestIn(one.image) : one.detail));
}
const expected = (requests: readonly ImageRequest[], salt = ''): string[] =>
  requests.map(({ prompt, seed }) => digestOf(prompt, seed, null, salt));

const stored = (dir: string): string[] =>
  readFileSync(new RunPaths(dir, 'one').pictures, 'utf8').split('\n').slice(0, -1);

describe("a run's images from a server", () => {
  it('with 30 % of its replies faulted belong to their prompts, and none is invented or lost', async () => {
    const stub = await started();
    const dir = folder();
    const random = new RandomStream('faults', 1);
    const huge = await bomb(30_000, 30_000);
    const other = digestOf('another prompt', 0);
    const faults: readonly Fault[] = [
      { kind: 'status', status: 500 },
      { kind: 'status', status: 503 },
      { kind: 'status', status: 429 },
      { kind: 'stall' },
      { kind: 'cut' },
      { kind: 'half' },
      { kind: 'body', body: () => ({ created: 0, data: [] }) },
      { kind: 'body', body: () => ({ created: 0, data: [{ b64_json: huge }] }) },
      { kind: 'body', body: () => ({ created: 0, data: [{ url: `http://elsewhere/${other}.png` }] }) },
      { kind: 'body', body: ({ data }) => ({ created: 0, data: [...data, ...data] }) },
    ];
    let faulted = 0;
    stub.fault = () => (random.uniform() < 0.3 ? faults[faulted++ % faults.length] : null);
    const images = await opened(dir, stub.url, { settings: { concurrency: 16 } });
    const requests = requestsOf(1, 96);
    const made = await images.generate(requests);
    await images.close();
    expect(faulted).toBeGreaterThan(20);
    expect(shown(made)).toEqual(expected(requests));
    expect(stored(dir)).toHaveLength(96);
    expect(stub.peak).toBeLessThanOrEqual(16);
  }, 60_000);

  it('are found again by a run that continues, which asks for the others alone', async () => {
    const stub = await started();
    const dir = folder();
    const requests = requestsOf(1, 12);
    const first = await opened(dir, stub.url);
    await first.generate(requests.slice(0, 8));
    await first.close();
    expect(stub.asked).toHaveLength(9);

    // Killed in the middle of a line; what answers from then on draws otherwise.
    const paths = new RunPaths(dir, 'one');
    writeFileSync(paths.pictures, readFileSync(paths.pictures).subarray(0, -20));
    const salted = await started({ salt: 'other' });
    const second = await opened(dir, salted.url);
    const made = shown(await second.generate(requests));
    await second.close();
    expect(made.slice(0, 7)).toEqual(expected(requests.slice(0, 7)));
    expect(made.slice(7)).toEqual(expected(requests.slice(7), 'other'));
    expect(salted.asked).toHaveLength(5);

    // A file that is gone or broken is asked for again, and so is another prompt in the same place.
    const [gone, broken] = stored(dir).map((line) => (JSON.parse(line) as { image: string }).image);
    rmSync(paths.media(gone));
    writeFileSync(paths.media(broken), await encodePng(imageOf(digestOf('another', 0), 16, 16)));
    const third = await opened(dir, salted.url);
    const changed = { ...requests[11], prompt: 'another one' };
    const again = shown(await third.generate([...requests.slice(0, 11), changed]));
    await third.close();
    expect(again[0]).toBe(expected(requests.slice(0, 1), 'other')[0]);
    expect(again[1]).toBe(expected(requests.slice(1, 2), 'other')[0]);
    expect(again.slice(2, 7)).toEqual(expected(requests.slice(2, 7)));
    expect(again[11]).toBe(expected([changed], 'other')[0]);
    expect(salted.asked).toHaveLength(5 + 3);
    expect(readdirSync(paths.mediaDir).every((name) => name.endsWith('.png'))).toBe(true);
  });

  it('are kept by rank 0, whoever asked for them', async () => {
    const stub = await started();
    const dir = folder();
    const requests = requestsOf(1, 10);
    const made = await onRanks(2, async (group) => {
      const images = await opened(dir, stub.url, { group });
      const own = await images.generate(group.rank === 0 ? requests.slice(0, 4) : requests.slice(4));
      await images.keep?.();
      await images.close();
      return shown(own);
    });
    expect(made.flat()).toEqual(expected(requests));
    const keys = stored(dir).map((line) => (JSON.parse(line) as { key: string }).key);
    expect(keys.sort()).toEqual(requests.map(({ key }) => key).sort());

    const before = stub.asked.length;
    const offline = openStoredImages({ run_name: 'one', base_exp_dir: dir }, settingsOf('http://127.0.0.1:9'));
    expect(shown(await offline.generate(requests))).toEqual(expected(requests));
    expect(await offline.generate([{ ...requests[0], seed: 5 }])).toMatchObject([
      { kind: 'unavailable', reason: 'empty' },
    ]);
    await offline.close();
    expect(stub.asked).toHaveLength(before);
  });

  it('that are asked for twice with one seed are drawn once, and stored for both', async () => {
    const stub = await started();
    const dir = folder();
    const images = await opened(dir, stub.url);
    const requests = requestsOf(1, 4).map((request) => ({ ...request, prompt: 'a cat', seed: 5 }));
    expect(shown(await images.generate(requests))).toEqual(expected(requests));
    await images.close();
    expect(stub.asked).toHaveLength(2);
    expect(stored(dir)).toHaveLength(4);

    // Killed before all of them were stored: what is there is not drawn again, and another server would draw otherwise.
    const { pictures: file } = new RunPaths(dir, 'one');
    writeFileSync(file, readFileSync(file, 'utf8').split('\n').slice(0, 1).join('') + '\n');
    const salted = await started({ salt: 'other' });
    const again = await opened(dir, salted.url);
    expect(shown(await again.generate([...requests].reverse()))).toEqual(expected(requests));
    await again.close();
    expect(salted.asked).toHaveLength(0);
    expect(stored(dir)).toHaveLength(4);
  });

  it('that are edited are those of their sources', async () => {
    const stub = await started();
    const dir = folder();
    const images = await opened(dir, stub.url);
    const sources = await Promise.all([1, 2].map((seed) => encodePng(imageOf(digestOf('source', seed), 16, 16))));
    const requests = sources.map((source, i) => ({ key: `1/0/${i}`, prompt: 'make it red', seed: 5, source }));
    const found = shown(await images.generate(requests));
    expect(found).toEqual(sources.map((source) => digestOf('make it red', 5, sha256(source))));
    expect(shown(await images.generate(requests))).toEqual(found);
    await images.close();
    expect(stub.asked.filter(({ path }) => path === '/v1/images/edits')).toHaveLength(2);
  });

  it('that the server rejects are none, and that is stored, too', async () => {
    const stub = await started();
    const dir = folder();
    stub.fault = ({ fields }) =>
      fields['prompt'] === 'prompt 0'
        ? { kind: 'status', status: 400, body: { error: { message: 'refused', code: 'moderation_blocked' } } }
        : null;
    const requests = requestsOf(1, 3);
    for (const wanted of [4, 4]) {
      const images = await opened(dir, stub.url);
      expect(await images.generate(requests)).toMatchObject([
        { kind: 'unavailable', reason: 'refused', detail: 'HTTP 400 refused' },
        { kind: 'unavailable', reason: 'refused' },
        { kind: 'made' },
      ]);
      await images.close();
      expect(stub.asked).toHaveLength(wanted);
    }
  });
});

describe('a run whose images server', () => {
  it('rejects its settings does not begin', async () => {
    const stub = await started();
    const dir = folder();
    const closed = vi.spyOn(Exchanges.prototype, 'close');
    await expect(opened(dir, stub.url, { settings: { size: '4x4' } })).rejects.toThrow('HTTP 400 Invalid size 4x4');
    expect(closed).toHaveBeenCalledOnce();
    closed.mockRestore();
    expect(existsSync(new RunPaths(dir, 'one').mediaDir)).toBe(false);
  });
});
