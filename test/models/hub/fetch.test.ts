import { lstatSync, mkdirSync, readdirSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { CheckpointError, ConfigError, EndpointError, RunError } from '../../../src/core/errors.js';
import { type HubEnvironment, cachedModel, hubModelAt } from '../../../src/models/hub/cache.js';
import { HubClient } from '../../../src/models/hub/client.js';
import { fetchModel, lookUp, type FoundModel, type RequestedModel } from '../../../src/models/hub/fetch.js';
import { testFolders } from '../../support/folder.js';
import { digest, gitHash, StubHub, TOKEN, type StubModel } from './stub.js';

const newFolder = testFolders('hub');
const COMMIT = 'a'.repeat(40);
const LATER = 'b'.repeat(40);
const bytes = (length: number, seed: number): Buffer => Buffer.from(Array.from({ length }, (_, i) => (i * seed) % 251));

const WEIGHTS = bytes(5000, 7);
const CONFIG = '{"model_type":"llama"}';
const plain: StubModel = {
  refs: { main: COMMIT, 'refs/pr/1': LATER },
  commits: {
    [COMMIT]: {
      'config.json': CONFIG,
      'tokenizer.json': `{"large":"${'x'.repeat(400)}"}`,
      'chat_template.jinja': '{{ messages }}',
      'README.md': 'A model',
      'model.safetensors': WEIGHTS,
      'pytorch_model.bin': bytes(3000, 3),
      'modeling_other.py': 'print(1)',
      'onnx/model.onnx': bytes(3000, 5),
    },
    [LATER]: { 'config.json': CONFIG, 'model.safetensors': bytes(5000, 11) },
  },
};

interface Ways {
  readonly models?: Record<string, StubModel>;
  readonly token?: string | null;
  readonly offline?: boolean;
  readonly cacheDir?: string;
}

async function hub({
  models = { 'some/model': plain },
  token = null,
  offline = false,
  cacheDir = newFolder(),
}: Ways = {}) {
  const own = Object.entries(models).map(([name, model]) => [name, { ...model, refs: { ...model.refs } }]);
  const stub = await new StubHub(Object.fromEntries(own) as typeof models).start();
  const environment: HubEnvironment = { endpoint: stub.endpoint, cacheDir, token, offline };
  const retryPolicy = { retries: 2, backoffBaseMs: 1, backoffCapMs: 10, silenceMs: 5000, connectMs: 5000 };
  const client = new HubClient(environment, retryPolicy);
  onTestFinished(async () => {
    await client.close();
    await stub.close();
  });
  const said: string[] = [];
  const telling = { say: (line: string) => void said.push(line) };
  const want = (change: Partial<RequestedModel> & { hub?: string; revision?: string } = {}): Promise<FoundModel> => {
    const { hub: name = 'some/model', revision = 'main', ...rest } = change;
    return lookUp(client, { reference: { hub: name, revision }, need: 'model', pinned: null, ...rest }, telling);
  };
  const get = async (change: Parameters<typeof want>[0] = {}): Promise<FoundModel> => {
    const found = await want(change);
    await fetchModel(client, found, telling);
    return found;
  };
  return { stub, environment, client, want, get, said, repository: join(cacheDir, 'models--some--model') };
}

describe('a model of the Hub', () => {
  it('comes into the cache in its layout, and nothing of it that is not read', async () => {
    const { stub, get, repository, environment } = await hub({ token: TOKEN });
    const { folder, commit, bytesLeft } = await get();
    expect([commit, folder, bytesLeft]).toEqual([COMMIT, join(repository, 'snapshots', COMMIT), WEIGHTS.length]);
    expect(readdirSync(folder).sort()).toEqual([
      'README.md',
      'chat_template.jinja',
      'config.json',
      'model.safetensors',
      'tokenizer.json',
    ]);
    expect(readFileSync(join(folder, 'model.safetensors')).equals(WEIGHTS)).toBe(true);
    // A large file goes by its SHA-256, a small one by the hash that git has of it.
    expect(readlinkSync(join(folder, 'model.safetensors'))).toBe(`../../blobs/${digest(WEIGHTS)}`);
    expect(readlinkSync(join(folder, 'config.json'))).toBe(`../../blobs/${gitHash(Buffer.from(CONFIG))}`);
    expect(readFileSync(join(repository, 'refs', 'main'), 'utf8')).toBe(COMMIT);
    expect(cachedModel({ hub: 'some/model', revision: 'main' }, 'model', null, environment)).toEqual({
      folder,
      commit,
    });
    expect(hubModelAt(folder)).toEqual({ hub: 'some/model', revision: COMMIT });
    // The token is the Hub's alone.
    expect(stub.asked.filter(({ host }) => host === 'hub').every(({ token }) => token === TOKEN)).toBe(true);
    expect(stub.asked.filter(({ host }) => host === 'cdn').map(({ token }) => token)).toEqual([null, null]);
  });

  it('that is there already has nothing written again', async () => {
    const { get, repository } = await hub();
    await get();
    const files = (readdirSync(repository, { recursive: true }) as string[]).map((name) => join(repository, name));
    const written = (): readonly number[] => files.map((file) => lstatSync(file).ino);
    const before = written();
    await get();
    expect(written()).toEqual(before);
  });

  it('is described before its weights are fetched', async () => {
    const { want, stub } = await hub();
    const { folder, left } = await want();
    expect(readdirSync(folder)).not.toContain('model.safetensors');
    expect(left.map(({ path }) => path)).toEqual(['model.safetensors']);
    expect(stub.paths('cdn')).toEqual(['/some/model/tokenizer.json']);
  });

  it('of which the tokenizer alone is read leaves its weights there', async () => {
    const { get, stub, environment } = await hub();
    const { folder } = await get({ need: 'tokenizer' });
    expect(readdirSync(folder)).toContain('tokenizer.json');
    expect(stub.paths('cdn')).not.toContain('/some/model/model.safetensors');
    const reference = { hub: 'some/model', revision: 'main' };
    expect(cachedModel(reference, 'tokenizer', null, environment)).not.toBeNull();
    expect(cachedModel(reference, 'model', null, environment)).toBeNull();
  });

  it('in several files has those that its index names', async () => {
    const files = {
      'config.json': CONFIG,
      'model.safetensors.index.json': JSON.stringify({
        weight_map: { a: 'model-1.safetensors', b: 'model-2.safetensors' },
      }),
      'model-1.safetensors': bytes(300, 2),
      'model-2.safetensors': bytes(300, 3),
      'consolidated.safetensors': bytes(600, 5),
      'pytorch_model.bin.index.json': '{}',
    };
    const { get } = await hub({ models: { 'some/model': { refs: { main: COMMIT }, commits: { [COMMIT]: files } } } });
    const { folder } = await get();
    expect(readdirSync(folder).sort()).toEqual([
      'config.json',
      'model-1.safetensors',
      'model-2.safetensors',
      'model.safetensors.index.json',
    ]);
  });

  it('stays what it was where a run has begun with it, without being asked for again', async () => {
    const { get, stub } = await hub();
    await get();
    stub.models['some/model'].refs['main'] = LATER;
    const before = stub.asked.length;
    expect(await get({ pinned: COMMIT })).toMatchObject({ commit: COMMIT, left: [] });
    expect(stub.asked).toHaveLength(before);
    expect((await get()).commit).toBe(LATER);
    expect((await get({ revision: 'refs/pr/1' })).commit).toBe(LATER);
  });

  it('that was downloaded is used where the Hub is unreachable, and that is reported', async () => {
    const { get, stub, want } = await hub();
    await get();
    await stub.close();
    const { commit, note } = await want();
    expect(commit).toBe(COMMIT);
    expect(note).toMatch(/^the Hub cannot be queried for some\/model: ECONNREFUSED; using the cached copy$/);
  });

  it('is not requested offline, and is used if it is in the cache', async () => {
    const first = await hub();
    await first.get();
    const there = await hub({ offline: true, cacheDir: first.environment.cacheDir });
    expect(await there.get()).toMatchObject({ commit: COMMIT, note: null });
    const nowhere = await hub({ offline: true });
    await expect(nowhere.get()).rejects.toThrow(CheckpointError);
    await expect(nowhere.get()).rejects.toThrow('some/model was not downloaded, and HF_HUB_OFFLINE disables');
    expect([...there.stub.asked, ...nowhere.stub.asked]).toEqual([]);
  });

  it('is downloaded by one process at a time', async () => {
    const { get, stub, said } = await hub();
    const found = await Promise.all([get(), get()]);
    expect(found.map(({ commit }) => commit)).toEqual([COMMIT, COMMIT]);
    expect(stub.paths('cdn').filter((path) => path.endsWith('model.safetensors'))).toHaveLength(1);
    expect(said).toContain('another process is downloading some/model: waiting for it');
  });
});

describe('a download that breaks', () => {
  const ofWeights = (path: string): boolean => path.endsWith('model.safetensors');

  it('continues where it was, in the same process', async () => {
    const { get, stub } = await hub();
    let cuts = 0;
    stub.fault = ({ host, path }) => (host === 'cdn' && ofWeights(path) && cuts++ < 4 ? { cutAfter: 1000 } : null);
    const { folder } = await get();
    expect(readFileSync(join(folder, 'model.safetensors')).equals(WEIGHTS)).toBe(true);
    const ranges = stub.asked.filter(({ host, path }) => host === 'cdn' && ofWeights(path)).map(({ range }) => range);
    expect(ranges).toHaveLength(5);
    expect(ranges.slice(1)).not.toContain(null);
  });

  it.each([
    ['goes on where a killed process was', null, 'bytes=1234-'],
    ['begins anew where the server knows no ranges', { whole: true }, 'bytes=1234-'],
  ] as const)('%s', async (_, fault, range) => {
    const { get, stub, repository } = await hub();
    const begun = join(repository, 'blobs', `${digest(WEIGHTS)}.editrl.incomplete`);
    mkdirSync(dirname(begun), { recursive: true });
    writeFileSync(begun, WEIGHTS.subarray(0, 1234));
    stub.fault = ({ path }) => (ofWeights(path) ? fault : null);
    const { folder, bytesLeft } = await get();
    expect(bytesLeft).toBe(WEIGHTS.length - 1234);
    expect(readFileSync(join(folder, 'model.safetensors')).equals(WEIGHTS)).toBe(true);
    expect(stub.asked.filter(({ host, path }) => host === 'cdn' && ofWeights(path)).map((one) => one.range)).toEqual([
      range,
    ]);
  });

  it.each([
    [{ garbled: true }, /model.safetensors of some\/model is not the listed file: its digest is not the one/],
    [{ endAfter: 0 }, /it sends 0 of the 5000 bytes of model.safetensors/],
    [{ status: 503 }, /it answers 503/],
    [{ status: 429, retryAfter: '86400' }, /it answers 429 and requests a pause of 86400 s/],
  ] as const)('by %j says so, and leaves nothing that looks whole', async (fault, message) => {
    const { get, stub, repository, environment } = await hub();
    stub.fault = ({ host, path }) => (host === 'cdn' && ofWeights(path) ? fault : null);
    const failure = get();
    await expect(failure).rejects.toThrow(EndpointError);
    await expect(failure).rejects.toThrow(message);
    expect(readdirSync(join(repository, 'blobs'))).not.toContain(digest(WEIGHTS));
    expect(cachedModel({ hub: 'some/model', revision: 'main' }, 'model', null, environment)).toBeNull();
    stub.fault = () => null;
    expect(readFileSync(join((await get()).folder, 'model.safetensors')).equals(WEIGHTS)).toBe(true);
  });

  it('while the model is looked up is looked up again', async () => {
    const { get, stub } = await hub();
    let cuts = 0;
    stub.fault = ({ path }) => (path.includes('/revision/') && cuts++ === 0 ? { body: '{"id"', cut: true } : null);
    expect((await get()).commit).toBe(COMMIT);
    expect(cuts).toBe(2);
  });

  it('because the disk has no room is not begun', async () => {
    const { want, client, stub } = await hub();
    const failure = fetchModel(client, await want(), { say: () => undefined }, () => 1000);
    await expect(failure).rejects.toThrow(RunError);
    await expect(failure).rejects.toThrow('1 MB are to be fetched, and the disk has 1 MB free');
    expect(stub.paths('cdn').filter(ofWeights)).toEqual([]);
  });
});

describe('a model that cannot be had', () => {
  const gated = { ...plain, gated: true };
  const pickles = { 'config.json': CONFIG, 'pytorch_model.bin': bytes(300, 2) };
  const pickled = { refs: { main: COMMIT }, commits: { [COMMIT]: pickles } };
  const cases: readonly [string, Ways, object, new (...args: never[]) => Error, RegExp, RegExp][] = [
    ['gated, without a token', { models: { 'some/model': gated } }, {}, EndpointError, /gated/, /conditions.*HF_TOKEN/],
    [
      'asked for with a token that is none',
      { token: 'hf_wrong' },
      {},
      EndpointError,
      /rejected the token/,
      /Set HF_TOKEN/,
    ],
    ['of nobody', { token: TOKEN }, { hub: 'no/thing' }, ConfigError, /no model no\/thing/, /a token of an account/],
    ['of a revision that is not there', {}, { revision: 'mian' }, ConfigError, /no revision 'mian'/, /Name a branch/],
    ['in pickles alone', { models: { 'some/model': pickled } }, {}, CheckpointError, /are pickles/, /Name a revision/],
  ];

  it.each(cases)('%s', async (_, ways, wanted, kind, message, next) => {
    const { get } = await hub(ways);
    const error = await get(wanted).then(
      () => null,
      (cause: unknown) => cause as Error & { next?: string },
    );
    expect(error).toBeInstanceOf(kind);
    expect(error?.message).toMatch(message);
    expect(error?.next).toMatch(next);
  });

  it('because the Hub is unreachable says where it was looked for', async () => {
    const { get, stub } = await hub();
    await stub.close();
    await expect(get()).rejects.toThrow('the Hub cannot be queried for some/model: ECONNREFUSED');
  });

  it('whose list leads out of its folder brings nothing there', async () => {
    const files = { 'config.json': CONFIG, '../../evil.json': '{}', 'model.safetensors': WEIGHTS };
    const { get, environment } = await hub({
      models: { 'some/model': { refs: { main: COMMIT }, commits: { [COMMIT]: files } } },
    });
    await get();
    expect(() => lstatSync(join(environment.cacheDir, 'models--some--model', 'evil.json'))).toThrow('ENOENT');
  });

  it.each([
    ['a page instead of JSON', '<html>Please log in</html>', /no JSON for .*Please log in/],
    [
      'a commit that is a path',
      '{"id":"some/model","sha":"../../../evil"}',
      /'..\/..\/..\/evil' as the commit of some\/model/,
    ],
  ])('because what answers sends %s says so, and writes nothing', async (_, body, message) => {
    const { get, stub, environment } = await hub();
    stub.fault = ({ path }) => (path.includes('/revision/') ? { body } : null);
    const error = await get().catch((cause: unknown) => cause as EndpointError);
    expect(error).toBeInstanceOf(EndpointError);
    expect(error).toMatchObject({ message: expect.stringMatching(message) as string });
    expect(readdirSync(environment.cacheDir)).toEqual([]);
  });

  it.each([
    ['git has', { type: 'file', path: 'config.json', size: 4, oid: '../../../evil' }],
    ['LFS has', { type: 'file', path: 'config.json', size: 4, oid: '1'.repeat(40), lfs: { oid: '../evil', size: 4 } }],
  ])('whose list has a path in place of the digest that %s', async (_, file) => {
    const { get, stub } = await hub();
    stub.fault = ({ path }) => (path.includes('/tree/') ? { body: JSON.stringify([file]) } : null);
    await expect(get()).rejects.toThrow(/evil' as the digest of config.json of some\/model/);
  });
});
