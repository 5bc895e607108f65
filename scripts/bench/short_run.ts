/** A few iterations of a recipe at laptop size, from the start that its command trained. Several benches time them. */
import { rmSync } from 'node:fs';
import { loadConfig } from '../../src/config/load.js';
import { noView } from '../../src/launch/live/view.js';
import { Launcher } from '../../src/launch/launcher.js';
import { readMetrics, type Metrics } from '../../src/run/metrics.js';
import { RunPaths } from '../../src/run/paths.js';

const quickstart = { file: 'configs/sft_s__rl_s.jsonnet', overlays: ['configs/lib/tiny.libsonnet'] };

/**
 * Trains the run `name` with these settings and without evaluations in between, and returns the metrics of the iterations after the first
 * `warmUp`, in which sessions are compiled. Its directory is removed before and after.
 */
export async function shortRun(
  name: string,
  sets: readonly string[],
  warmUp: number,
  source: { readonly file: string; readonly overlays: readonly string[] } = quickstart,
): Promise<Metrics[]> {
  const config = await loadConfig({
    ...source,
    sets: [`run_name=${name}`, 'validation.prompts=8', 'validation.every_n_iterations=null', ...sets],
  });
  const paths = new RunPaths(config.settings.base_exp_dir, config.settings.run_name);
  rmSync(paths.dir, { recursive: true, force: true });
  const launcher = new Launcher({ view: noView, command: ['bench'], stop: new AbortController().signal });
  try {
    await launcher.runWithoutParents(config);
    return readMetrics(paths).flatMap(({ iteration, metrics }) => (iteration > warmUp ? [metrics] : []));
  } finally {
    await launcher.close();
    rmSync(paths.dir, { recursive: true, force: true });
  }
}

/** The median. NaN for no values. */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length / 2;
  return ((sorted[Math.ceil(middle) - 1] ?? NaN) + (sorted[Math.floor(middle)] ?? NaN)) / 2;
}
