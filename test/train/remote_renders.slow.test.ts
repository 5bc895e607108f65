import { readFileSync } from 'node:fs';
import { afterEach, describe, expect, it } from 'vitest';
import { EditrlError } from '../../src/core/errors.js';
import { encodePng, sha256 } from '../../src/core/images/image.js';
import type { MadeImage } from '../../src/train/environments/image_model.js';
import type { RenderRequest } from '../../src/train/environments/render_server.js';
import type { NamedRequest, ServerImages } from '../../src/train/environments/served.js';
import { soloGroup, type ProcessGroup } from '../../src/core/group/process_group.js';
import { RunPaths } from '../../src/run/paths.js';
import { editorEnvironment, type RenderEditor } from '../../src/config/schema/editor.js';
import { checkRenderServer, openRenderServer, openStoredRenders } from '../../src/train/remote/remote_images.js';
import { digestIn, imageOf } from './environments/images_api/stub_images.js';
import { renderDigest, StubRender, type StubRenderOptions } from './environments/render_server/stub_render.js';
import { fastClock } from '../rewards/judge/stub_judge.js';
import { testFolders } from '../support/folder.js';
import { onRanks } from './groups.js';

const folder = testFolders('renders');
/** A second passes in fifty milliseconds. */
const clock = fastClock(20);
const WIDTH = 16;
const LONGEST = { edit: 1500, blank: 1373 };
const closers: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0)) await close();
});

async function started(options: StubRenderOptions = {}): Promise<StubRender> {
  const stub = await StubRender.start(options);
  closers.push(() => stub.close());
  return stub;
}

function settingsOf(base_url: string, settings: object = {}): RenderEditor {
  const unguided = { guidance_scale: null, num_inference_steps: 20 };
  const given = { base_url, served_model: 'stub-editor', max_pixels: 1024, timeout_s: 60, ...unguided, ...settings };
  return editorEnvironment.parse({ type: 'render_server', ...given }) as RenderEditor;
}

interface Opening {
  readonly group?: ProcessGroup;
  readonly settings?: object;
  readonly lines?: string[];
}

/** The images of the run `one` in a folder. */
function opened(
  base_exp_dir: string,
  base_url: string,
  { group = soloGroup(), settings, lines = [] }: Opening = {},
): Promise<ServerImages<RenderRequest>> {
  const logger = { warn: (line: string) => lines.push(line), info: (line: string) => lines.push(line) } as never;
  const paths = new RunPaths(base_exp_dir, 'one');
  return openRenderServer(
    { run_name: 'one', base_exp_dir },
    settingsOf(base_url, settings),
    { width: WIDTH, longest: async () => LONGEST },
    {
      group,
      stop: new AbortController().signal,
      checkpoint: null,
      handle: group.rank > 0 ? null : { paths, setState: () => undefined },
      log: { logger },
      clock,
    },
  );
}

/** Requests with different states, seeds and sources. */
async function requestsOf(count: number): Promise<NamedRequest<RenderRequest>[]> {
  const size = { width: 32, height: 16 };
  const sources = await Promise.all([1, 2].map((at) => encodePng(imageOf(sha256(`source ${at}`), 32, 16))));
  return Array.from({ length: count }, (_, i) => {
    const states = new Float32Array(WIDTH * (1 + (i % 3))).fill(i);
    const bytes = new Uint8Array(states.buffer);
    return {
      key: `1/${Math.floor(i / 4)}/${i % 4}`,
      states: { dtype: 'F32', shape: [states.length / WIDTH, WIDTH], bytes },
      statesDigest: sha256(bytes),
      blank: null,
      source: sources[i % 2],
      size,
      seed: i,
    };
  });
}

const expected = (requests: readonly RenderRequest[], salt?: string): string[] =>
  requests.map(({ statesDigest, seed, source }) =>
    renderDigest(statesDigest, { seed, num_inference_steps: 20 }, sha256(source), salt),
  );
const shown = (made: readonly MadeImage[]): string[] =>
  made.map((one) => (one.kind === 'made' ? digestIn(one.image) : one.detail));
const stored = (dir: string): string[] =>
  readFileSync(new RunPaths(dir, 'one').pictures, 'utf8').split('\n').slice(0, -1);

async function messageOf(work: Promise<unknown>): Promise<string> {
  const error: unknown = await work.then(
    () => null,
    (found: unknown) => found,
  );
  if (!(error instanceof EditrlError)) throw new Error(`no message: ${String(error)}`);
  return error.toText().replace(/127\.0\.0\.1:\d+/g, 'HOST');
}

