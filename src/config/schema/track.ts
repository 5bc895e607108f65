/** Tracking: records and where they are uploaded. It does not affect a run's results. */
import { z } from 'zod';
import { operation, positiveInteger, section } from '../../core/schema/mark.js';
import { alarms } from './alarms.js';

export const track = section(
  'Records of the run and where they are uploaded.',
  z
    .strictObject({
      log_episodes_every_n_iterations: operation(
        'Keep the images of the episodes of every n-th iteration.',
        positiveInteger.default(5),
      ),
      alarms,
      push_to_hub: section(
        'Publishing checkpoints on the Hugging Face Hub. null means none.',
        z
          .strictObject({
            every_n_iterations: operation(
              'Publish the checkpoints whose iteration is a multiple of this, each as the branch ckpt_NNNNNN, and the last one as main.',
              positiveInteger,
            ),
            repo_id: operation(
              'The repository on the Hub, as owner/name. Without an owner, the account of the token.',
              z.string().min(1),
            ),
            private: operation('Whether a new repository is private.', z.boolean().default(true)),
          })
          .nullable()
          .default(null),
      ),
      wandb: section(
        'Uploads to Weights & Biases. null means none. The key comes from WANDB_API_KEY or ~/.netrc.',
        z
          .strictObject({
            project: operation(
              'The project.',
              z
                .string()
                .min(1)
                .max(128)
                .regex(/^[^/\\#?%:]*$/, 'a W&B project has none of / \\ # ? % :'),
              { allowed: 'a text of 1 to 128 letters without / \\ # ? % :' },
            ),
            entity: operation(
              'The user or team. null means WANDB_ENTITY, else the default of the account.',
              z.string().min(1).nullable().default(null),
            ),
            group: operation(
              'The group of the run. null means its experiment.',
              z.string().min(1).max(128).nullable().default(null),
            ),
            job_type: operation('The job type. null means the recipe.', z.string().min(1).nullable().default(null)),
            tags: operation('Tags of the run.', z.array(z.string().min(1).max(64)).default([])),
            notes: operation('Notes about the run.', z.string().nullable().default(null)),
            episodes: operation(
              'Episodes, with images, to upload of each iteration that keeps images and of each held-out evaluation. 0 means none.',
              z.int().min(0).max(108).default(16),
            ),
          })
          .nullable()
          .default(null),
      ),
      tensorboard: operation(
        'Whether to write TensorBoard event files into the run directory.',
        z.boolean().default(false),
      ),
    })
    .prefault({}),
);
export type TrackSettings = z.output<typeof track>;
export type WandbSettings = NonNullable<TrackSettings['wandb']>;
export type HubPublishing = NonNullable<TrackSettings['push_to_hub']>;
