import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { HubEnvironment } from '../../../src/models/hub/cache.js';
import { HubWriter, type Publication, type Published } from '../../../src/models/hub/writer.js';
import { testFolders } from '../../support/folder.js';
import { PublishingStub, WRITE_TOKEN } from './publishing_stub.js';

const folder = testFolders('hub-writer');
let stub: PublishingStub;

beforeEach(async () => {
  stub = await new PublishingStub().start();
});
afterEach(async () => {
  await stub.close();
  expect(stub.wrong).toEqual([]);
});

async function publish(
  given: Partial<Publication> = {},
  environment: Partial<HubEnvironment> = {},
): Promise<Published> {
  const dir = folder();
  const files = { 'model.safetensors': 'weights'.repeat(1000), 'README.md': '# card' };
  for (const [name, text] of Object.entries(files)) writeFileSync(join(dir, name), text);
  const writer = new HubWriter(
    { endpoint: stub.endpoint, cacheDir: dir, token: WRITE_TOKEN, offline: false, ...environment },
    { retries: 3, backoffBaseMs: 1, backoffCapMs: 10 },
  );
  try {
    return await writer.publish({
      repository: 'me/edits',
      branch: 'main',
      private: true,
      title: 'iteration 5',
      files: Object.keys(files).map((path) => ({ path, from: join(dir, path) })),
      removes: (path) => path.endsWith('.safetensors'),
      ...given,
    });
  } finally {
    await writer.close();
  }
}

describe('HubWriter', () => {
  it('makes the repository and commits the files, large ones by the storage', async () => {
    const published = await publish();
    expect(published).toMatchObject({ repository: 'me/edits', url: `${stub.endpoint}/me/edits` });
    expect(published.commit).toMatch(/^[0-9a-f]{40}$/);
    expect(stub.repositories.get('me/edits')?.visibility).toBe('private');
    expect([...stub.files('me/edits').keys()]).toEqual(['.gitattributes', 'model.safetensors', 'README.md']);
    expect(String(stub.files('me/edits').get('model.safetensors'))).toBe('weights'.repeat(1000));
    expect(stub.asked.filter((what) => what.includes('storage'))).toHaveLength(1);
  });

  it('puts a checkpoint on its own branch, and what is there already goes up no second time', async () => {
    await publish();
    expect(await publish({ branch: 'ckpt_000100', private: false })).toMatchObject({
      url: `${stub.endpoint}/me/edits/tree/ckpt_000100`,
    });
    await publish({ branch: 'ckpt_000100' });
    expect(stub.repositories.get('me/edits')?.commits).toEqual(
      ['main', 'ckpt_000100', 'ckpt_000100'].map((branch) => ({ branch, title: 'iteration 5' })),
    );
    expect(stub.asked.filter((what) => what.includes('storage'))).toHaveLength(1);
  });

  it('removes weights that are not among the files, and nothing else', async () => {
    await publish();
    const files = stub.files('me/edits');
    files.set('model-00001-of-00002.safetensors', Buffer.from('old'));
    files.set('LICENSE', Buffer.from('theirs'));
    await publish();
    expect([...files.keys()].sort()).toEqual(['.gitattributes', 'LICENSE', 'README.md', 'model.safetensors']);
  });

  it("takes the token's account if no owner is named", async () => {
    expect(await publish({ repository: 'edits' })).toMatchObject({ repository: 'me/edits' });
  });

  it('continues if it may not make a repository that is there', async () => {
    await publish();
    stub.mayCreate = false;
    stub.repositories.set('team/edits', {
      visibility: 'private',
      branches: new Map([['main', new Map<string, Buffer>()]]),
      commits: [],
    });
    stub.fault = (what) => (what === 'POST /api/repos/create' ? { status: 403 } : null);
    await publish({ repository: 'team/edits' });
    expect([...stub.files('team/edits').keys()]).toEqual(['model.safetensors', 'README.md']);
  });

  it('tries again what may pass', async () => {
    const seen = new Set<string>();
    stub.fault = (what) => {
      if (seen.has(what)) return null;
      seen.add(what);
      return what.includes('storage') || what.includes('whoami') ? 'lost' : { status: 503 };
    };
    await publish({ repository: 'edits', branch: 'ckpt_000005' });
    expect(stub.files('me/edits', 'ckpt_000005').size).toBe(3);
  });

  it.each([
    ['offline', {}, { offline: true }, 'HF_HUB_OFFLINE disables requests'],
    ['no token', {}, { token: null }, 'HF_TOKEN: publishing on the Hub needs a token'],
    ['a wrong token', {}, { token: 'hf_other' }, 'rejected the token'],
    ['a wrong name', { repository: 'a/b/c' }, {}, "'a/b/c' cannot name a repository"],
    ['nobody there', {}, { endpoint: 'http://127.0.0.1:9' }, 'http://127.0.0.1:9: the Hub cannot be reached'],
  ])('reports what is wrong: %s', async (_what, given, environment, message) => {
    const error = await publish(given, environment).catch((cause: unknown) => cause as { toText(): string });
    expect((error as { toText(): string }).toText()).toContain(message);
    expect((error as { toText(): string }).toText()).not.toContain('hf_');
  });

  it('says it where the token may not write', async () => {
    stub.mayCreate = false;
    await expect(publish()).rejects.toMatchObject({ message: 'the token has no write access', exitCode: 3 });
  });

  it('reports what the Hub says', async () => {
    stub.fault = (what) => (what.includes('/commit/') ? { status: 422 } : null);
    await expect(publish()).rejects.toMatchObject({
      message: expect.stringContaining('422: too much to do') as string,
    });
  });
});
