/** One run on Slurm: an array of one, after the runs that it starts from. */
import type { LoadedConfig } from '../../config/load.js';
import { checkRunnable, dependencies } from '../../config/models.js';
import { ConfigError } from '../../core/errors.js';
import { parentOf } from '../parents.js';
import type { SlurmRun } from './jobs.js';
import { submitCells, type Submitted } from './submit.js';

/** Submits a run and what it starts from. Raises ConfigError for runs that need each other, and what `submitCells` raises. */
export async function submitRun(config: LoadedConfig, program: readonly string[]): Promise<Submitted> {
  const parents = new Map<string, SlurmRun>();
  const cell = await collect(config, [], parents);
  return submitCells([cell], [...parents.values()], { program, name: config.settings.run_name });
}

async function collect(
  config: LoadedConfig,
  ancestry: readonly string[],
  parents: Map<string, SlurmRun>,
): Promise<SlurmRun> {
  const { settings } = config;
  checkRunnable(config);
  const line = [...ancestry, settings.run_name];
  const names = dependencies(settings);
  for (const reference of names) {
    if (line.includes(reference.run)) {
      throw new ConfigError(`runs need each other: ${[...line, reference.run].join(' -> ')}`, { where: config.file });
    }
    if (parents.has(reference.run)) continue;
    const parent = (await parentOf(config, reference)).config;
    if (parent !== null) parents.set(reference.run, await collect(parent, line, parents));
  }
  return { run_name: settings.run_name, config, parents: names.map(({ run }) => run) };
}
