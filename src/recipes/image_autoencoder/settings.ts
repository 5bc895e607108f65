/** The recipe `image_autoencoder`: the autoencoder of latent diffusion, trained on pixels. */
import { z } from 'zod';
import { autoencoderAlgorithm } from '../../schema/algorithm.js';
import { benchPictures } from '../../schema/data.js';
import { section } from '../../schema/mark.js';
import { autoencoderInit, engine } from '../../schema/model.js';
import { taskField, trainedFields } from '../../schema/run.js';
import { trainingBytes } from '../memory.js';
import { datasets, preset } from '../preset.js';
import { whenSet, problem, problemUnless, type Rule } from '../../schema/rules.js';
import { sharedRules, wholeBatches } from '../training_rules.js';

const schema = z.strictObject({
  ...trainedFields,
  ...taskField('image_autoencoder'),
  algorithm: autoencoderAlgorithm,
  data: benchPictures,
  environment: section('The autoencoder that is trained.', z.strictObject({ init: autoencoderInit, engine })),
});
export type ImageAutoencoderSettings = z.output<typeof schema>;

/** Values kept per position and channel of a level: its residual blocks' convolutions, norms and activations, in encoder and decoder. */
const KEPT_PER_BLOCK = 12;

/** Channels have to be whole groups, and pictures whole latents. */
const whole: Rule<ImageAutoencoderSettings> = ({ data, environment }) =>
  whenSet([environment?.init?.block_out_channels], (channels) => {
    const factor = 2 ** (channels.length - 1);
    return [
      ...whenSet([environment?.init?.norm_num_groups], (groups) =>
        whenSet([channels.find((one) => one % groups !== 0)], (uneven) =>
          problem(
            'environment.init.block_out_channels',
            `found ${uneven}; allowed: multiples of environment.init.norm_num_groups (${groups})`,
          ),
        ),
      ),
      ...(['width', 'height'] as const).flatMap((side) =>
        whenSet([data?.tiny?.[side]], (size) =>
          problemUnless(
            size % factor === 0,
            `data.tiny.${side}`,
            `found ${size}; allowed: a multiple of ${factor}, as environment.init.block_out_channels has ${channels.length} levels`,
          ),
        ),
      ),
    ];
  });

export const imageAutoencoder = preset<ImageAutoencoderSettings>({
  name: 'image_autoencoder',
  schema,
  pipeline: null,
  usedAt: { key: 'policy.parts.vae', of: 'ip_adapter' },
  // One process computes the whole batch.
  microBatches: () => 1,
  parts: [
    { rules: [wholeBatches, ...sharedRules, whole] },
    datasets((path, { environment }) => {
      return { kind: 'self_bench', path, quoted: false, side: reductionOf(environment), resolution: null };
    }),
    {
      learns: {
        engine: 'environment.engine',
        start: null,
        parameters: parametersOf,
        memory: (settings) => {
          const { environment, data, optimizer } = settings;
          if (data.tiny === null) return null;
          const { block_out_channels: channels, layers_per_block } = environment.init;
          const pixels = data.tiny.width * data.tiny.height;
          const blocks = 2 * layers_per_block + 1;
          const kept = channels.reduce(
            (sum, width, level) => sum + (KEPT_PER_BLOCK * blocks * width * pixels) / 4 ** level,
            0,
          );
          return trainingBytes(parametersOf(settings), optimizer.per_device_batch_size * kept);
        },
        shape: ({ environment }) => ({ kind: 'autoencoder', reduction: reductionOf(environment) }),
      },
    },
  ],
});

/** Side of a picture divided by that of its latents. */
function reductionOf({ init }: ImageAutoencoderSettings['environment']): number {
  return 2 ** (init.block_out_channels.length - 1);
}

/** Kernels of 3 x 3: two for each residual block of encoder and decoder, those of the lowest level, and those between levels. */
function parametersOf({ environment: { init } }: ImageAutoencoderSettings): number {
  const { block_out_channels: channels, layers_per_block } = init;
  const blocks = 2 * layers_per_block + 1;
  const levels = channels.reduce((sum, width, level) => {
    const before = channels[Math.max(0, level - 1)];
    return sum + 9 * (2 * blocks * width ** 2 + 2 * before * width);
  }, 0);
  return levels + 9 * 8 * channels[channels.length - 1] ** 2;
}
