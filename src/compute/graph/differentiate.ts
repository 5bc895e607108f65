/**
 * Reverse-mode differentiation. The driver finds the path, accumulates gradients, and sums over broadcast axes, so that
 * each rule stays one line.
 */
import { GraphError, InternalError } from '../../core/errors.js';
import {
  formatShape,
  type NodeOrigin,
  type OpAttributes,
  type OpType,
  sameShape,
  type Shape,
  type Value,
} from './ir.js';
import { add, concat, expand, pad, reduceSum, reshape } from './build.js';
import { type GradientRule, gradientRules } from './gradients.js';

/**
 * Gradients of a scalar with respect to `targets`, as nodes of the same graph. Raises GraphError if the loss does not
 * depend on a target, or if an operator on the path passes no gradient.
 */
export function gradients(loss: Value, targets: readonly Value[]): Value[] {
  if (loss.size !== 1) throw new GraphError(`only a scalar can be differentiated, not ${String(loss)}`);
  const seed = expand(loss.graph.scalar(1), loss.shape);
  return vectorJacobian(loss, seed, targets).map((gradient, at) => {
    if (gradient === null) throw new GraphError(`the loss does not depend on ${String(targets[at])}`);
    return gradient;
  });
}

/** The product of `seed` (the gradient of `root`) with the Jacobian of `root`. Null without a dependence. */
export function vectorJacobian(root: Value, seed: Value, targets: readonly Value[]): (Value | null)[] {
  const wanted = new Set(targets);
  const order = forwardOrder(root);
  const onPath = new Set<Value>();
  for (const value of order) {
    if (wanted.has(value) || gradientInputs(value).some((input) => onPath.has(input))) onPath.add(value);
  }
  const accumulated = new Map<Value, Accumulator>([[root, new Accumulator(root)]]);
  accumulated.get(root)!.add(seed);
  const into = (input: Value): Accumulator => {
    const known = accumulated.get(input) ?? new Accumulator(input);
    accumulated.set(input, known);
    return known;
  };
  for (const value of order.reverse()) {
    const accumulator = accumulated.get(value);
    if (accumulator === undefined || !onPath.has(value)) continue;
    if (wanted.has(value) && gradientInputs(value).every((input) => !onPath.has(input))) continue;
    const d = accumulator.total();
    const { origin } = value;
    if (value.custom === null && origin.kind === 'node' && origin.op === 'Slice') {
      into(origin.inputs[0]).addPiece(origin.attributes as OpAttributes['Slice'], d);
      continue;
    }
    const inputs = gradientInputs(value);
    const entries = entriesOf(value, d, onPath);
    if (entries.length !== inputs.length) {
      throw new InternalError(`${String(value)}: ${entries.length} gradients for ${inputs.length} inputs`);
    }
    inputs.forEach((input, at) => {
      const entry = entries[at];
      if (!onPath.has(input)) return;
      if (entry === null) {
        if (value.custom === null && input.dtype === 'float32') throw noGradient(value, [input]);
        return;
      }
      into(input).add(sumTo(entry, input.shape));
    });
  }
  return targets.map((target) => (onPath.has(target) ? (accumulated.get(target)?.total() ?? null) : null));
}

/**
 * Sums the gradients of one value. Slices that partition an axis without gap or overlap are joined instead of padded
 * and added.
 */
class Accumulator {
  #sum: Value | null = null;
  #pieces: (OpAttributes['Slice'] & { readonly d: Value })[] = [];

  constructor(private readonly value: Value) {}

  add(gradient: Value): void {
    this.#sum = this.#sum === null ? gradient : add(this.#sum, gradient);
  }

  /** The gradient of `[start, end)` along an axis. */
  addPiece(place: OpAttributes['Slice'], d: Value): void {
    this.#pieces.push({ ...place, d });
  }

  total(): Value {
    const pieces = this.#pieces.sort((a, b) => a.start - b.start);
    this.#pieces = [];
    if (tiles(pieces, this.value.shape)) {
      this.add(
        concat(
          pieces.map(({ d }) => d),
          pieces[0].axis,
        ),
      );
    } else {
      for (const { axis, start, end, d } of pieces) this.add(pad(d, axis, start, this.value.shape[axis] - end));
    }
    if (this.#sum === null) throw new InternalError(`${String(this.value)} receives no gradient`);
    return this.#sum;
  }
}

function tiles(pieces: readonly OpAttributes['Slice'][], shape: Shape): boolean {
  if (pieces.length < 2) return false;
  const { axis } = pieces[0];
  let at = 0;
  for (const piece of pieces) {
    if (piece.axis !== axis || piece.start !== at) return false;
    at = piece.end;
  }
  return at === shape[axis];
}

function gradientInputs(value: Value): readonly Value[] {
  if (value.custom !== null) return value.custom.inputs;
  return value.origin.kind === 'node' ? value.origin.inputs : [];
}

/**
 * The values that `root` depends on through differentiable inputs, inputs first. The inside of a custom region is not
 * visited. Every value is younger than its inputs, so sorting by id is enough.
 */
function forwardOrder(root: Value): Value[] {
  const reachable = new Set<Value>([root]);
  for (const value of reachable) for (const input of gradientInputs(value)) reachable.add(input);
  return [...reachable].sort((a, b) => a.id - b.id);
}

function entriesOf(value: Value, d: Value, onPath: ReadonlySet<Value>): readonly (Value | null)[] {
  const { custom } = value;
  if (custom !== null) {
    const needed = custom.inputs.map((input) => onPath.has(input));
    return value.graph.scope(`d_${custom.name}`, () => custom.gradient(d, needed));
  }
  const origin = value.origin as NodeOrigin;
  const rule = gradientRules[origin.op] as GradientRule<OpType> | 'none';
  if (rule === 'none') {
    throw noGradient(
      value,
      origin.inputs.filter((input) => onPath.has(input)),
    );
  }
  return rule({ inputs: origin.inputs, output: value, attributes: origin.attributes, d });
}

function noGradient(value: Value, blocked: readonly Value[]): GraphError {
  const { op } = value.origin as NodeOrigin;
  return new GraphError(`${op} passes no gradient, but ${blocked.join(', ')} needs one through ${String(value)}`, {
    where: `graph ${value.graph.name}`,
    next: 'Stop the gradient before it (use the value as an input), or write a rule in graph/gradients.ts.',
  });
}

/** Sums a gradient over the axes along which `shape` was broadcast. */
function sumTo(gradient: Value, shape: Shape): Value {
  if (sameShape(gradient.shape, shape)) return gradient;
  if (gradient.shape.length < shape.length || gradient.size < shape.reduce((n, size) => n * size, 1)) {
    return expand(gradient, shape);
  }
  const lead = gradient.shape.length - shape.length;
  const axes: number[] = [];
  gradient.shape.forEach((size, axis) => {
    const own = axis < lead ? 1 : shape[axis - lead];
    if (own === 1 && (axis < lead || size !== 1)) axes.push(axis);
    else if (own !== size) {
      throw new InternalError(`gradient ${formatShape(gradient.shape)} does not fit ${formatShape(shape)}`);
    }
  });
  return reshape(axes.length === 0 ? gradient : reduceSum(gradient, axes), shape);
}
