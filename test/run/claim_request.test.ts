import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { loadConfig } from '../../src/config/load.js';
import { claimRun } from '../../src/run/claim.js';
import { claimRequest } from '../../src/run/claim_request.js';

const base = mkdtempSync(join(tmpdir(), 'editrl-claim-request-'));
afterAll(() => {
  rmSync(base, { recursive: true, force: true });
});

it('lets operation fields and more iterations through, and refuses what decides the result', async () => {
  const claim = async (...sets: string[]): Promise<ReturnType<typeof claimRun>> => {
    const config = await loadConfig({
      file: 'configs/sft_s__rl_s.jsonnet',
      overlays: ['configs/lib/tiny.libsonnet'],
      sets: [`base_exp_dir=${JSON.stringify(base)}`, ...sets],
    });
    return claimRun(claimRequest(config, { command: ['editrl'], versions: {} }));
  };
  const first = await claim('num_iterations=7');
  first.release();
  expect(first).toMatchObject({ kind: 'new', paths: { runName: 'sft_s__rl_s' } });
  const second = await claim('num_iterations=9', 'checkpoint.save_every_n_iterations=3');
  second.release();
  expect(second).toMatchObject({ kind: 'resumed', notes: ['num_iterations: 7 -> 9'] });
  expect(second.record.hash).toBe(first.record.hash);
  await expect(claim('num_iterations=9', 'algorithm.kl_coeff=0.5')).rejects.toThrow(
    /\n {4}algorithm\.kl_coeff: .* -> 0\.5/,
  );
  await expect(claim('num_iterations=8')).rejects.toThrow('num_iterations: 9 -> 8 (it may only grow)');
});
