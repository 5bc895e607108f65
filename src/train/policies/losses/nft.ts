/**
 * DiffusionNFT (Zheng et al., 2025, arXiv 2509.16117, NVlabs/DiffusionNFT). It learns on the forward process
 * x_t = (1 - t) x0 + t eps of images x0 from any sampler. With the velocity v, and v_old of the weights that sampled:
 *
 *   v+ = b v + (1 - b) v_old,   v- = (1 + b) v_old - b v,   x0(u) = x_t - t u
 *   L  = Z (r / b |x0(v+) - x0|^2 / w+ + (1 - r) / b |x0(v-) - x0|^2 / w-)
 *
 * |.|^2 is the mean over the elements. The weight w is the mean of |x0(u) - x0|, at least 1e-5, without a gradient.
 * r = 1/2 + clip(A / Z, -1, 1) / 2 comes from the advantage A and its limit Z. The action is the velocity eps - x0 from
 * the image to its noise, because x0(u) - x0 = t (eps - x0 - u).
 */
import { must } from '../../../core/errors.js';
import { abs, add, div, maximum, minimum, mul, neg, sub, withGradient } from '../../../compute/graph/build.js';
import type { Value } from '../../../compute/graph/ir.js';
import type { LossRule, WithKl } from './loss.js';

export interface NftLoss extends WithKl {
  readonly policy: 'nft';
  /** b: the distance of the two velocities from the velocity of the weights that sampled. */
  readonly beta: number;
  /** Z: the largest advantage that makes a difference. */
  readonly limit: number;
}

const MIN_WEIGHT = 1e-5;

export const nft: LossRule<NftLoss> = {
  reads: ['advantages'],
  ofMeans: true,
  gain: ({ beta, limit }, logProbs, input, gaussians) => {
    const { graph } = logProbs;
    const { means, old, drawn, level, average } = must(gaussians, 'the velocities of the actions');
    const by = (factor: number, value: Value): Value => mul(graph.scalar(factor), value);
    const [error, oldError] = [sub(drawn, means), sub(drawn, old)];
    const cost = (ofNew: number, ofOld: number): Value => {
      const off = mul(level, add(by(ofNew, error), by(ofOld, oldError)));
      const weight = maximum(average(abs(off)), graph.scalar(MIN_WEIGHT));
      return div(
        average(mul(off, off)),
        withGradient(weight, { name: 'fixed weight', inputs: [], gradient: () => [] }),
      );
    };
    const share = minimum(maximum(by(1 / limit, input('advantages')), graph.scalar(-1)), graph.scalar(1));
    const half = graph.scalar(limit / (2 * beta));
    const towards = mul(add(graph.scalar(1), share), cost(beta, 1 - beta));
    const away = mul(sub(graph.scalar(1), share), cost(-beta, 1 + beta));
    return neg(mul(half, add(towards, away)));
  },
};
