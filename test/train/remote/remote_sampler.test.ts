import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { RunPaths } from '../../../src/run/paths.js';
import { adapterFolders } from '../../../src/train/remote/remote_sampler.js';

describe("the folder of a run's adapters, which is removed whole", () => {
  const paths = new RunPaths('/shared/runs', 'one');
  const folders = (adapter_dir: string | null, server_adapter_dir: string | null = null, of = paths) =>
    adapterFolders({ adapter_dir, server_adapter_dir }, of);

  it("is never a run's directory, though adapters are written where runs are", () => {
    const { folder, seenAs } = folders('/shared/runs');
    expect(folder).not.toBe(paths.dir);
    expect(folder).toMatch(/^\/shared\/runs\/editrl-one-[0-9a-f]{8}$/);
    expect(seenAs).toBe(folder);
  });

  it('is another one for a run of the same name in another folder', () => {
    const other = new RunPaths('/home/other/runs', 'one');
    expect(folders('/shared/adapters', null, other).folder).not.toBe(folders('/shared/adapters').folder);
  });

  it("is the run's own if none is named", () => {
    expect(folders(null)).toEqual({ folder: paths.adaptersDir, seenAs: paths.adaptersDir });
  });

  it.each([
    [
      '/shared/adapters',
      '/mnt/adapters',
      (folder: string) => join('/mnt/adapters', folder.slice('/shared/adapters'.length)),
    ],
    [null, '/mnt/one', () => '/mnt/one'],
  ] as const)('%s is found where the server calls it %s', (here, there, expected) => {
    const { folder, seenAs } = folders(here, there);
    expect(seenAs).toBe(expected(folder));
  });
});