describe("a run's images from a render server", () => {
  it('are kept by rank 0, found again by a run that continues, and without states by one that only reads', async () => {
    const stub = await started();
    const dir = folder();
    const requests = await requestsOf(8);
    const made = await onRanks(2, async (group) => {
      const images = await opened(dir, stub.url, { group });
      const own = await images.generate(group.rank === 0 ? requests.slice(0, 2) : requests.slice(2, 6));
      await images.keep();
      await images.close();
      return shown(own);
    });
    expect(made.flat()).toEqual(expected(requests.slice(0, 6)));
    expect(stored(dir)).toHaveLength(6);

    const salted = await started({ salt: 'other' });
    const again = await opened(dir, salted.url);
    expect(shown(await again.generate(requests))).toEqual([
      ...expected(requests.slice(0, 6)),
      ...expected(requests.slice(6), 'other'),
    ]);
    await again.close();
    expect(salted.asked).toHaveLength(2);

    const offline = openStoredRenders({ run_name: 'one', base_exp_dir: dir }, settingsOf('http://127.0.0.1:9'));
    const wanted = requests
      .slice(0, 6)
      .map(({ key, source, size, seed, statesDigest }) => ({ key, source, size, seed, statesDigest }));
    expect(shown(await offline.generate(wanted))).toEqual(expected(requests.slice(0, 6)));
    const changed = { ...wanted[0], statesDigest: sha256('other states') };
    expect(await offline.generate([changed])).toMatchObject([{ kind: 'unavailable', reason: 'empty' }]);
    await offline.close();
  });
});

describe("a run's images that are guided", () => {
  const settings = { guidance_scale: 4 };
  /** With states of a blank instruction, of another length, that follow the source. */
  async function guidedRequests(
    count: number,
  ): Promise<(NamedRequest<RenderRequest> & { readonly blankDigest: string })[]> {
    return (await requestsOf(count)).map((one, i) => {
      const bytes = new Uint8Array(new Float32Array(2 * WIDTH).fill(-1 - (i % 2)).buffer);
      return { ...one, blank: { dtype: 'F32', shape: [2, WIDTH], bytes }, blankDigest: sha256(bytes) };
    });
  }
  const digests = (requests: Awaited<ReturnType<typeof guidedRequests>>): string[] =>
    requests.map(({ statesDigest, seed, source, blankDigest }) =>
      renderDigest(statesDigest, { seed, num_inference_steps: 20, ...settings }, sha256(source), '', blankDigest),
    );

  it('are drawn by both states, stored by both, and found again without them', async () => {
    const stub = await started();
    const dir = folder();
    const requests = await guidedRequests(4);
    const images = await opened(dir, stub.url, { settings });
    expect(shown(await images.generate(requests))).toEqual(digests(requests));
    await images.close();
    // The first was the longest edit of the run, and nobody's.
    expect(stub.asked.map(({ tokens }) => tokens).slice(0, 2)).toEqual([
      [LONGEST.edit, LONGEST.blank],
      [1, 2],
    ]);
    expect(stub.asked.map(({ fields }) => [fields['protocol'], fields['guidance_scale']])).toEqual(
      Array.from({ length: 5 }, () => ['editrl-render/2', 4]),
    );

    const again = await opened(dir, stub.url, { settings });
    expect(shown(await again.generate(requests))).toEqual(digests(requests));
    await again.close();
    expect(stub.asked).toHaveLength(5);
    const offline = openStoredRenders(
      { run_name: 'one', base_exp_dir: dir },
      settingsOf('http://127.0.0.1:9', settings),
    );
    const wanted = requests.map(({ key, source, size, seed, statesDigest, blankDigest }) => {
      return { key, source, size, seed, statesDigest, blankDigest };
    });
    expect(shown(await offline.generate(wanted))).toEqual(digests(requests));
    const others = [{ ...wanted[0], blankDigest: sha256('other states') }];
    expect(await offline.generate(others)).toMatchObject([{ kind: 'unavailable', reason: 'empty' }]);
    await offline.close();
  });

  it('are rejected by a server of the first version, which draws unguided ones as before', async () => {
    const stub = await started({ unguided: true });
    const message =
      "it has no guidance (only protocol 'editrl-render/1'), but environment.guidance_scale is set: start a server with protocol 'editrl-render/2', or set it to null";
    expect(await messageOf(opened(folder(), stub.url, { settings }))).toContain(message);
    expect(await messageOf(checkRenderServer(settingsOf(stub.url, settings), WIDTH))).toContain(message);
    expect(stub.asked).toEqual([]);
    const images = await opened(folder(), stub.url);
    const requests = await requestsOf(2);
    expect(shown(await images.generate(requests))).toEqual(expected(requests));
    await images.close();
    expect(stub.asked[0].tokens).toEqual([LONGEST.edit]);
  });
});

describe('a render server', () => {
  it.each([
    [{ width: 24 }, 'its model stub-editor expects hidden states of width 24, got 16'],
    [{ model: 'another' }, `it serves "another", not 'stub-editor'`],
    [{ apiKey: 'a-key' }, 'HTTP 401 no such key'],
  ])('with %j is rejected before anything is drawn', async (options, message) => {
    const stub = await started(options);
    expect(await messageOf(opened(folder(), stub.url))).toContain(
      `http://HOST/v1: the render server returned no image: ${message}`,
    );
    expect(stub.asked).toEqual([]);
    expect(await messageOf(checkRenderServer(settingsOf(stub.url), WIDTH))).toContain(
      `no render server is ready: http://HOST/v1: ${message}`,
    );
  });
});
