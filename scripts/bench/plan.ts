/** How long a matrix takes to plan: evaluated, merged, validated, named and hashed. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { loadExperiment } from '../../src/config/experiment/load.js';
import { loadConfig } from '../../src/config/load.js';
import type { ImageEditSettings } from '../../src/recipes/image_edit_tokens/settings.js';

const RECIPE = 'configs/sft_s__rl_s.jsonnet';
const TINY = 'configs/lib/tiny.libsonnet';

/**
 * Measures 1,000 and 10,000 cells: wall-clock and CPU seconds of this process. Once over the tiny recipe, whose fields refer to each
 * other, so that Jsonnet works each of them out for every cell; once over the same settings written out.
 */
export async function benchPlan(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'editrl-bench-'));
  const settings = (await loadConfig({ file: RECIPE, overlays: [TINY] })).settings as ImageEditSettings;
  // References to runs are relative to their own config; a written-out copy lies elsewhere.
  const policy = { ...settings.policy, model: 'start', tokenizer: 'start' };
  const environment = { ...settings.environment, model: 'tokenizer' };
  const bases = {
    'written out': JSON.stringify({ ...settings, policy, environment }),
    'late-bound': `(import ${JSON.stringify(resolve(RECIPE))}) + (import ${JSON.stringify(resolve(TINY))})`,
  };
  try {
    for (const [label, base] of Object.entries(bases)) {
      for (const side of [10, 100]) {
        const file = join(folder, `plan_${side}.jsonnet`);
        writeFileSync(file, experiment(base, side));
        const cpu = process.cpuUsage();
        const start = performance.now();
        const { cells } = await loadExperiment({ file });
        const wall = (performance.now() - start) / 1000;
        const { user, system } = process.cpuUsage(cpu);
        const seconds = `${wall.toFixed(2)} s wall, ${((user + system) / 1e6).toFixed(2)} s CPU`;
        console.log(`${label}, ${cells.length} cells: ${seconds}`);
      }
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** `side` times 100 cells over three axes. */
function experiment(base: string, side: number): string {
  return `{
  name: 'bench',
  base: ${base},
  axes: {
    lr: { [std.toString(i)]: { optimizer+: { learning_rate: i * 1e-5 } } for i in std.range(1, 10) },
    kl: { [std.toString(i)]: { algorithm+: { kl_coeff: i * 1e-4 } } for i in std.range(1, 10) },
    seed: { [std.toString(i)]: { seed: i } for i in std.range(1, ${side}) },
  },
}
`;
}
