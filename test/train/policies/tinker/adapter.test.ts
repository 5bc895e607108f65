/** The copy of the adapter that checkpoints hold of what a training server trains. */
import { afterAll, describe, expect, it } from 'vitest';
import { StubTinker, type TinkerStubOptions } from './stub_tinker.js';
import { listening } from '../../../support/stub_server.js';
import { testFolders } from '../../../support/folder.js';
import { adapterCheckpoint } from '../exported.js';
import { archiveOf, skyrlAdapter } from './archived.js';
import { END, servedPolicy, VOCABULARY } from './served.js';

const newFolder = testFolders('served-adapter');
const stubs: StubTinker[] = [];
const started = async (options: Partial<TinkerStubOptions> = {}): Promise<StubTinker> => {
  const stub = await new StubTinker({ vocabulary: VOCABULARY, dialect: 'proto', ...options }).listen();
  stubs.push(stub);
  return stub;
};
afterAll(async () => void (await Promise.all(stubs.map((stub) => stub.close()))));

const fixture = (): Promise<Uint8Array> => archiveOf(skyrlAdapter(adapterCheckpoint(newFolder()).checkpoint));

describe('a checkpoint of a policy at a training server', () => {
  it('holds a copy of the adapter, which is fetched once for the same weights', async () => {
    const stub = await started({ archive: await fixture(), apiKey: 'secret' });
    const notes: string[] = [];
    const policy = servedPolicy(stub, { notes, apiKey: 'secret' });
    const files = await policy.files();
    const names = ['remote.json', 'adapter_config.json', 'adapter_model.safetensors', 'generation_config.json'];
    expect(Object.keys(files)).toEqual(names);
    expect(files['generation_config.json']).toBe(`{"eos_token_id":[${END}]}\n`);
    expect(JSON.parse(files['adapter_config.json'] as string)).toMatchObject({ base_model_name_or_path: 'base' });
    expect(await policy.files()).toEqual(files);
    expect(stub.requests.filter(({ path }) => path.endsWith('/archive')).length).toBe(1);
    // What was saved to be fetched is of no more use there.
    expect(stub.archived.size).toBe(0);
    expect(notes).toEqual([]);
    await policy.dispose();
  });

  it('takes the key to the server alone, and not to where its archives lie', async () => {
    const archive = await fixture();
    const keys: unknown[] = [];
    const store = await listening(({ headers }, response) => {
      keys.push(headers['x-api-key']);
      response.writeHead(200, { 'content-type': 'application/octet-stream' }).end(archive);
    });
    const stub = await started({ archive, apiKey: 'secret' });
    const away = { kind: 'status', status: 200, body: { url: `${store.url}/signed?for=1`, expires: 'soon' } } as const;
    stub.fault = ({ path }) => (path.endsWith('/archive') ? away : null);
    const policy = servedPolicy(stub, { apiKey: 'secret' });
    expect(Object.keys(await policy.files())).toContain('adapter_model.safetensors');
    expect(keys).toEqual([undefined]);
    await policy.dispose();
    await store.close();
  });

  it('is fetched again where the answer to saving it was lost', async () => {
    const stub = await started({ archive: await fixture() });
    let lost = 0;
    stub.fault = ({ path, body }) =>
      path === '/save_weights_for_sampler' && body.includes('"path"') && lost++ === 0 ? { kind: 'lost' } : null;
    const policy = servedPolicy(stub);
    expect(Object.keys(await policy.files())).toContain('adapter_model.safetensors');
    expect([lost, stub.archived.size]).toEqual([2, 0]);
    await policy.dispose();
  });

  it.each<[string, () => Promise<Partial<TinkerStubOptions>>, RegExp]>([
    ['has no archives', async () => ({}), /do not contain the adapter: .*status 404: Not Found/],
    [
      'gives the whole model',
      async () => ({ archive: await archiveOf({ 'config.json': '{}', 'model.safetensors': 'x' }) }),
      /do not contain the adapter: the server returned the whole model, with the adapter merged into it/,
    ],
  ])('continues without it where the server %s, which is reported once', async (_, options, message) => {
    const stub = await started(await options());
    const notes: string[] = [];
    const policy = servedPolicy(stub, { notes });
    expect(Object.keys(await policy.files())).toEqual(['remote.json', 'generation_config.json']);
    expect(Object.keys(await policy.files())).toEqual(['remote.json', 'generation_config.json']);
    expect(notes).toEqual([expect.stringMatching(message)]);
    expect(stub.requests.filter(({ path }) => path.endsWith('/archive')).length).toBe(1);
    await policy.dispose();
  });
});
