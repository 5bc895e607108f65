/** A sweep whose runs Slurm places: it submits the runs instead of running them. */
import type { Experiment } from '../../config/experiment/load.js';
import { ConfigError, must, UsageError } from '../../core/errors.js';
import { writeExperiment } from '../../run/find.js';
import { makeReadyToSubmit } from '../preflight/ready.js';
import type { Submitted } from '../slurm/submit.js';
import { chooseCells, recordOf, type SweepChoice, type SweepLimits } from './experiment.js';

/** Whether Slurm places the runs. Raises ConfigError when it places only some of them, or is asked for something it cannot do. */
export function usesSlurm(experiment: Experiment): boolean {
  const runs = [...experiment.cells, ...experiment.parents];
  const onSlurm = runs.filter(({ config }) => config.settings.launch.backend === 'slurm');
  if (onSlurm.length === 0) return false;
  const where = `${experiment.file}: launch.backend`;
  const other = runs.find(({ config }) => config.settings.launch.backend !== 'slurm');
  if (other !== undefined) {
    throw new ConfigError(`all runs of a sweep have one backend; found slurm and, in ${other.run_name}, local`, {
      where,
      next: 'Set launch.backend in an overlay that reaches the parents too.',
    });
  }
  if (experiment.options.stop_early !== null) {
    throw new ConfigError('stop_early lets runs wait for each other, which jobs of Slurm do not; found it with slurm', {
      where,
      next: 'Set stop_early to null, or launch.backend to local.',
    });
  }
  return true;
}

/** Submits the chosen cells and the runs that they start from; see `submitCells` for what it raises. */
export async function submitSweep(
  experiment: Experiment,
  choice: SweepChoice,
  limits: SweepLimits,
  program: readonly string[],
): Promise<Submitted> {
  const asked = Object.entries({
    '--retries': limits.retries > 0,
    '--fail-fast': limits.failFast,
  }).flatMap(([name, given]) => (given ? [name] : []));
  if (asked.length > 0) {
    throw new UsageError(`${asked.join(', ')}: found with launch.backend slurm; allowed: with local`, {
      next: 'Leave it out: no process watches jobs on Slurm. Give the same command again to submit the runs that failed.',
    });
  }
  const { submitCells } = await import('../slurm/submit.js');
  const cells = chooseCells(experiment, choice);
  const needed = new Set(cells.flatMap(({ parents }) => parents));
  const parents = experiment.parents.filter(({ run_name }) => needed.has(run_name));
  const configs = [...parents, ...cells].map(({ config }) => config);
  await makeReadyToSubmit(configs, { claimed: [] });
  const { base_exp_dir } = must(experiment.cells[0], 'the first cell').config.settings;
  writeExperiment(base_exp_dir, recordOf(experiment));
  return submitCells(cells, experiment.parents, {
    program,
    name: experiment.name,
    maxParallel: limits.maxParallel,
  });
}
