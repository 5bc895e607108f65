/** The Jsonnet of the documentation: whole configs load, and parts of configs load over a shipped config. */
import { copyFileSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, join, resolve } from 'node:path';
import { describe, expect, it } from 'vitest';
import { loadConfig, type LoadedConfig } from '../src/config/load.js';
import { memoryOf } from '../src/launch/machine/estimate.js';
import { shapesOf } from '../src/launch/machine/shapes.js';
import { QWEN } from './recipes/edit_response/qwen_7b.js';
import { testFolders } from './support/folder.js';

const newFolder = testFolders('docs-configs');
const GIB = 2 ** 30;
/** The test of the page itself loads these. */
const LOADED_ELSEWHERE = ['docs/guide/experiments-and-results.md', 'docs/tutorial/your-images.md'];
const pages = [
  'README.md',
  ...readdirSync('docs', { recursive: true, encoding: 'utf8' }).map((name) => join('docs', name)),
];
const blocks = pages
  .filter((page) => page.endsWith('.md') && !LOADED_ELSEWHERE.includes(page))
  .flatMap((page) =>
    [...readFileSync(page, 'utf8').matchAll(/^```jsonnet[^\n]*\n([\s\S]*?)^```/gm)].map(([, text], at) => ({
      title: `${page}, block ${at + 1}`,
      text: text.replaceAll(/import '(?:\.\.\/)?configs\//g, `import '${resolve('configs')}/`),
    })),
  );

const tiny = (overlay: string): string => `configs/lib/${overlay}.libsonnet`;
const SHIPPED: ReadonlyArray<readonly [string, ...string[]]> = [
  ['configs/sft_s__rl_s.jsonnet', tiny('tiny')],
  ['configs/text_plain.jsonnet', tiny('text_tiny')],
  ['configs/ip_adapter.jsonnet', tiny('ip_adapter_tiny')],
  ['configs/edit_response.jsonnet'],
  ['configs/video_actions.jsonnet'],
  ['configs/prompt_enhance.jsonnet'],
];

/** Loads a config, or a part of one over the first shipped config that has its keys. */
async function load(text: string): Promise<LoadedConfig> {
  const folder = newFolder();
  for (const name of readdirSync('docs/rewards')) copyFileSync(join('docs/rewards', name), join(folder, name));
  writeFileSync(join(folder, 'exact_number.js'), 'export default () => 1;');
  const file = join(folder, 'block.jsonnet');
  writeFileSync(file, text);
  const env = { APP__REWARD_FUNCTION_API_BASE: 'http://127.0.0.1:1' };
  if (/\btask:|^local base = |^\/\/ own\//.test(text)) return loadConfig({ file, env });
  const errors: string[] = [];
  for (const [shipped, ...overlays] of SHIPPED) {
    try {
      return await loadConfig({ file: shipped, overlays: [...overlays, file], env });
    } catch (error) {
      errors.push(`${basename(shipped)}: ${String(error)}`);
    }
  }
  throw new Error(errors.join('\n'));
}

describe('Jsonnet in the documentation', () => {
  it('is found', () => {
    expect(blocks.length).toBeGreaterThan(20);
  });

  it.each(blocks.map(({ title, text }) => [title, text]))(
    'loads: %s',
    async (_title, text) => {
      await expect(load(text)).resolves.toHaveProperty('settings');
    },
    60_000,
  );

  it('has a plan for eight GPUs whose policy fits one of 80 GB', async () => {
    const page = readFileSync('docs/tutorial/vlm-8-gpus.md', 'utf8');
    const text = blocks.find(({ title }) => title.startsWith('docs/tutorial/vlm-8-gpus.md'))?.text ?? '';
    const model = newFolder();
    mkdirSync(model, { recursive: true });
    writeFileSync(join(model, 'config.json'), JSON.stringify(QWEN));
    const { settings } = await load(`${text} + { policy+: { model: '${model}' } }`);
    const gpu = { index: 0, uuid: 'GPU-0', name: 'NVIDIA H100', memoryBytes: 81_559 * 2 ** 20, usedBytes: 0 };
    const { bytes, verdict } = memoryOf(shapesOf(new Map()), { gpus: [gpu], cpus: 2 })(settings);
    expect(verdict()?.fits).toBe(true);
    expect(page).toContain(`${((bytes ?? 0) / GIB).toFixed(1)} GiB by`);
  });
});
