/** The cost of `editrl plan` for ten thousand cells: the command as a person calls it, from its start to its last line. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { loadavg, tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { loadConfig } from '../../src/config/load.js';
import { InternalError } from '../../src/core/errors.js';
import type { ImageEditSettings } from '../../src/recipes/image_edit_tokens/settings.js';
import { median } from './short_run.js';

const RECIPE = 'configs/sft_s__rl_s.jsonnet';
const TINY = 'configs/lib/tiny.libsonnet';
const COMMAND = fileURLToPath(new URL('../../src/cli/main.js', import.meta.url));
const ROUNDS = 3;
/** A full-size config needs the name of a judge, but nothing calls it. */
const JUDGE = { APP__REWARD_FUNCTION_API_BASE: 'http://localhost:4877' };

/** The number of values of each of the two axes. */
const shapes = [
  [100, 100],
  [10, 1000],
  [10_000, 1],
] as const;
const sizes = { tiny: [TINY], full: [] } as const;

interface Binding {
  /** The base of the matrix, as Jsonnet. */
  readonly base: (overlays: readonly string[]) => Promise<string>;
  /** The fields that the i-th value of each axis sets, as Jsonnet. */
  readonly values: readonly [string, string];
}

const bindings: Readonly<Record<'early' | 'late', Binding>> = {
  early: {
    base: writtenOut,
    values: ['optimizer+: { learning_rate: i * 1e-8 }', 'seed: i'],
  },
  late: {
    base: async (overlays) =>
      Promise.resolve([RECIPE, ...overlays].map((path) => `(import ${JSON.stringify(resolve(path))})`).join(' + ')),
    values: [
      'optimizer+: { learning_rate: super.learning_rate * i }',
      'local run = self, seed: i, algorithm+: { kl_coeff: run.optimizer.learning_rate * run.seed }',
    ],
  },
};

/**
 * Measures every shape twice: with settings that are written out and axis values without references, and with the config itself, whose
 * fields refer to each other, and axis values that refer to the config below them and to fields that the other axis sets. Prints the
 * median wall-clock seconds of the command, and the sum of the peak resident memory of its Node processes.
 */
export async function benchPlan(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'editrl-bench-'));
  try {
    for (const [binding, { base, values }] of Object.entries(bindings)) {
      for (const [size, overlays] of Object.entries(sizes)) {
        const text = await base(overlays);
        for (const counts of shapes) {
          const file = join(folder, 'bench.jsonnet');
          writeFileSync(file, experiment(text, counts, values));
          const runs = Array.from({ length: ROUNDS }, () => plan(file, folder));
          const seconds = runs.map((run) => run.seconds);
          const range = `${Math.min(...seconds).toFixed(2)} to ${Math.max(...seconds).toFixed(2)}`;
          console.log(
            `${counts.join(' x ')}, ${binding}-bound, ${size}: ${median(seconds).toFixed(2)} s (${range}), ${Math.max(...runs.map(({ megabytes }) => megabytes)).toFixed(0)} MB; load ${loadavg()[0].toFixed(1)}`,
          );
        }
      }
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** The evaluated settings of a config with overlays. References to runs are relative to their own config, but a copy is in another folder. */
async function writtenOut(overlays: readonly string[]): Promise<string> {
  const settings = (await loadConfig({ file: RECIPE, overlays, env: JUDGE })).settings as ImageEditSettings;
  const policy = { ...settings.policy, model: 'start', init: null, tokenizer: 'start' };
  return JSON.stringify({ ...settings, policy, environment: { ...settings.environment, model: 'tokenizer' } });
}

function experiment(base: string, counts: readonly [number, number], values: readonly [string, string]): string {
  const axes = counts.map(
    (count, axis) => `${'ab'[axis]}: { [std.toString(i)]: { ${values[axis]} } for i in std.range(1, ${count}) },`,
  );
  return `{
  name: 'bench',
  base: ${base},
  axes: {
    ${axes.join('\n    ')}
  },
}
`;
}

/** Runs the command once. Each of its Node processes reports its peak memory when it ends. */
function plan(file: string, folder: string): { readonly seconds: number; readonly megabytes: number } {
  const [preload, peaks] = [join(folder, 'peak.mjs'), join(folder, 'peaks')];
  writeFileSync(
    preload,
    `import { appendFileSync } from 'node:fs';
import { isMainThread } from 'node:worker_threads';
if (isMainThread) process.on('exit', () => appendFileSync(${JSON.stringify(peaks)}, process.resourceUsage().maxRSS + '\\n'));
`,
  );
  rmSync(peaks, { force: true });
  const start = performance.now();
  const { status, stdout, stderr } = spawnSync(process.execPath, [COMMAND, 'plan', file], {
    env: { ...process.env, ...JUDGE, NODE_OPTIONS: `--import ${preload}` },
    encoding: 'utf8',
    maxBuffer: 2 ** 28,
  });
  const seconds = (performance.now() - start) / 1000;
  if (status !== 0 || !stdout.startsWith('bench: 10000 cells')) {
    throw new InternalError(`the command failed: ${stderr}`);
  }
  const kilobytes = readFileSync(peaks, 'utf8').trim().split('\n').map(Number);
  return { seconds, megabytes: kilobytes.reduce((sum, one) => sum + one, 0) / 1024 };
}
