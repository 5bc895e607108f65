/** What edit_response needs at real size, by folders that have the shapes of the real models and none of their weights. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { loadConfig } from '../../../src/config/load.js';
import { memoryOf } from '../../../src/launch/machine/estimate.js';
import { shapesOf } from '../../../src/launch/machine/shapes.js';
import { testFolders } from '../../support/folder.js';
import { QWEN } from './qwen_7b.js';

const newFolder = testFolders('real-size');
const GIB = 2 ** 30;

function folderOf(config: object): string {
  const folder = newFolder();
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
  return folder;
}

/** Qwen-Image-Edit's transformer: 20.4 billion parameters. */
const editor = { _class_name: 'QwenImageTransformer2DModel' };

const gpu = {
  index: 0,
  uuid: 'GPU-0',
  name: 'NVIDIA H200',
  memoryBytes: 143_771 * 2 ** 20,
  usedBytes: 0,
};

/** What a process needs by the shipped config, and whether one such GPU holds it. */
async function needed(model: string, draws: string, rows: readonly object[] = []) {
  const data = newFolder();
  mkdirSync(data, { recursive: true });
  const list = join(data, 'rows.jsonl');
  if (rows.length > 0) writeFileSync(list, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
  const of = (key: string, value: unknown): string => `${key}=${JSON.stringify(value)}`;
  const { settings } = await loadConfig({
    file: 'configs/edit_response.jsonnet',
    sets: [
      of('policy.model', model),
      of('rollout.chunk_groups', 1),
      of('environment.model', draws),
      of('policy.engine.provider', 'cuda'),
      of('environment.engine.provider', 'cuda'),
      of('data.train', [{ path: list }]),
    ],
    env: { APP__DATA_DIR: data, APP__REWARD_FUNCTION_API_BASE: 'http://judge/v1' },
  });
  const { bytes, verdict } = memoryOf(shapesOf(new Map()), { gpus: [gpu], cpus: 2 })(settings);
  return { bytes: bytes ?? 0, gib: Math.round((bytes ?? 0) / GIB), fits: verdict()?.fits };
}

describe('edit_response at real size', () => {
  it('counts the policy, and beside it the transformer that draws', async () => {
    const model = folderOf(QWEN);
    const without = await needed(model, folderOf({}));
    const saved = await needed(model, folderOf(editor));
    expect([without.gib, saved.gib]).toEqual([56, 132]);
    expect([without.fits, saved.fits]).toEqual([true, true]);
  });

  it('counts the tokens of all images of a row while it is drawn, each within environment.max_pixels', async () => {
    const [model, draws] = [folderOf(QWEN), folderOf(editor)];
    const file = join(newFolder(), 'image.png');
    mkdirSync(dirname(file), { recursive: true });
    // The beginning of a PNG of 2048x512 pixels.
    writeFileSync(file, Buffer.from('89504e470d0a1a0a0000000d494844520000080000000200', 'hex'));
    const row = (source: string | readonly string[]): object => ({ source, instruction: 'brighter' });
    const unknown = await needed(model, draws);
    const one = await needed(model, draws, [row(file)]);
    const three = await needed(model, draws, [row(file), row([file, file, file])]);
    // A token is of 16 pixels on a side; the width is 24 heads of 128.
    const drawn = (images: number): number => {
      const tokens = (images * 1024 * 1024) / 16 ** 2;
      return 4 * tokens * (32 * 24 * 128 + 24 * tokens);
    };
    expect(one.bytes - unknown.bytes).toBeCloseTo(drawn(2), 3);
    expect(three.bytes - unknown.bytes).toBeCloseTo(drawn(4), 3);
  });
});
