/** Loaded configs of runs that another trainer trains, without a file. */
import type { LoadedConfig } from '../../../src/config/load.js';
import { resultHash } from '../../../src/config/hash.js';
import { validate } from '../../../src/config/validate.js';
import type { SlurmRun } from '../../../src/launch/slurm/jobs.js';

export interface Requested {
  readonly base?: string;
  readonly parents?: readonly string[];
  readonly slurm?: Readonly<Record<string, unknown>>;
  readonly launch?: Readonly<Record<string, unknown>>;
  readonly num_iterations?: number;
}

/** A run of the task `external`; what it asks of Slurm may be said. */
export function externalRun(run_name: string, asked: Requested = {}): SlurmRun {
  const { base = 'runs', parents = [], slurm = {}, launch = {}, num_iterations = 3 } = asked;
  const validated = validate({
    task: 'external',
    run_name,
    num_iterations,
    base_exp_dir: base,
    launch: { backend: 'slurm', command: ['true'], ...launch, slurm: { time: '10', ...slurm } },
  });
  if ('problems' in validated) throw new Error(JSON.stringify(validated.problems));
  const config: LoadedConfig = {
    settings: validated.settings,
    resultHash: resultHash(validated.settings),
    importHash: 'imports',
    warnings: [],
    file: 'experiments/foreign.jsonnet',
    overlays: [],
    sets: [],
  };
  return { run_name, config, parents };
}
