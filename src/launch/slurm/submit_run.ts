/** Submits one run to Slurm: an array of one, after the runs that it starts from. */
import type { LoadedConfig } from '../../config/load.js';
import { checkRunnable, dependencies } from '../../config/models.js';
import { RunPaths } from '../../run/paths.js';
import { setAside } from '../../run/remove.js';
import { chainOf } from '../chain.js';
import { makeReadyToSubmit } from '../preflight/ready.js';
import { submitCells, type Submitted } from './submit.js';

/**
 * Submits a run and what it starts from, if nothing prevents any of them. With `fresh`, what the run's name held before is kept beside it; `aside` is
 * then its folder. Raises ConfigError for runs that depend on each other in a cycle, what prevents a run, and what `submitCells` raises.
 */
export async function submitRun(
  config: LoadedConfig,
  program: readonly string[],
  fresh = false,
): Promise<Submitted & { readonly aside: string | null }> {
  const chain = await chainOf(config);
  const configs = chain.map((link) => link.config);
  const claimed = fresh ? configs.slice(0, -1) : configs;
  await makeReadyToSubmit(configs, { claimed, anew: new Set(fresh ? [config] : []) });
  const runs = chain.map((link) => {
    checkRunnable(link.config);
    const { settings } = link.config;
    return {
      run_name: settings.run_name,
      config: link.config,
      parents: dependencies(settings).map(({ run }) => run),
    };
  });
  const aside = fresh ? setAside(RunPaths.of(config.settings)) : null;
  return {
    aside,
    ...(await submitCells(runs.slice(-1), runs.slice(0, -1), { program, name: config.settings.run_name })),
  };
}
