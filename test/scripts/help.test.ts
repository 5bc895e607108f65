/** Every script explains itself with --help, even without the packages that it needs. */
import { spawnSync } from 'node:child_process';
import { resolve } from 'node:path';
import { expect, it } from 'vitest';

const pathOf = (script: string): string => resolve(import.meta.dirname, '../../scripts', script);

it.each(['fetch_cuda', 'fetch_smollm2', 'release_check', 'run_server.sh', 'serve_judge.sh', 'serve_skyrl'])(
  '%s --help prints its usage and exits with 0',
  (script) => {
    const { status, stdout, stderr } = spawnSync('bash', [pathOf(script), '--help'], { encoding: 'utf8' });
    expect([status, stderr]).toEqual([0, '']);
    expect(stdout).toMatch(/^[A-Z]/);
  },
);

it.each([
  ['serve_render', /pip install torch/],
  ['gguf_folder.py', /pip install numpy gguf/],
])('%s explains a missing package instead of a traceback', (script, remedy) => {
  // -S hides all installed packages.
  const run = (...args: readonly string[]) =>
    spawnSync('python3', ['-I', '-S', pathOf(script), ...args], { encoding: 'utf8' });
  expect(run('--help')).toMatchObject({ status: 0, stderr: '' });
  const { status, stderr } = run('model', 'folder');
  expect(status).toBe(1);
  expect(stderr).toMatch(remedy);
  expect(stderr).not.toContain('Traceback');
});
