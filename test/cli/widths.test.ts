/** What commands print, but for logs, is no wider than a terminal. */
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, it, vi } from 'vitest';
import { main } from '../../src/cli/main.js';
import { textWidth } from '../../src/core/terminal.js';
import { loadConfig } from '../../src/config/load.js';
import { testFolder } from '../support/folder.js';
import { finishedRun } from '../run/report/recorded_runs.js';
import { capture } from './run_directory.js';

const base = testFolder('widths');
const names = ['a_run_with_a_rather_long_name_of_its_own', 'b', 'c', 'd', 'e'];
const checkpoint = '/checkpoints/stage2_supervised_finetune/a-checkpoint-of-iteration-12000';

beforeAll(async () => {
  vi.stubEnv('APP__BASE_EXP_DIR', base);
  vi.stubEnv('APP__DATA_DIR', join(base, 'data'));
  vi.stubEnv('COLUMNS', '');
  for (const [at, name] of names.entries()) {
    const sets = [`run_name=${name}`, `algorithm.kl_coeff=${at / 100}`, `policy.model=${checkpoint}${at}`];
    finishedRun(
      await loadConfig({ file: 'configs/sft_s__rl_s.jsonnet', overlays: ['configs/lib/tiny.libsonnet'], sets }),
      5 + at,
    );
  }
});
afterAll(() => vi.unstubAllEnvs());
afterEach(() => vi.restoreAllMocks());

it.each([
  [['--help']],
  ...['run', 'sweep', 'plan', 'report', 'compare', 'status', 'dashboard', 'evaluate', 'rescore'].map(
    (verb) => [[verb, '--help']] as const,
  ),
  [['report', names[0]]],
  [['compare', ...names.slice(0, 2)]],
  [['compare', ...names]],
  [['ls']],
  [['doctor']],
  [['plan', 'experiments/reward_ablation.jsonnet']],
] as const)('%j', async (argv) => {
  const printed = capture();
  vi.spyOn(console, 'log').mockImplementation((text: string) => (printed.out += `${text}\n`));
  await main([...argv]);
  vi.restoreAllMocks();
  const lines = printed.out.split('\n');
  expect(lines.length).toBeGreaterThan(3);
  // A path is one word: broken, it could not be copied.
  const wide = lines.filter((line) => textWidth(line) > 80 && !line.includes(base));
  expect(wide).toEqual([]);
});

it('breaks settings that are long behind punctuation alone', async () => {
  const printed = capture();
  await main(['compare', ...names]);
  const pieces = printed.out.split('\n').flatMap((line) => line.split(/ {2,}/).slice(1));
  const parts = pieces.filter((piece) => /[a-z]{3}/.test(piece) && checkpoint.includes(piece));
  expect(parts.filter((piece) => /^\/checkpoints/.test(piece)).length).toBeGreaterThan(names.length - 1);
  expect(parts.filter((piece) => !/[/_-]$/.test(piece))).toEqual([]);
});
