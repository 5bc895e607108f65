/** Launching: placement, processes and supervision of a run. These settings do not affect its results, unless a foreign trainer reads them. */
import { z } from 'zod';
import { count, operation, positive, positiveInteger, result, section } from '../../core/schema/mark.js';

const argumentList = z.array(z.string()).min(1);
const named = z.string().min(1).nullable().default(null);

const slurm = section(
  'Job submission with backend slurm. null leaves a resource to the cluster.',
  z
    .strictObject({
      account: operation('Account. null means the default.', named),
      partition: operation('Partition. null means the default.', named),
      time: operation('Time limit in Slurm notation.', z.string().min(1).default('04:00:00')),
      gres: operation("Generic resources, such as 'gpu:2'. null means none.", named),
      cpus_per_task: operation('Cores. null means one per process.', positiveInteger.nullable().default(null)),
      mem: operation("Memory, such as '32G'. null means the default of the partition.", named),
      extra: operation(
        "Further sbatch flags, passed unchanged: ['--qos=long'].",
        z.array(z.string().startsWith('-', { error: "a flag that begins with '-'" })).default([]),
        { allowed: "flags that begin with '-'" },
      ),
      signal_before_s: operation(
        'Seconds before the time limit when the run saves a checkpoint and is requeued.',
        positiveInteger.default(120),
      ),
    })
    .prefault({}),
);

const program = argumentList.nullable().default(null);
const programAllowed = { allowed: "a list such as ['python', 'train.py'], or null" };
const PROGRAM = 'The command of a foreign trainer, which replaces our own workers. null means none.';

const gpu = (what: string) =>
  operation(
    `The GPU of ${what}, by its nvidia-smi index. null means the GPU of the policy.`,
    count.nullable().default(null),
  );

const placement = section(
  'The GPUs of the policy, the image model and the reward, for a run with one process. null computes policy and image model on the first GPU, and models of the reward on the CPU.',
  z.strictObject({
    policy: operation('The GPU of the policy, by its nvidia-smi index.', count.default(0)),
    image: gpu('the image model'),
    reward: gpu('the reward'),
    memory_limit: operation(
      'The share of the memory of a GPU that the estimates of its parts may reach.',
      z.number().gt(0).max(1).default(0.85),
    ),
  }),
);

const fields = {
  backend: operation(
    'Where runs are launched: on this machine, or as Slurm jobs.',
    z.enum(['local', 'slurm']).default('local'),
  ),
  processes: operation(
    "Worker processes. 'auto' means one per GPU.",
    z.union([positiveInteger, z.literal('auto')]).default(1),
    { allowed: "an integer >= 1 or 'auto'" },
  ),
  devices: operation(
    'GPU indices that the run may use. null means all, [] means the CPU.',
    z.array(count).nullable().default(null),
  ),
  placement: placement.nullable().default(null),
  max_restarts: operation(
    'How often a run is restarted from its last checkpoint after its worker or its own training server died.',
    count.default(0),
  ),
  heartbeat_timeout_s: operation(
    'Seconds without output or messages after which a worker counts as hung.',
    positive.default(600),
  ),
  env: operation('Environment variables for the workers.', z.record(z.string(), z.string()).default({})),
  command: operation(PROGRAM, program, programAllowed),
  slurm,
};

export const launch = section('Placement and supervision of the run.', z.strictObject(fields).prefault({}));

/** For a run of a foreign trainer. Its command affects the result. */
export const externalLaunch = section(
  'Placement and supervision of the run, and the command of its trainer.',
  z
    .strictObject({
      ...fields,
      command: result(PROGRAM, program, programAllowed),
    })
    .prefault({}),
);
export type LaunchSettings = z.output<typeof launch>;
export type SlurmSettings = LaunchSettings['slurm'];
