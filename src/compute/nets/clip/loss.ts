/** CLIP's training loss: which texts and images of a batch belong together. */
import { must } from '../../../core/errors.js';
import {
  add,
  div,
  exp,
  gemm,
  logSoftmax,
  mul,
  neg,
  reduceSumSquare,
  sqrt,
  sub,
  sumAll,
  transpose,
} from '../../graph/build.js';
import type { Value } from '../../graph/ir.js';
import { LOGIT_SCALE } from './clip.js';

/** Scalars of a batch. */
export interface ContrastiveLoss {
  readonly loss: Value;
  /** Cross-entropy of the right partner, in nats, both ways. */
  readonly contrast: Value;
  /** Mean cosine of matching pairs. */
  readonly matched: Value;
  /** Cosines [B, B], of images by texts. */
  readonly cosines: Value;
}

/** The maximum of the logarithm of the cosines' factor, as in CLIP. */
const MAX_LOGIT_SCALE = Math.log(100);

/**
 * Limits the scale to its maximum. Call it after every step. The loss cannot do this, because a clipped scale would
 * have no gradient.
 */
export function clampLogitScale(weights: ReadonlyMap<string, { readonly data: Float32Array }>): void {
  const { data } = must(weights.get(LOGIT_SCALE), LOGIT_SCALE);
  data[0] = Math.min(data[0], MAX_LOGIT_SCALE);
}

/**
 * The mean of both cross-entropies over scale * cosines [B, B] (CLIP's loss), plus (mean matched cosine - `held`)^2 if
 * `held` is given.
 * @param images [B, E]
 * @param texts [B, E], of which the i-th belongs to the i-th image
 */
export function contrastiveLoss(images: Value, texts: Value, held: number | null): ContrastiveLoss {
  const { graph } = images;
  const [batch] = images.shape as [number];
  const scale = exp(graph.parameter(LOGIT_SCALE, []));
  const cosines = gemm(directions(images), directions(texts), { transB: true });
  const own = graph.constant(
    Float32Array.from({ length: batch ** 2 }, (_, i) => (i % (batch + 1) === 0 ? 1 / batch : 0)),
    [batch, batch],
  );
  const meanOfOwn = (values: Value): Value => sumAll(mul(values, own));
  const logits = mul(cosines, scale);
  const ofImages = meanOfOwn(logSoftmax(logits));
  const ofTexts = meanOfOwn(logSoftmax(transpose(logits, [1, 0])));
  const contrast = mul(neg(add(ofImages, ofTexts)), graph.scalar(0.5));
  const matched = meanOfOwn(cosines);
  if (held === null) return { loss: contrast, contrast, matched, cosines };
  const apart = sub(matched, graph.scalar(held));
  return { loss: add(contrast, mul(mul(apart, apart), graph.scalar(HELD_WEIGHT))), contrast, matched, cosines };
}

/** Large enough to keep the matched cosine at its target, although the contrast gains from larger ones. */
const HELD_WEIGHT = 10;

/** Rows of length 1. */
function directions(rows: Value): Value {
  return div(rows, sqrt(reduceSumSquare(rows, [1])));
}
