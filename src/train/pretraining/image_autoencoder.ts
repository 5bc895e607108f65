/**
 * The autoencoder of latent diffusion: reconstructs images from latents sampled around the encoder's output (Kingma and
 * Welling, 2014).
 */
import { DataError } from '../../core/errors.js';
import { decodeImage } from '../../core/images/image.js';
import { toPlanes } from '../../core/images/planes.js';
import { RandomStream } from '../../core/random.js';
import type { InpaintSample } from '../../data/self_bench.js';
import type { SampleSource } from '../../data/types.js';
import { Graph } from '../../compute/graph/ir.js';
import { CONFIG_FILE } from '../../models/files.js';
import { autoencoderLoss, initAutoencoder } from '../../compute/nets/autoencoder/autoencoder.js';
import { type AutoencoderConfig, autoencoderConfigJson, reduction } from '../../compute/nets/autoencoder/config.js';
import type { AutoencoderInit } from '../../config/schema/model.js';
import { meanOf, type Network, repeatedRows, scalar } from './pretraining.js';
import { psnr } from './image_tokenizer.js';

/** One in this many training images is a source, because masked sources are encoded, too. */
const CONTEXT_EVERY = 8;
/** Decay per step of the running mean of squared latents. */
const SPREAD_DECAY = 0.99;

/**
 * The network for batches of `size` images of the first one's size. Raises DataError if that size does not fit the
 * latents.
 */
export async function autoencoderNetwork(
  {
    seed,
    init,
    klWeight,
    size,
  }: {
    readonly seed: number;
    readonly init: AutoencoderInit;
    readonly klWeight: number;
    readonly size: number;
  },
  images: SampleSource<InpaintSample>,
): Promise<Network<InpaintSample, number>> {
  const config = configOf(init, 1);
  const first = images.read(0);
  const { height, width } = await decodeImage(first.refPng, first.paths.ref);
  const factor = reduction(config);
  if (height % factor !== 0 || width % factor !== 0) {
    throw new DataError(`an image of ${width}x${height} pixels is not a multiple of ${factor} pixels (one latent)`, {
      where: first.paths.ref,
      next: `Resize the images to multiples of ${factor}, or use fewer levels (environment.init.block_out_channels).`,
    });
  }
  const graph = new Graph('autoencoder');
  const shown = graph.input('images', [size, config.in_channels, height, width]);
  const noise = graph.input('noise', [size, config.latent_channels, height / factor, width / factor]);
  const { loss, reconstruction, meanSquare } = autoencoderLoss(config, shown, noise, klWeight);
  /** Running mean of the encoder's squared means. Null before the first batch. */
  let spread: number | null = null;

  /** [3, height, width] in [-1, 1]. Raises DataError for an image of another size than the first. */
  const planes = async (sample: InpaintSample, member: 'ref' | 'source'): Promise<Float32Array> => {
    const image = await decodeImage(member === 'ref' ? sample.refPng : sample.sourcePng, sample.paths[member]);
    if (image.height === height && image.width === width) return toPlanes(image).data;
    throw new DataError(
      `found ${image.width}x${image.height} pixels among images of ${width}x${height}; an autoencoder trains on one size`,
      { where: sample.paths[member], next: 'Resize the images to one size.' },
    );
  };

  return {
    loss,
    outputs: { reconstruction, meanSquare },
    weights: initAutoencoder(config, seed),
    // Held-out images are decoded from the encoder's means.
    feeds: async (samples, place) => {
      const isContext = (i: number): boolean =>
        place !== null && (place.first + i) % CONTEXT_EVERY === CONTEXT_EVERY - 1;
      const rows = await Promise.all(samples.map((sample, i) => planes(sample, isContext(i) ? 'source' : 'ref')));
      const random = place === null ? null : new RandomStream(seed, 'latents', place.iteration);
      const drawn = Float32Array.from({ length: noise.size }, () => random?.normal() ?? 0);
      return { images: repeatedRows(rows, size), noise: drawn };
    },
    afterStep: (_iteration, out) => {
      const meanSquared = scalar(out, 'meanSquare');
      spread = spread === null ? meanSquared : SPREAD_DECAY * spread + (1 - SPREAD_DECAY) * meanSquared;
      return {};
    },
    measure: (out) => scalar(out, 'reconstruction'),
    evaluationMetrics: (batches) => {
      const error = meanOf(batches, (one) => one);
      // PSNR is usually reported for pixels in [0, 1].
      return { 'validation/loss': error, 'validation/psnr': psnr(error / 4) };
    },
    stoppingLossName: 'error',
    // The config contains the factor that gives latents unit variance.
    files: () => ({ [CONFIG_FILE]: autoencoderConfigJson(configOf(init, 1 / Math.sqrt(spread ?? 1))) }),
    state: () => (spread === null ? {} : { latent_mean_square: spread }),
    restore: (state) => {
      spread = state.latent_mean_square ?? null;
    },
  };
}

function configOf(init: AutoencoderInit, scale: number): AutoencoderConfig {
  return {
    in_channels: 3,
    out_channels: 3,
    ...init,
    scaling_factor: scale,
    shift_factor: 0,
    use_quant_conv: false,
    use_post_quant_conv: false,
  };
}
