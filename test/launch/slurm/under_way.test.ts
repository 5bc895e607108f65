import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { PlainView } from '../../../src/launch/live/view.js';
import { Launcher } from '../../../src/launch/launcher.js';
import { folderActivity } from '../../../src/launch/slurm/status.js';
import { acquireLock } from '../../../src/run/claim/lock.js';
import { RunPaths } from '../../../src/run/paths.js';
import { loadEvaluated } from '../../config/evaluated.js';
import { testFolder } from '../../support/folder.js';

afterEach(() => void vi.unstubAllEnvs());

describe('what is under way in a folder of runs', () => {
  it('is a run that waits for one that it starts from, until it ends', async () => {
    const base = join(testFolder('under-way'), 'runs');
    vi.stubEnv('APP__BASE_EXP_DIR', base);
    expect(await folderActivity(base)).toEqual([]);
    const config = await loadEvaluated({ file: 'configs/sft_s.jsonnet', overlays: ['configs/lib/tiny.libsonnet'] });
    const lock = acquireLock(new RunPaths(base, 'tiny_vq'));
    const stop = new AbortController();
    let found: unknown = null;
    const view = new PlainView((line) => {
      if (!line.includes('waiting for process')) return;
      // What it waits for will not end by itself here.
      void folderActivity(base).then((here) => {
        found = here;
        stop.abort();
      });
    });
    const launcher = new Launcher({ view, command: [], stop: stop.signal });
    expect(await launcher.run(config)).toEqual({ kind: 'interrupted', run_name: 'tiny_vq' });
    expect(found).toEqual([{ what: 'editrl run of sft_s', run: 'sft_s' }]);
    expect(await folderActivity(base)).toEqual([]);
    expect(readdirSync(base)).toEqual(['tiny_vq']);
    lock.release();
    await launcher.close();
  });
});
