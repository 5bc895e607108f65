import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { Place } from './editrl.js';

/** Shows a process the device file of a GPU. */
const DEVICE_FILE = `
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
const { existsSync } = fs;
fs.existsSync = (path) => path === '/dev/nvidia0' || existsSync(path);
syncBuiltinESMExports();
`;

/** A machine with one GPU, as its device file and nvidia-smi show it; `users` are the processes on it. */
function machine(place: Place, name: string, users: string): NodeJS.ProcessEnv {
  const folder = join(place.dir, name);
  mkdirSync(folder);
  const script = `#!/bin/sh
case "$1" in
--query-gpu*) echo "0, GPU-a, NVIDIA H200, 143771, 0";;
--query-compute-apps*) echo "${users}";;
esac
`;
  writeFileSync(join(folder, 'nvidia-smi'), script, { mode: 0o755 });
  writeFileSync(join(folder, 'device_file.mjs'), DEVICE_FILE);
  return {
    NODE_OPTIONS: `--import ${join(folder, 'device_file.mjs')}`,
    PATH: `${folder}${delimiter}${process.env['PATH'] ?? ''}`,
  };
}

let place: Place;
beforeAll(() => {
  place = Place.make(inject('template'));
});
afterAll(() => place.remove());

describe('on a machine with a GPU', () => {
  /** One run on the GPU and two on the CPU, each of which ends once all three have begun. */
  const experiment = (): string => {
    const file = join(place.dir, 'mixed.jsonnet');
    const script = `echo "$CUDA_VISIBLE_DEVICES" > ${place.dir}/$RUN_NAME.gpu; while [ $(ls ${place.dir}/*.gpu | wc -l) -lt 3 ]; do sleep 0.05; done`;
    const base = {
      run_name: 'mixed',
      base_exp_dir: place.runs,
      task: 'external',
      num_iterations: 1,
      launch: { command: ['sh', '-c', script] },
    };
    const device = { gpu: {}, cpu_a: { launch: { devices: [] } }, cpu_b: { launch: { devices: [] } } };
    writeFileSync(
      file,
      `local merged(axes) = { [name]: { launch+: (if std.objectHas(axes[name], 'launch') then axes[name].launch else {}) } for name in std.objectFields(axes) };
      { name: 'mixed', base: ${JSON.stringify(base)}, axes: { on: merged(${JSON.stringify(device)}) } }`,
    );
    return file;
  };

  it('a sweep runs what needs the CPU beside what has the GPU', async () => {
    const { code, out } = await place.call(['sweep', experiment()], machine(place, 'free', ''));
    expect(code, out).toBe(0);
    expect(out).toMatch(/start {4}mixed__on-gpu \(GPU 0\)/);
    expect(out).toMatch(/start {4}mixed__on-cpu_a \(CPU, /);
    const seen = (name: string): string => readFileSync(join(place.dir, `mixed__on-${name}.gpu`), 'utf8').trim();
    expect([seen('gpu'), seen('cpu_a'), seen('cpu_b')]).toEqual(['0', '', '']);
  });
});
