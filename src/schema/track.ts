/** Tracking: what is recorded and where it goes. It leaves a run's results alone. */
import { z } from 'zod';
import { operation, positiveInteger, section } from './mark.js';
import { alarms } from './alarms.js';

export const track = section(
  'What is recorded and where it is forwarded.',
  z
    .strictObject({
      log_episodes_every_n_iterations: operation(
        "Keep the images of every this many iterations' episodes.",
        positiveInteger.default(5),
      ),
      alarms,
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
