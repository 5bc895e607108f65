/**
 * Data parallelism: two processes with one thread each beside one process with two threads, on the same iterations of 256 episodes, in
 * turns, from the start that `npm run quickstart` leaves behind. What counts is the ratio; seconds of a shared machine say little.
 */
import { rmSync } from 'node:fs';
import { loadConfig } from '../../src/config/load.js';
import { Launcher } from '../../src/launch/run.js';
import { readMetrics } from '../../src/run/metrics.js';
import { RunPaths } from '../../src/run/paths.js';

const ITERATIONS = 8;
/** The first iterations compile sessions. */
const WARM_UP = 2;
const ROUNDS = 3;
const PARTS = ['total', 'rollout', 'render', 'judge', 'exchange', 'reference', 'update', 'other'] as const;

type Seconds = Readonly<Record<(typeof PARTS)[number], number>>;

export async function benchProcesses(): Promise<void> {
  const ratios: number[] = [];
  const splits: Record<'one' | 'two', Seconds[]> = { one: [], two: [] };
  for (let round = 0; round < ROUNDS; round++) {
    // Which comes first changes from round to round.
    const order = round % 2 === 0 ? (['one', 'two'] as const) : (['two', 'one'] as const);
    for (const which of order) splits[which].push(await measure(which === 'one' ? 1 : 2));
    ratios.push(splits.one[round].total / splits.two[round].total);
  }
  console.log('shares of an iteration of one process with two threads (medians):');
  const whole = median(splits.one.map(({ total }) => total));
  console.log('              1 x 2 threads   2 x 1 thread');
  for (const part of PARTS) {
    const [one, two] = [splits.one, splits.two].map((all) => median(all.map((seconds) => seconds[part])) / whole);
    console.log(`  ${part.padEnd(12)} ${one.toFixed(2).padStart(12)} ${two.toFixed(2).padStart(14)}`);
  }
  const list = ratios.map((ratio) => ratio.toFixed(2)).join(', ');
  console.log(`throughput of two processes over one: ${median(ratios).toFixed(2)} (median of ${list})`);
}

/** Median seconds of an iteration, by part. */
async function measure(processes: 1 | 2): Promise<Seconds> {
  const config = await loadConfig({
    file: 'configs/sft_s__rl_s.jsonnet',
    overlays: ['configs/lib/tiny.libsonnet'],
    sets: [
      `run_name=bench_processes_${processes}`,
      `launch.processes=${processes}`,
      `policy.engine.threads=${2 / processes}`,
      `environment.engine.threads=${2 / processes}`,
      `num_iterations=${ITERATIONS}`,
      'rollout.episodes_per_iteration=256',
      'validation.prompts=8',
      'validation.every_n_iterations=null',
    ],
  });
  const paths = new RunPaths(config.settings.base_exp_dir, config.settings.run_name);
  rmSync(paths.dir, { recursive: true, force: true });
  const launcher = new Launcher({ terminal: null, command: ['bench'], stop: new AbortController().signal });
  try {
    await launcher.runOnly(config);
  } finally {
    await launcher.close();
  }
  const lines = readMetrics(paths).filter(({ iteration }) => iteration > WARM_UP);
  rmSync(paths.dir, { recursive: true, force: true });
  return Object.fromEntries(
    PARTS.map((part) => [part, median(lines.map(({ metrics }) => metrics[`time/${part}`] ?? 0))]),
  ) as Seconds;
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? NaN;
}
