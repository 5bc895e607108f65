/** Launching: where a run is placed, how many processes it has, what watches over them. It leaves a run's results alone, unless another program trains it. */
import { z } from 'zod';
import { count, operation, positive, positiveInteger, result, section } from '../../core/schema/mark.js';

const argumentList = z.array(z.string()).min(1);
const named = z.string().min(1).nullable().default(null);

/** The resources that a Slurm job asks for; null leaves a choice to the cluster. */
const resources = {
  time: operation("Time limit, in Slurm's notation.", z.string().min(1).default('04:00:00')),
  gres: operation("Generic resources, such as 'gpu:2'; null means none.", named),
  cpus_per_task: operation('Cores; null means one per process.', positiveInteger.nullable().default(null)),
  mem: operation("Memory, such as '32G'; null means the partition's default.", named),
  extra: operation(
    "Further sbatch flags, as they are: ['--qos=long'].",
    z.array(z.string().startsWith('-', { error: "a flag that begins with '-'" })).default([]),
    { allowed: "flags that begin with '-'" },
  ),
};

const slurm = section(
  'How jobs are submitted where the backend is slurm.',
  z
    .strictObject({
      account: operation('Account; null means the default one.', named),
      partition: operation('Partition; null means the default one.', named),
      ...resources,
      signal_before_s: operation(
        'Seconds before the time limit at which the run checkpoints and is put back into the queue.',
        positiveInteger.default(120),
      ),
      judge: section(
        'A job of its own that serves the judge; null means that none is submitted.',
        z
          .strictObject({
            command: operation('The program that serves and its arguments.', argumentList),
            ...resources,
          })
          .nullable()
          .default(null),
      ),
    })
    .prefault({}),
);

const program = argumentList.nullable().default(null);
const programAllowed = { allowed: "a list such as ['python', 'train.py'], or null" };
const PROGRAM =
  "Another trainer's program and its arguments: it takes the place of this program's own workers. Null means none.";

const gpu = (what: string) =>
  operation(`The GPU of ${what}, as nvidia-smi counts; null means that of the policy.`, count.nullable().default(null));

const placement = section(
  'Which GPU computes what, of a run of one process: its policy, its image model, its reward. Null leaves the policy and the image model to the first GPU, and models of the reward to the CPU.',
  z.strictObject({
    policy: operation('The GPU of the policy, as nvidia-smi counts.', count.default(0)),
    image: gpu('what makes pictures'),
    reward: gpu('the reward'),
    memory_limit: operation(
      "The share of a GPU's memory that the parts on it may be estimated to need.",
      z.number().gt(0).max(1).default(0.85),
    ),
  }),
);

const fields = {
  backend: operation('What places the run on machines.', z.enum(['local', 'slurm']).default('local')),
  processes: operation(
    "Worker processes; 'auto' means one per GPU.",
    z.union([positiveInteger, z.literal('auto')]).default(1),
    { allowed: "an integer >= 1 or 'auto'" },
  ),
  devices: operation(
    'GPU indices that the run may use; null means all, [] none: it runs on the CPU.',
    z.array(count).nullable().default(null),
  ),
  placement: placement.nullable().default(null),
  max_restarts: operation(
    'How often a run whose worker, or whose own training server, died is started again from its last checkpoint.',
    count.default(0),
  ),
  heartbeat_timeout_s: operation(
    'A worker that gives no sign of life for this many seconds counts as hung.',
    positive.default(600),
  ),
  env: operation('Environment variables for the workers.', z.record(z.string(), z.string()).default({})),
  command: operation(PROGRAM, program, programAllowed),
  slurm,
};

export const launch = section('Where the run is placed.', z.strictObject(fields).prefault({}));

/** For a run that another program trains: the program and its arguments decide the result. */
export const externalLaunch = section(
  'Where the run is placed, and the program that trains it.',
  z
    .strictObject({
      ...fields,
      command: result(PROGRAM, program, programAllowed),
    })
    .prefault({}),
);
export type LaunchSettings = z.output<typeof launch>;
export type SlurmSettings = LaunchSettings['slurm'];
