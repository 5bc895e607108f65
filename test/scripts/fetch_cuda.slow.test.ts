import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { testFolder } from '../support/folder.js';

const skipped = process.env['EDITRL_TEST_CUDA'] === '1' ? null : 'it downloads 1.6 GB; EDITRL_TEST_CUDA=1 runs it';

/** A copy of onnxruntime-node that the script may change. */
function copiedRuntime(): string {
  const modules = join(testFolder('fetch_cuda'), 'node_modules');
  mkdirSync(modules, { recursive: true });
  const installed = dirname(createRequire(import.meta.url).resolve('onnxruntime-node/package.json'));
  cpSync(installed, join(modules, 'onnxruntime-node'), { recursive: true, dereference: true });
  symlinkSync(join(dirname(installed), 'onnxruntime-common'), join(modules, 'onnxruntime-common'));
  return join(modules, 'onnxruntime-node');
}

/** A folder with a libcuda.so.1 that has the one symbol that the provider needs, and no device. */
function stubDriver(): string {
  const folder = testFolder('stub_driver');
  writeFileSync(join(folder, 'stub.c'), 'int cuTensorMapEncodeTiled(void) { return 100; }\n');
  const flags = ['-shared', '-fPIC', '-Wl,-soname,libcuda.so.1', '-o', join(folder, 'libcuda.so.1')];
  expect(spawnSync('gcc', [...flags, join(folder, 'stub.c')]).status).toBe(0);
  return folder;
}

function fetchCuda(runtime: string, libraryPath: string) {
  const env = { ...process.env, LD_LIBRARY_PATH: libraryPath };
  return spawnSync('scripts/fetch_cuda', [runtime], { encoding: 'utf8', env });
}

describe.skipIf(skipped !== null)(`fetch_cuda${skipped === null ? '' : ` (skipped: ${skipped})`}`, () => {
  it(
    'says that a driver is missing, and with one loads the provider until it looks for a device',
    { timeout: 600_000 },
    () => {
      const runtime = copiedRuntime();
      const without = fetchCuda(runtime, '');
      expect(without.status).toBe(1);
      expect(without.stderr).toContain('no NVIDIA driver (libcuda.so.1)');
      const stubbed = fetchCuda(runtime, stubDriver());
      expect(stubbed.status).toBe(1);
      expect(stubbed.stderr).toContain('CUDA failure 35');
      expect(stubbed.stdout).not.toContain('CUDA libraries');
    },
  );
});
