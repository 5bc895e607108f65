import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { checkFrozenFlow } from '../../src/policies/flow/load.js';
import { testFolder } from '../support/folder.js';

/** A Python with diffusers and onnx, where there is one. */
const python = process.env['EDITRL_TEST_PYTHON'] ?? 'python3';
const probe = spawnSync(python, ['-c', 'import diffusers, onnx, onnxruntime, torch'], { encoding: 'utf8' });
const missing = probe.status === 0 ? null : (probe.stderr?.trim().split('\n').at(-1) ?? `there is no ${python}`);
const why = missing === null ? '' : ` (skipped: ${missing}; EDITRL_TEST_PYTHON names another Python)`;

const script = join(import.meta.dirname, '../../scripts/export_edit_transformer');
const saved = join(import.meta.dirname, '../nets/flow/fixtures/qwen_image');
const folder = testFolder('export-editor');

function run(source: string, out: string, ...rest: string[]) {
  const { status, stdout, stderr } = spawnSync(python, ['-W', 'ignore', script, source, out, ...rest], {
    encoding: 'utf8',
    env: { ...process.env, HF_HUB_OFFLINE: '1' },
  });
  return { status, stdout, stderr };
}

describe.skipIf(missing !== null)(`scripts/export_edit_transformer${why}`, () => {
  it('writes a folder that can be drawn by, in half precision, and leaves one alone that is there', () => {
    const out = join(folder, 'half');
    const made = run(saved, out, '--dtype', 'float16');
    expect(made.status, made.stderr).toBe(0);
    expect(made.stdout.match(/differs from diffusers by at most/g)).toHaveLength(2);
    checkFrozenFlow(out, null);
    // Some 21,000 weights of two bytes, of which short ones stay in the graph.
    const { size } = statSync(join(out, 'model.onnx.data'));
    expect(size).toBeGreaterThan(30_000);
    expect(size).toBeLessThan(45_000);
    expect(run(saved, out)).toMatchObject({ status: 1, stderr: `${out} is there already\n` });
  });

  it('writes one whose source is modulated as if it had no noise', () => {
    const out = join(folder, 'clean');
    const made = run(join(saved, '../qwen_clean'), out);
    expect(made.status, made.stderr).toBe(0);
    expect(made.stdout.match(/differs from diffusers by at most/g)).toHaveLength(2);
  });

  it('says what it does not export, and leaves nothing behind', () => {
    const source = join(folder, 'odd');
    cpSync(saved, source, { recursive: true });
    const file = join(source, 'config.json');
    const json = JSON.parse(readFileSync(file, 'utf8')) as object;
    writeFileSync(file, JSON.stringify({ ...json, use_layer3d_rope: true }));
    const out = join(folder, 'refused');
    expect(run(source, out)).toMatchObject({
      status: 1,
      stderr: `${source} asks for use_layer3d_rope, which the graph has no inputs for\n`,
    });
    expect(run(join(saved, '../flux'), out).stderr).toContain('holds FluxTransformer2DModel; covered: Qwen');
    expect(existsSync(out)).toBe(false);
  });
});
