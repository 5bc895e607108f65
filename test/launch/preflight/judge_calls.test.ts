import { describe, expect, it } from 'vitest';
import type { LoadedConfig } from '../../../src/config/load.js';
import { Preflight } from '../../../src/launch/preflight/preflight.js';
import { claimRun } from '../../../src/run/claim/claim.js';
import { claimRequest } from '../../../src/run/claim/claim_request.js';
import { judgementForm } from '../../../src/rewards/score/types.js';
import { Exchanges } from '../../../src/run/exchanges.js';
import { loadEvaluated } from '../../config/evaluated.js';
import { testFolders } from '../../support/folder.js';

const newFolder = testFolders('preflight-calls');
/** 256 answers of two questions, in 80 iterations; 1024 in each of three evaluations. */
const ALL = 80 * 512 + 3 * 1024;

function run(folder: string, most: number | null, ...sets: readonly string[]): Promise<LoadedConfig> {
  return loadEvaluated({
    file: 'configs/sft_s__rl_s.jsonnet',
    overlays: ['configs/lib/tiny.libsonnet'],
    sets: [`reward.max_judge_calls=${most}`, ...sets],
    env: { ...process.env, APP__BASE_EXP_DIR: `${folder}/runs`, APP__DATA_DIR: `${folder}/data` },
  });
}

async function found(config: LoadedConfig, startOver: ReadonlySet<LoadedConfig> = new Set()): Promise<string[]> {
  const { obstacles } = await new Preflight().check([config], { startOver, claimed: [] });
  return obstacles.map(({ error }) => error.toText()).filter((text) => text.includes('max_judge_calls'));
}

/** Leaves a run that has reached an iteration and stored these judgements. */
function begun(config: LoadedConfig, iteration: number, judgements: readonly (readonly [string, number])[]): void {
  const handle = claimRun(claimRequest(config, { command: [], versions: {} }));
  const store = new Exchanges(handle.paths.judgements, judgementForm, { isOwner: true, from: null });
  for (const [key, attempts] of judgements) {
    store.put({ key, requestHash: 'h', model: 'm', text: '', problem: null, scores: [], attempts, latencyMs: 1 });
  }
  store.close();
  handle.setState({ state: 'interrupted', iteration, reason: null });
  handle.release();
}

describe('a limit to the requests that judges may get from a run', () => {
  it('is in the way of one that has more to ask', async () => {
    const folder = newFolder();
    expect(await found(await run(folder, null))).toEqual([]);
    expect(await found(await run(folder, ALL))).toEqual([]);
    expect(await found(await run(folder, ALL - 1))).toEqual([
      'reward.max_judge_calls: sft_s__rl_s needs about 44,032 judge requests for its last 80 iterations; allowed: 44,031 in total\n' +
        '  Set reward.max_judge_calls to at least 44,032 (retries count too) or to null, or lower num_iterations.',
    ]);
    expect(await found(await run(folder, ALL, 'rollout.refill={"rounds": 2}'))).toEqual([]);
  });

  it('counts what was asked, and not what is stored for the iterations to come', async () => {
    const folder = newFolder();
    const left = 20 * 512 + 1024;
    begun(await run(folder, null), 60, [
      ['60/0/0/viescore_sc', 5],
      ['61/0/0/viescore_sc', 2],
    ]);
    expect(await found(await run(folder, left - 1 + 7))).toEqual([]);
    const short = await run(folder, left - 1 + 6);
    expect(await found(short)).toEqual([
      expect.stringContaining('needs about 11,263 judge requests for its last 20 iterations, after 7 requests so far'),
    ]);
    // One that starts over has asked nothing, and has everything ahead of it.
    const whole = await run(folder, ALL);
    expect(await found(whole, new Set([whole]))).toEqual([]);
  });

  it('is not in the way of a run that has nothing left to ask, or of an evaluation', async () => {
    const folder = newFolder();
    const config = await run(folder, 1);
    expect(await found({ ...config, evaluation: { checkpoint: null, iteration: 0 } })).toEqual([]);
    begun(config, 80, [['80/0/0/viescore_sc', 5]]);
    expect(await found(config)).toEqual([]);
  });
});
