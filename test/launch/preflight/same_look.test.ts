/** What `check` says is in the way of a run is what `run` refuses it for, and all of it is said at once. */
import { cpSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { loadConfig, type LoadedConfig } from '../../../src/config/load.js';
import { noView } from '../../../src/launch/live/view.js';
import { Preflight } from '../../../src/launch/preflight/preflight.js';
import { Launcher } from '../../../src/launch/launcher.js';
import { claimRun } from '../../../src/run/claim/claim.js';
import { claimRequest } from '../../../src/run/claim/claim_request.js';
import { saveCheckpoint } from '../../../src/run/checkpoints.js';
import { testFolders } from '../../support/folder.js';

const newFolder = testFolders('same-look');
afterEach(() => void vi.unstubAllEnvs());

async function load(file: string, sets: readonly string[], overlays: readonly string[] = []): Promise<LoadedConfig> {
  const folder = newFolder();
  vi.stubEnv('APP__BASE_EXP_DIR', join(folder, 'runs'));
  vi.stubEnv('APP__DATA_DIR', join(folder, 'data'));
  vi.stubEnv('APP__REWARD_FUNCTION_API_BASE', 'http://127.0.0.1:1');
  return loadConfig({ file, sets, overlays });
}

async function refusalOf(config: LoadedConfig): Promise<string> {
  const launcher = new Launcher({ view: noView, command: ['run'], stop: new AbortController().signal });
  try {
    return await launcher.run(config).then(
      () => 'no refusal',
      (error: unknown) => (error as { toText(): string }).toText(),
    );
  } finally {
    await launcher.close();
  }
}

/** What is in the way by `check`, after it was seen that `run` says each of it. */
async function saidByBoth(config: LoadedConfig): Promise<string[]> {
  const found = (await new Preflight().check([config])).obstacles.map(({ error }) => error.toText());
  const refused = await refusalOf(config);
  for (const text of found) expect(refused).toContain(text);
  if (found.length > 1) expect(refused).toContain(`${found.length} problems found; nothing was started`);
  return found;
}

describe('check and run', () => {
  it("both look at what describes a term's model of the Hub, before its weights are fetched", async () => {
    const cache = newFolder();
    const commit = 'a'.repeat(40);
    const snapshot = join(cache, 'models--some--siglip', 'snapshots', commit);
    cpSync('test/rewards/terms/clip/fixtures/tiny_siglip', snapshot, { recursive: true });
    rmSync(join(snapshot, 'model.safetensors'));
    vi.stubEnv('HF_HUB_CACHE', cache);
    vi.stubEnv('HF_HUB_OFFLINE', '1');
    const model = { hub: 'some/siglip', revision: commit };
    const terms = ['reward.mode=null', `reward.terms=${JSON.stringify([{ name: 'clip', weight: 1, model }])}`];
    const config = await load('configs/prompt_enhance.jsonnet', terms);
    const absent = expect.stringContaining('some/siglip at aaaaaaaaaaaa was not downloaded') as string;
    expect(await saidByBoth(config)).toEqual([absent]);
    writeFileSync(join(snapshot, 'config.json'), JSON.stringify({ model_type: 'siglip2' }));
    const otherwise = expect.stringContaining('model_type "siglip2" is not supported; allowed: clip, siglip') as string;
    expect((await saidByBoth(config)).sort()).toEqual(expect.arrayContaining([absent, otherwise]));
  });

  it('both say that a finished run was made otherwise, and that its module cannot be used', async () => {
    const module = join(newFolder(), 'own.mjs');
    writeFileSync(module, 'export default () => 1;');
    const terms = [
      'reward.mode=null',
      'reward.also_compute=[]',
      `reward.terms=[{"name":"module","weight":1,"module":"${module}"}]`,
    ];
    const config = await load('configs/text_plain.jsonnet', terms, ['configs/lib/text_tiny.libsonnet']);
    const handle = claimRun(claimRequest(config, { command: [], versions: {} }));
    const { num_iterations: last } = config.settings;
    saveCheckpoint(handle.paths, last, { 'trainer.json': '1' });
    handle.setState({ state: 'finished', iteration: last });
    handle.release();
    writeFileSync(module, 'export default {\n  score( { }\n};');
    const changed = { ...config, settings: { ...config.settings, seed: 5 }, resultHash: 'another' };
    const found = await saidByBoth(changed);
    expect(found).toEqual([
      expect.stringMatching(/was started with other/),
      expect.stringMatching(/own\.mjs: the reward module cannot be used: SyntaxError: .*own\.mjs:3\)/),
    ]);
  });
});
