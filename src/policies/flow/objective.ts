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
  const error = meanSquare(sub(graph.input('drawn', means.shape), means), counted);
  return { logProbs: sub(scalars('offset'), mul(precision, error)), means, precision, counted };
}

/** The scalar loss, and what is reported of each action beside it. Declares the loss's inputs. */
export function flowObjective(
  { logProbs, means, precision, counted }: FlowActions,
  loss: LossSpec,
): { readonly scalar: Value; readonly told: Record<string, Value> } {
  const { graph } = logProbs;
  const input = (name: string): Value => graph.input(name, logProbs.shape);
  const { kl = null } = loss;
  const rule = ruleOf(loss);
  const from = (name: 'reference' | 'old_means'): Value =>
    mul(precision, meanSquare(sub(means, graph.input(name, means.shape)), counted));
  const divergence = kl === null ? null : from('reference');
  const gaussians = rule.ofMeans === true ? { moved: from('old_means') } : undefined;
  const scalar = weightedLoss(
    input('weights'),
    rule.gain(loss, logProbs, input, gaussians),
    kl === null || divergence === null ? null : mul(divergence, graph.scalar(kl.coefficient)),
  );
  return { scalar, told: { logProbs, ...(divergence === null ? {} : { divergence }), ...gaussians } };
}

/** [B] means of x^2 over all but the first axis, each element weighted by `counted`. */
function meanSquare(x: Value, counted: Value | null): Value {
  const [batch] = x.shape;
  const squares = counted === null ? mul(x, x) : mul(mul(x, x), counted);
  return mul(reshape(reduceSum(squares, [1, 2]), [batch]), x.graph.scalar(batch / x.size));
}
