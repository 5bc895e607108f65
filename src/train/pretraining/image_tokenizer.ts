/** The image tokenizer: a small VQ autoencoder that is trained on pixels alone. */
import { RandomStream } from '../../core/random.js';
import type { SampleSource } from '../../data/types.js';
import { Graph } from '../../compute/graph/ir.js';
import { CONFIG_FILE, TOKENIZER_FILE } from '../../models/files.js';
import { autoencoderLoss, CODEBOOK, initImageTokenizer, patchSize } from '../../compute/nets/image_tokenizer.js';
import type { ImageTokenizerInit } from '../../config/schema/model.js';
import { meanOf, scalar, type Network } from './pretraining.js';

/** Interval in steps at which unused codes are moved to vectors of the batch. */
const REVIVE_EVERY = 25;
/** Last step at which codes are moved, so that they keep their meaning afterwards. */
const REVIVE_UNTIL = 300;

/** Peak signal-to-noise ratio in decibels for a mean squared error over [0, 1]. */
export function psnr(meanSquaredError: number): number {
  return -10 * Math.log10(meanSquaredError);
}

/** Results on a batch of images. */
interface Measured {
  readonly error: number;
  readonly codes: BigInt64Array;
}

/**
 * The network for batches of `size` images, each as patches [patches of the image, numbers]. `tokenizerJson` is the
 * file of the joint vocabulary for the codes. Raises the errors of reading the images.
 */
export async function tokenizerNetwork(
  {
    seed,
    init,
    size,
    tokenizerJson,
  }: {
    readonly seed: number;
    readonly init: ImageTokenizerInit;
    readonly size: number;
    readonly tokenizerJson: string;
  },
  images: { readonly train: readonly Patches[]; readonly validation: readonly Patches[] },
): Promise<Network<Promise<Float32Array>, Measured>> {
  const all = (source: Patches) => Promise.all(Array.from({ length: source.length }, (_, index) => source.read(index)));
  const train = (await Promise.all(images.train.map(all))).flat();
  await Promise.all(images.validation.map(all));
  const numbers = patchSize(init);
  const rows = size * Math.max(...train.map(({ length }) => length / numbers));
  const graph = new Graph('image tokenizer');
  const { loss, ...outputs } = autoencoderLoss(init, graph.input('patches', [rows, numbers]));
  const weights = initImageTokenizer(init, seed);

  /**
   * Moves unused codes to vectors of the latest batch, so that the codebook does not collapse (Dhariwal et al., 2020).
   */
  const revive = (iteration: number, vectors: Float32Array, codes: BigInt64Array): void => {
    const { code_dim, codebook_size } = init;
    const codebook = weights.get(CODEBOOK)!.data;
    const stream = new RandomStream(seed, 'revive', iteration);
    const used = new Set(codes);
    for (let code = 0; code < codebook_size; code++) {
      if (used.has(BigInt(code))) continue;
      const row = stream.integer(vectors.length / code_dim);
      for (let d = 0; d < code_dim; d++) {
        codebook[code * code_dim + d] = vectors[row * code_dim + d] + 0.01 * stream.normal();
      }
    }
  };

  return {
    loss,
    outputs,
    weights,
    feeds: async (samples) => {
      const batch = await Promise.all(samples);
      const patches = new Float32Array(rows * numbers);
      let at = 0;
      // If images are smaller than the largest one, the remaining rows repeat the batch from its beginning.
      for (let i = 0; at < patches.length; i++) {
        const image = batch[i % batch.length];
        patches.set(image.subarray(0, Math.min(image.length, patches.length - at)), at);
        at += image.length;
      }
      return { patches };
    },
    afterStep: (iteration, out) => {
      const isDue = iteration % REVIVE_EVERY === 0 && iteration <= REVIVE_UNTIL;
      if (isDue) revive(iteration, out['vectors'] as Float32Array, out['codes'] as BigInt64Array);
      return {};
    },
    measure: (out) => ({ error: scalar(out, 'reconstruction'), codes: out['codes'] as BigInt64Array }),
    evaluationMetrics: (batches) => {
      const error = meanOf(batches, (one) => one.error);
      const used = new Set(batches.flatMap(({ codes }) => [...codes]));
      return {
        'validation/loss': error,
        'validation/psnr': psnr(error),
        'codebook/used': used.size / init.codebook_size,
      };
    },
    stoppingLossName: 'error',
    limitsAllSetsTogether: true,
    files: () => ({ [CONFIG_FILE]: `${JSON.stringify(init, null, 2)}\n`, [TOKENIZER_FILE]: tokenizerJson }),
  };
}

type Patches = SampleSource<Promise<Float32Array>>;
