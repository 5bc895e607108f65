/** Opens `image_autoencoder`. */
import { comparedInpaint, openSelfBench } from '../../data/self_bench.js';
import { autoencoderNetwork } from '../../train/image_autoencoder.js';
import type { OpenRecipe } from '../../train/opener.js';
import { wholeBatchOpener } from '../open_whole_batch.js';
import { signData } from '../../tiny/world/sign_scenes.js';
import type { ImageAutoencoderSettings } from './settings.js';

export const imageAutoencoder: OpenRecipe<ImageAutoencoderSettings> = wholeBatchOpener(
  signData,
  async (path) => openSelfBench(path),
  comparedInpaint,
  ({ seed, environment: { init }, algorithm: { kl_weight: klWeight, sft } }, { train }) =>
    autoencoderNetwork({ seed, init, klWeight, size: sft.batch_size }, train[0]),
);
