import { afterEach, describe, expect, it, vi } from 'vitest';
import { loadConfig } from '../../src/config/load.js';
import { RunTrackings } from '../../src/launch/trackings.js';
import type { RunSettings } from '../../src/config/schema/run.js';
import { recordedWandbId } from '../../src/run/track/wandb/environment.js';
import { testFolders } from '../support/folder.js';
import { FakeRun } from '../run/track/run_directory.js';

const folder = testFolders('trackings');
afterEach(() => vi.unstubAllEnvs());

async function begun(base: string, name: string, ...sets: string[]): Promise<{ run: FakeRun; settings: RunSettings }> {
  const all = [`base_exp_dir="${base}"`, `run_name="${name}"`, ...sets];
  const { settings } = await loadConfig({ file: 'configs/text_plain.jsonnet', sets: all, env: {} });
  return { run: new FakeRun(base, name), settings };
}

describe('WANDB_RUN_ID', () => {
  it('means the run that was asked for, and none that it starts from', async () => {
    vi.stubEnv('WANDB_RUN_ID', 'mine');
    vi.stubEnv('WANDB_MODE', 'disabled');
    const base = folder();
    const trackings = new RunTrackings({ say: () => undefined, kill: undefined });
    const runs = [];
    const own = await begun(base, 'own', 'track.wandb={"project":"edits"}');
    trackings.setRequestedRun(own.settings);
    for (const name of ['parent', 'own']) {
      const { run, settings } = await begun(base, name, 'track.wandb={"project":"edits"}');
      trackings.attempt(settings).begin(() => undefined);
      runs.push(run);
    }
    await trackings.close();
    expect(runs.map(({ paths }) => recordedWandbId(paths))).toEqual([null, 'mine']);
  });

  it('is reported to do nothing where the run goes nowhere', async () => {
    vi.stubEnv('WANDB_RUN_ID', 'mine');
    const said: string[] = [];
    const trackings = new RunTrackings({ say: (line) => void said.push(line), kill: undefined });
    trackings.setRequestedRun((await begun(folder(), 'own')).settings);
    await trackings.close();
    expect(said).toEqual([expect.stringContaining('--set track.wandb.project=NAME')]);
  });

  it('is rejected before anything starts where W&B would not take it', async () => {
    vi.stubEnv('WANDB_RUN_ID', 'a/b');
    const { settings } = await begun(folder(), 'own');
    const trackings = new RunTrackings({ say: () => undefined, kill: undefined });
    expect(() => trackings.setRequestedRun(settings)).toThrow("found 'a/b'; allowed: 1 to 128 characters");
    await trackings.close();
  });
});
