/** One run on Slurm: an array of one, after the runs that it starts from. */
import type { LoadedConfig } from '../../config/load.js';
import { checkRunnable, dependencies } from '../../config/models.js';
import { chainOf } from '../parents.js';
import { submitCells, type Submitted } from './submit.js';

/** Submits a run and what it starts from. Raises ConfigError for runs that need each other, and what `submitCells` raises. */
export async function submitRun(config: LoadedConfig, program: readonly string[]): Promise<Submitted> {
  const chain = await chainOf(config);
  const runs = chain.map((link) => {
    checkRunnable(link.config);
    const { settings } = link.config;
    return {
      run_name: settings.run_name,
      config: link.config,
      parents: dependencies(settings).map(({ run }) => run),
    };
  });
  return submitCells(runs.slice(-1), runs.slice(0, -1), { program, name: config.settings.run_name });
}
