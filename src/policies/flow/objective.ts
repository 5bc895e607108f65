/** A flow policy's training graph behind the velocity: what is known of each action of a micro-batch, and the loss on them. */
import { add, mul, reduceSum, reshape, sub } from '../../graph/build.js';
import type { Value } from '../../graph/ir.js';
import { weightedLoss } from '../../nets/losses.js';
import { ruleOf, type LossSpec } from '../losses/table.js';

/** The Gaussians of a micro-batch's actions; see `Gaussian`. */
export interface FlowActions {
  /** [B] averaged over the elements. */
  readonly logProbs: Value;
  /** [B, N, C] */
  readonly means: Value;
  readonly drawn: Value;
  /** [B] */
  readonly precision: Value;
  /** [B, N, C] the weight of each element, 1 on average; null if all weigh the same. */
  readonly counted: Value | null;
}

/** Of the model's inputs `x` and its velocities `v`, [B, N, C] both. Declares the inputs that the actions are fed in; `counts` for weighted elements. */
export function flowActions(x: Value, v: Value, counts: boolean): FlowActions {
  const { graph } = v;
  const [batch] = v.shape;
  const scalars = (name: string): Value => graph.input(name, [batch]);
  const wide = (value: Value): Value => reshape(value, [batch, 1, 1]);
  const means = add(mul(wide(scalars('of_x')), x), mul(wide(scalars('of_velocity')), v));
  const precision = scalars('precision');
  const counted = counts ? graph.input('counted', means.shape) : null;
  const drawn = graph.input('drawn', means.shape);
  const off = sub(drawn, means);
  const squares = mul(off, off);
  const offset = scalars('offset');
  const error = averageOf(squares, counted);
  return { logProbs: sub(offset, mul(precision, error)), means, drawn, precision, counted };
}

/** The scalar loss, and what is reported of each action beside it; `sigma` [B] are the actions' noise levels. Declares the loss's inputs. */
export function flowObjective(
  { logProbs, means, drawn, precision, counted }: FlowActions,
  loss: LossSpec,
  sigma: Value,
): { readonly scalar: Value; readonly told: Record<string, Value> } {
  const { graph } = logProbs;
  const input = (name: string): Value => graph.input(name, logProbs.shape);
  const { kl = null } = loss;
  const rule = ruleOf(loss);
  const average = (of: Value): Value => averageOf(of, counted);
  const from = (other: Value): Value => {
    const away = sub(means, other);
    return mul(precision, average(mul(away, away)));
  };
  const divergence = kl === null ? null : from(graph.input('reference', means.shape));
  const old = rule.ofMeans === true ? graph.input('old_means', means.shape) : null;
  const level = reshape(sigma, [sigma.size, 1, 1]);
  const gaussians = old === null ? undefined : { means, old, drawn, level, average, moved: from(old) };
  const scalar = weightedLoss(
    input('weights'),
    rule.gain(loss, logProbs, input, gaussians),
    kl === null || divergence === null ? null : mul(divergence, graph.scalar(kl.coefficient)),
  );
  return {
    scalar,
    told: { logProbs, ...(divergence === null ? {} : { divergence }), ...(gaussians && { moved: gaussians.moved }) },
  };
}

/** [B] means over all but the first axis, each element weighted by `counted`. */
function averageOf(x: Value, counted: Value | null): Value {
  const [batch] = x.shape;
  const weighted = counted === null ? x : mul(x, counted);
  return mul(reshape(reduceSum(weighted, [1, 2]), [batch]), x.graph.scalar(batch / x.size));
}
