import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { published, readArchive, setUpDatasets } from '../../scripts/setup_datasets.js';
import { ConfigError, DataError, EndpointError } from '../../src/core/errors.js';
import { openDatalist } from '../../src/data/datalist.js';
import { HubClient } from '../../src/models/hub/client.js';
import { StubHub } from '../models/hub/stub.js';
import { testFolders } from '../support/folder.js';

const newFolder = testFolders('datasets');
const COMMIT = 'c'.repeat(40);

/** An archive as EARL publishes them: samples, and a list beside them. */
function archive(name: string, change: (folder: string) => void = () => {}): Buffer {
  const root = newFolder();
  const folder = join(root, name);
  mkdirSync(join(folder, 'list'), { recursive: true });
  mkdirSync(join(folder, 'feature'));
  writeFileSync(join(folder, 'feature', 'a.pth'), 'x'.repeat(500));
  writeFileSync(join(folder, 'list', 'tokenized_datalist.json'), '{"prefix":"/gone","path_list":["a.pth"]}');
  change(folder);
  execFileSync('tar', ['-czf', join(root, 'out.tar.gz'), '-C', root, name]);
  return readFileSync(join(root, 'out.tar.gz'));
}

async function world(files: Record<string, Buffer>) {
  const stub = await new StubHub({
    'datasets/some/edits': { refs: { main: COMMIT }, commits: { [COMMIT]: files } },
  }).start();
  const patience = { retries: 0, backoffBaseMs: 1, backoffCapMs: 10, silenceMs: 5000, connectMs: 5000 };
  const environment = { endpoint: stub.endpoint, cacheDir: newFolder(), token: null, offline: false };
  const client = new HubClient(environment, patience);
  onTestFinished(async () => {
    await client.close();
    await stub.close();
  });
  const said: string[] = [];
  const folder = newFolder();
  const setUp = (...names: string[]): Promise<void> =>
    setUpDatasets(
      folder,
      names.map((name) => readArchive(`some/edits:${name}`)),
      client,
      (line) => said.push(line),
    );
  return { stub, folder, said, setUp, cacheDir: environment.cacheDir };
}

describe('setting up datasets', () => {
  it('fetches and unpacks them where configs look, and reports it', async () => {
    const { folder, said, setUp, stub, cacheDir } = await world({ 'validation.tar.gz': archive('validation') });
    await setUp('validation.tar.gz');
    expect(said).toEqual([
      'fetching validation.tar.gz of some/edits: 1 MB',
      `${join(folder, 'validation')} is ready: 1 datasets`,
    ]);
    // EARL's RL reads the list beside the samples.
    const list = openDatalist(join(folder, 'validation', 'feature'));
    expect(readFileSync(list.file(0), 'utf8')).toBe('x'.repeat(500));
    expect(readdirSync(cacheDir)).toEqual(['datasets--some--edits']);
    expect(readdirSync(folder)).toEqual(['validation']);
    const asked = stub.asked.length;
    await setUp('validation.tar.gz');
    expect(said.at(-1)).toBe(`${join(folder, 'validation')} already exists`);
    expect(stub.asked).toHaveLength(asked);
  });

  it('continue where they were cut', async () => {
    const { setUp, stub, folder } = await world({ 'train.tar.gz': archive('train') });
    stub.fault = ({ host }) => (host === 'cdn' ? { cutAfter: 150 } : null);
    await expect(setUp('train.tar.gz')).rejects.toThrow(EndpointError);
    expect(readdirSync(folder)).toEqual([]);
    stub.fault = () => null;
    await setUp('train.tar.gz');
    expect(stub.paths('cdn').at(-1)).toMatch(/train\.tar\.gz bytes=150-$/);
    expect(existsSync(join(folder, 'train', 'feature', 'a.pth'))).toBe(true);
  });

  it('rejects what is none, with one message', async () => {
    const link = (folder: string): void => symlinkSync('/etc/passwd', join(folder, 'feature', 'b.pth'));
    const { setUp, folder } = await world({
      'cut.tar.gz': archive('cut').subarray(0, 220),
      'link.tar.gz': archive('link', link),
    });
    await expect(setUp('cut.tar.gz')).rejects.toThrow(/^the archive cannot be unpacked: /);
    await expect(setUp('link.tar.gz')).rejects.toThrow(DataError);
    await expect(setUp('link.tar.gz')).rejects.toThrow(
      'the archive contains b.pth, which is neither a file nor a folder',
    );
    await expect(setUp('none.tar.gz')).rejects.toThrow('the dataset some/edits has no file none.tar.gz');
    expect(readdirSync(folder).filter((name) => !name.endsWith('.unpacking'))).toEqual([]);
  });

  it('reports that a dataset is missing, or the Hub is unreachable', async () => {
    const { stub, folder } = await world({});
    const patience = { retries: 0, backoffBaseMs: 1, backoffCapMs: 10, silenceMs: 5000, connectMs: 5000 };
    const client = new HubClient({ endpoint: stub.endpoint, cacheDir: folder, token: null, offline: false }, patience);
    onTestFinished(() => client.close());
    const other = setUpDatasets(folder, [readArchive('some/other:x.tar.gz')], client, () => {});
    await expect(other).rejects.toThrow('the Hub has no dataset datasets/some/other, or it is private');
    stub.fault = () => ({ status: 503 });
    const away = setUpDatasets(folder, [readArchive('some/edits:x.tar.gz')], client, () => {});
    await expect(away).rejects.toThrow('the Hub cannot be queried for datasets/some/edits: it answers 503');
  });

  it('reads names of archives', () => {
    expect(readArchive('a/b@v1:x/y.tar.gz')).toEqual({ dataset: 'a/b', revision: 'v1', file: 'x/y.tar.gz' });
    for (const wrong of ['a/b', 'a:b.tar.gz', 'a/b:c.zip']) expect(() => readArchive(wrong)).toThrow(ConfigError);
    expect(published.map(({ file }) => file)).toContain('emu3_tokenized_rl_100k.tar.gz');
  });
});
