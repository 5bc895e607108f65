/** The training loss of an autoencoder of pictures. */
import { add, exp, mul, sub, sumAll } from '../../graph/build.js';
import type { Value } from '../../graph/ir.js';
import { decodeLatents, encodePictures } from './autoencoder.js';
import type { AutoencoderConfig } from './config.js';

/** Scalars of a batch. */
export interface AutoencoderLoss {
  readonly loss: Value;
  /** Mean squared error of the pictures. */
  readonly reconstruction: Value;
  /** Mean square of the encoder's means. */
  readonly meanSquare: Value;
}

/**
 * Mean squared error of pictures [B, C, H, W] that are decoded from mean + deviation * noise, and `klWeight` times the latents' divergence
 * from a standard normal distribution, sum((mean^2 + variance - log variance - 1) / 2), divided by B C H W (Kingma and Welling, 2014;
 * weighed as in Rombach et al., 2022).
 * @param noise [B, latent_channels, H / reduction, W / reduction]
 */
export function autoencoderLoss(
  config: AutoencoderConfig,
  pictures: Value,
  noise: Value,
  klWeight: number,
): AutoencoderLoss {
  const { graph } = pictures;
  const { mean, logVariance } = encodePictures(config, pictures);
  const deviation = exp(mul(logVariance, graph.scalar(0.5)));
  const error = sub(decodeLatents(config, add(mean, mul(deviation, noise))), pictures);
  const reconstruction = mul(sumAll(mul(error, error)), graph.scalar(1 / pictures.size));
  const squares = mul(mean, mean);
  const spread = sub(add(squares, exp(logVariance)), add(logVariance, graph.scalar(1)));
  return {
    loss: add(reconstruction, mul(sumAll(spread), graph.scalar(klWeight / (2 * pictures.size)))),
    reconstruction,
    meanSquare: mul(sumAll(squares), graph.scalar(1 / mean.size)),
  };
}
