/**
 * Gradient checkpointing (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016): a region keeps only its
 * inputs, and the backward pass recomputes its inner values.
 */
import { GraphError } from '../../core/errors.js';
import { apply, reshape, slice, where, withGradient } from './build.js';
import { vectorJacobian } from './differentiate.js';
import type { Graph, Value } from './ir.js';

/** The graph input that keeps a runtime from merging or moving recomputed nodes: a bool scalar, true at every run. */
export const CHECKPOINT_INPUT = 'checkpoint_keep';

/**
 * Computes `build(inputs)` and discards its inner values until the gradient needs them. `build` runs once for the
 * forward pass and once for every differentiation, and must make the same nodes each time. Captured parameters and
 * outer values get their gradients too. Raises GraphError if `build` uses a graph input other than through its
 * argument.
 */
export function checkpoint(name: string, inputs: readonly Value[], build: (inputs: readonly Value[]) => Value): Value {
  if (inputs.length === 0) throw new GraphError(`checkpoint ${name} needs at least one input`);
  const first = inputs[0].graph.valueCount;
  const made = build(inputs);
  const captured = capturedBy(made, first, inputs);
  const inside = made.origin.kind === 'node' && made.id >= first;
  const output = inside ? made : apply('Reshape', [made], { shape: made.shape });
  return withGradient(output, {
    name,
    inputs: [...inputs, ...captured],
    gradient: (d, needed) => {
      const entries = inputs.map((input) => computedAfter(input, [d]));
      const targets = [...entries, ...captured];
      const again = rebuild(name, entries, captured, build);
      const wanted = targets.filter((_, at) => needed[at]);
      const found = vectorJacobian(again, d, wanted);
      let next = 0;
      const all = targets.map((_, at) => (needed[at] ? found[next++] : null));
      // Later computations wait for the gradients of the captured values, so that this region's inner values are freed
      // before the previous region's are made.
      const local = all.slice(inputs.length).filter((gradient) => gradient !== null);
      return all.map((gradient, at) =>
        gradient !== null && at < inputs.length ? computedAfter(gradient, local) : gradient,
      );
    },
  });
}

function rebuild(
  name: string,
  entries: readonly Value[],
  captured: readonly Value[],
  build: (inputs: readonly Value[]) => Value,
): Value {
  const first = entries[0].graph.valueCount;
  const again = build(entries);
  const strange = capturedBy(again, first, entries).find((value) => !captured.includes(value));
  if (strange === undefined) return again;
  throw new GraphError(`checkpoint ${name}: the second pass uses ${String(strange)}, which the first did not capture`, {
    where: `graph ${again.graph.name}`,
    next: "Pass the region's inputs through its argument, and make the same nodes each time.",
  });
}

/**
 * `x` unchanged, computed only after `others`. The node is a selection by a flag known only at run time, so no
 * optimization can remove it. It never computes with the elements of `others`, which may be infinite. Stops gradients.
 * Integer and boolean values are returned as they are.
 */
export function computedAfter(x: Value, others: readonly Value[]): Value {
  const waited = others.filter((other) => other.dtype === 'float32' && other.size > 0);
  if (x.dtype !== 'float32' || waited.length === 0) return x;
  const keep = keepFlag(x.graph);
  const fallback = waited.map(element).reduce((known, other) => where(keep, other, known));
  return withGradient(where(keep, x, fallback), { name: 'after', inputs: [], gradient: () => [] });
}

/** One element of a value, as a scalar. */
function element(x: Value): Value {
  return reshape(slice(reshape(x, [x.size]), 0, 0, 1), []);
}

function keepFlag(graph: Graph): Value {
  return graph.inputs.find((input) => input.name === CHECKPOINT_INPUT) ?? graph.input(CHECKPOINT_INPUT, [], 'bool');
}

/**
 * The float values other than `inputs` from which `output` or its gradient is computed, oldest first: parameters, and values older than the region.
 */
function capturedBy(output: Value, first: number, inputs: readonly Value[]): Value[] {
  const given = new Set(inputs);
  const isOuter = (value: Value): boolean => value.id < first || value.origin.kind === 'parameter';
  const seen = new Set<Value>([output]);
  for (const value of seen) {
    if (given.has(value) || isOuter(value)) continue;
    const computedFrom = value.origin.kind === 'node' ? value.origin.inputs : [];
    for (const input of [...computedFrom, ...(value.custom?.inputs ?? [])]) seen.add(input);
  }
  return [...seen]
    .filter((value) => !given.has(value) && isOuter(value))
    .filter(({ dtype, origin }) => dtype === 'float32' && origin.kind !== 'constant')
    .sort((a, b) => a.id - b.id);
}
