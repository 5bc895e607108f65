/** Tracking and launching: everything about how a run works that leaves its results alone. */
import { z } from 'zod';
import { count, operation, positive, positiveInteger, section } from './mark.js';

export const track = section(
  'What is recorded and where it is forwarded.',
  z
    .strictObject({
      log_episodes_every_n_iterations: operation(
        "Keep the images of every this many iterations' episodes.",
        positiveInteger.default(5),
      ),
      push_to_hub: section(
        'Publishing checkpoints on the Hugging Face Hub; null means none.',
        z
          .strictObject({
            every_n_iterations: operation('Publish every this many iterations.', positiveInteger),
            repo_id: operation('The repository on the Hub.', z.string().min(1)),
          })
          .nullable()
          .default(null),
      ),
      wandb: section(
        'Forwarding metrics to Weights & Biases; null means none.',
        z
          .strictObject({
            project: operation('The project.', z.string().min(1)),
            entity: operation(
              "The user or team; null means the account's default.",
              z.string().min(1).nullable().default(null),
            ),
          })
          .nullable()
          .default(null),
      ),
    })
    .prefault({}),
);
export type TrackSettings = z.output<typeof track>;

export const launch = section(
  'Where the run is placed.',
  z
    .strictObject({
      backend: operation('What places the run on machines.', z.enum(['local']).default('local')),
      processes: operation(
        "Worker processes; 'auto' means one per device.",
        z.union([positiveInteger, z.literal('auto')]).default(1),
        {
          allowed: "an integer >= 1 or 'auto'",
        },
      ),
      devices: operation(
        'Device indices that the run may use; null means all.',
        z.array(count).min(1).nullable().default(null),
      ),
      max_restarts: operation('How often a failed worker is started again.', count.default(0)),
      heartbeat_timeout_s: operation(
        'A worker without a heartbeat for this many seconds counts as hung.',
        positive.default(600),
      ),
      env: operation('Environment variables for the workers.', z.record(z.string(), z.string()).default({})),
    })
    .prefault({}),
);
export type LaunchSettings = z.output<typeof launch>;
