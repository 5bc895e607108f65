/**
 * An evaluator of graphs in float64, operator by operator from the ONNX specification in plain loops. It shares nothing with the
 * runtime, and its precision makes finite differences tight. Integers and truth values are numbers too.
 */
import {
  type NodeOrigin,
  type OpAttributes,
  type OpType,
  type Shape,
  sizeOf,
  topological,
  type Value,
} from '../../../src/compute/graph/ir.js';

export interface Dense {
  readonly shape: Shape;
  readonly data: Float64Array;
}

type Rule<Attributes = object> = (inputs: readonly Dense[], attributes: Attributes) => Dense;

/** Values of `outputs`, given the data of every input and parameter that they depend on. */
export function evaluate(
  outputs: readonly Value[],
  feeds: ReadonlyMap<Value, ArrayLike<number | bigint>>,
): Float64Array[] {
  const known = new Map<Value, Dense>();
  for (const value of topological(outputs)) {
    const { origin, shape } = value;
    if (origin.kind === 'node') {
      known.set(value, evaluateNode(origin, known, shape));
      continue;
    }
    const data = origin.kind === 'constant' ? origin.data : feeds.get(value);
    if (data === undefined) throw new Error(`nothing is fed to ${String(value)}`);
    known.set(value, { shape, data: Float64Array.from(Array.from<number | bigint, number>(data, Number)) });
  }
  return outputs.map((output) => lookUp(known, output).data);
}

function evaluateNode(origin: NodeOrigin, known: ReadonlyMap<Value, Dense>, shape: Shape): Dense {
  const inputs = origin.inputs.map((input) => lookUp(known, input));
  const out = (rules[origin.op] as Rule)(inputs, origin.attributes);
  if (out.data.length !== sizeOf(shape) || out.shape.join() !== shape.join()) {
    throw new Error(`${origin.op}: the reference gives [${out.shape.join()}], the graph says [${shape.join()}]`);
  }
  return out;
}

function lookUp(known: ReadonlyMap<Value, Dense>, value: Value): Dense {
  const dense = known.get(value);
  if (dense === undefined) throw new Error(`${String(value)} has no value`);
  return dense;
}

/** Visits every index of a shape in row-major order. */
function indices(shape: Shape): number[][] {
  let out: number[][] = [[]];
  for (const size of shape) {
    out = out.flatMap((index) => Array.from({ length: size }, (_, i) => [...index, i]));
  }
  return out;
}

/** The element of `x` at an index of a shape that `x` broadcasts to. */
function at(x: Dense, index: readonly number[]): number {
  const lead = index.length - x.shape.length;
  let offset = 0;
  x.shape.forEach((size, axis) => {
    offset = offset * size + (size === 1 ? 0 : index[lead + axis]);
  });
  return x.data[offset];
}

function fill(shape: Shape, element: (index: readonly number[]) => number): Dense {
  return { shape, data: Float64Array.from(indices(shape), element) };
}

function commonShape(...shapes: readonly Shape[]): number[] {
  const rank = Math.max(...shapes.map((shape) => shape.length));
  return Array.from({ length: rank }, (_, axis) =>
    shapes.reduce((size, shape) => {
      const own = shape[axis - rank + shape.length] ?? 1;
      return own === 1 ? size : own;
    }, 1),
  );
}

function pairwise(f: (a: number, b: number) => number): Rule {
  return ([a, b]) => fill(commonShape(a.shape, b.shape), (index) => f(at(a, index), at(b, index)));
}

function each(f: (x: number) => number): Rule {
  return ([x]) => ({ shape: x.shape, data: x.data.map(f) });
}

function reduce(f: (elements: readonly number[]) => number): Rule<OpAttributes['ReduceSum']> {
  return ([x], { axes }) => {
    const shape = x.shape.map((size, axis) => (axes.includes(axis) ? 1 : size));
    const inner = x.shape.map((size, axis) => (axes.includes(axis) ? size : 1));
    return fill(shape, (index) =>
      f(
        indices(inner).map((extra) =>
          at(
            x,
            extra.map((i, axis) => i + index[axis]),
          ),
        ),
      ),
    );
  };
}

function alongLast(f: (row: readonly number[]) => number[]): Rule {
  return ([x]) => {
    const width = x.shape[x.shape.length - 1];
    const data = new Float64Array(x.data.length);
    for (let start = 0; start < data.length; start += width) {
      data.set(f(Array.from(x.data.subarray(start, start + width))), start);
    }
    return { shape: x.shape, data };
  };
}

const sum = (xs: readonly number[]): number => xs.reduce((total, x) => total + x, 0);

function logSumExp(row: readonly number[]): number {
  const top = Math.max(...row);
  return top + Math.log(sum(row.map((x) => Math.exp(x - top))));
}

/** The error function by its Maclaurin series, which converges to double precision for the small arguments of tests. */
function erf(x: number): number {
  let term = x;
  let total = x;
  for (let n = 1; n < 200; n++) {
    term *= (-x * x) / n;
    total += term / (2 * n + 1);
  }
  return (2 / Math.sqrt(Math.PI)) * total;
}

const replaced = (index: readonly number[], axis: number, by: number): number[] =>
  index.map((i, a) => (a === axis ? by : i));

const rules: { readonly [K in OpType]: Rule<OpAttributes[K]> } = {
  Add: pairwise((a, b) => a + b),
  Sub: pairwise((a, b) => a - b),
  Mul: pairwise((a, b) => a * b),
  Div: pairwise((a, b) => a / b),
  Min: pairwise(Math.min),
  Max: pairwise(Math.max),
  Neg: each((x) => -x),
  Exp: each(Math.exp),
  Log: each(Math.log),
  Sqrt: each(Math.sqrt),
  Reciprocal: each((x) => 1 / x),
  Sigmoid: each((x) => 1 / (1 + Math.exp(-x))),
  Tanh: each(Math.tanh),
  Relu: each((x) => Math.max(x, 0)),
  Erf: each(erf),
  Abs: each(Math.abs),
  Sin: each(Math.sin),
  Cos: each(Math.cos),
  Gelu: each((x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)))),
  Equal: pairwise((a, b) => Number(a === b)),
  Less: pairwise((a, b) => Number(a < b)),
  Greater: pairwise((a, b) => Number(a > b)),
  Where: ([condition, yes, no]) =>
    fill(commonShape(condition.shape, yes.shape, no.shape), (index) =>
      at(condition, index) !== 0 ? at(yes, index) : at(no, index),
    ),
  Cast: ([x], { to }) => ({
    shape: x.shape,
    data: x.data.map({ float32: (v: number) => v, int64: Math.trunc, bool: (v: number) => Number(v !== 0) }[to]),
  }),
  MatMul: ([a, b]) => {
    const [rows, inner] = a.shape.slice(-2);
    const columns = b.shape[b.shape.length - 1];
    const lead = commonShape(a.shape.slice(0, -2), b.shape.slice(0, -2));
    return fill([...lead, rows, columns], (index) => {
      const outer = index.slice(0, -2);
      const [row, column] = index.slice(-2);
      return sum(Array.from({ length: inner }, (_, k) => at(a, [...outer, row, k]) * at(b, [...outer, k, column])));
    });
  },
  Gemm: ([a, b, bias], { transA, transB, alpha }) => {
    const inner = a.shape[transA ? 0 : 1];
    return fill([a.shape[transA ? 1 : 0], b.shape[transB ? 0 : 1]], ([row, column]) => {
      const terms = Array.from(
        { length: inner },
        (_, k) => at(a, transA ? [k, row] : [row, k]) * at(b, transB ? [column, k] : [k, column]),
      );
      return alpha * sum(terms) + (bias === undefined ? 0 : at(bias, [column]));
    });
  },
  Reshape: ([x], { shape }) => ({ shape, data: x.data }),
  Transpose: ([x], { perm }) =>
    fill(
      perm.map((axis) => x.shape[axis]),
      (index) => {
        const source: number[] = [];
        perm.forEach((axis, position) => (source[axis] = index[position]));
        return at(x, source);
      },
    ),
  Expand: ([x], { shape }) => fill(shape, (index) => at(x, index)),
  Concat: (inputs, { axis }) => {
    const total = sum(inputs.map((input) => input.shape[axis]));
    return fill(replaced(inputs[0].shape, axis, total), (index) => {
      let position = index[axis];
      for (const input of inputs) {
        if (position < input.shape[axis]) return input.data[offsetOf(input, replaced(index, axis, position))];
        position -= input.shape[axis];
      }
      throw new Error('beyond the last input');
    });
  },
  Slice: ([x], { axis, start, end }) =>
    fill(
      replaced(x.shape, axis, end - start),
      (index) => x.data[offsetOf(x, replaced(index, axis, index[axis] + start))],
    ),
  Pad: ([x], { axis, before, after }) =>
    fill(replaced(x.shape, axis, before + x.shape[axis] + after), (index) => {
      const position = index[axis] - before;
      return position < 0 || position >= x.shape[axis] ? 0 : x.data[offsetOf(x, replaced(index, axis, position))];
    }),
  Gather: ([data, picks], { axis }) =>
    fill([...data.shape.slice(0, axis), ...picks.shape, ...data.shape.slice(axis + 1)], (index) => {
      const pick = at(picks, index.slice(axis, axis + picks.shape.length));
      return data.data[offsetOf(data, [...index.slice(0, axis), pick, ...index.slice(axis + picks.shape.length)])];
    }),
  GatherElements: ([data, picks], { axis }) =>
    fill(picks.shape, (index) => data.data[offsetOf(data, replaced(index, axis, at(picks, index)))]),
  ScatterElements: ([data, picks, updates], { axis }) => {
    const out = { shape: data.shape, data: data.data.slice() };
    fill(picks.shape, (index) => {
      out.data[offsetOf(data, replaced(index, axis, at(picks, index)))] += at(updates, index);
      return 0;
    });
    return out;
  },
  ReduceSum: reduce(sum),
  ReduceMean: reduce((xs) => sum(xs) / xs.length),
  ReduceMax: reduce((xs) => Math.max(...xs)),
  ReduceSumSquare: reduce((xs) => sum(xs.map((x) => x * x))),
  ArgMin: ([x], { axis }) =>
    fill(replaced(x.shape, axis, 1), (index) => {
      const line = Array.from({ length: x.shape[axis] }, (_, i) => x.data[offsetOf(x, replaced(index, axis, i))]);
      return line.indexOf(Math.min(...line));
    }),
  Conv: ([x, kernels, bias], { strides, pads, dilations }) => {
    const shape = [0, 1].map((a) =>
      Math.floor(
        (x.shape[2 + a] + pads[a] + pads[a + 2] - dilations[a] * (kernels.shape[2 + a] - 1) - 1) / strides[a] + 1,
      ),
    );
    return fill([x.shape[0], kernels.shape[0], ...shape], ([n, o, row, column]) => {
      const terms = indices(kernels.shape.slice(1)).map(([c, i, j]) => {
        const [y, z] = [
          row * strides[0] + i * dilations[0] - pads[0],
          column * strides[1] + j * dilations[1] - pads[1],
        ];
        const inside = y >= 0 && z >= 0 && y < x.shape[2] && z < x.shape[3];
        return inside ? at(x, [n, c, y, z]) * at(kernels, [o, c, i, j]) : 0;
      });
      return sum(terms) + ((bias as Dense | undefined) === undefined ? 0 : at(bias, [o]));
    });
  },
  // every element of x spreads a kernel over the picture
  ConvTranspose: ([x, kernels], { strides, pads, dilations, outputPadding }) => {
    const shape = [0, 1].map(
      (a) =>
        strides[a] * (x.shape[2 + a] - 1) +
        dilations[a] * (kernels.shape[2 + a] - 1) +
        1 +
        outputPadding[a] -
        pads[a] -
        pads[a + 2],
    );
    const out = { shape: [x.shape[0], kernels.shape[1], ...shape], data: new Float64Array(0) };
    const data = new Float64Array(out.shape.reduce((size, n) => size * n, 1));
    for (const [n, o, row, column] of indices(x.shape)) {
      for (const [c, i, j] of indices(kernels.shape.slice(1))) {
        const [y, z] = [
          row * strides[0] + i * dilations[0] - pads[0],
          column * strides[1] + j * dilations[1] - pads[1],
        ];
        if (y < 0 || z < 0 || y >= shape[0] || z >= shape[1]) continue;
        data[offsetOf(out, [n, c, y, z])] += at(x, [n, o, row, column]) * at(kernels, [o, c, i, j]);
      }
    }
    return { shape: out.shape, data };
  },
  LayerNormalization: ([x, scale, shift], { epsilon }) => {
    const n = alongLast((row) => {
      const mean = row.reduce((sum, one) => sum + one, 0) / row.length;
      const variance = row.reduce((sum, one) => sum + (one - mean) ** 2, 0) / row.length;
      return row.map((one) => (one - mean) / Math.sqrt(variance + epsilon));
    })([x], {});
    return fill(x.shape, (index) => at(n, index) * at(scale, index) + at(shift, index));
  },
  RMSNormalization: ([x, scale], { epsilon }) => {
    const n = alongLast((row) => {
      const square = row.reduce((sum, one) => sum + one ** 2, 0) / row.length;
      return row.map((one) => one / Math.sqrt(square + epsilon));
    })([x], {});
    return fill(x.shape, (index) => at(n, index) * at(scale, index));
  },
  Softmax: alongLast((row) => row.map((x) => Math.exp(x - logSumExp(row)))),
  LogSoftmax: alongLast((row) => row.map((x) => x - logSumExp(row))),
  // the pair (i, i + depth/2), or (2i, 2i + 1) where interleaved, is turned by the angle of its position (ONNX 23)
  RotaryEmbedding: ([x, cos, sin, positions], { interleaved }) => {
    const half = x.shape[3] / 2;
    return fill(x.shape, (index) => {
      const [batch, , place, depth] = index;
      const pair = interleaved ? Math.floor(depth / 2) : depth % half;
      const members = interleaved ? [2 * pair, 2 * pair + 1] : [pair, pair + half];
      const angle = [at(positions, [batch, place]), pair];
      const [c, s] = [cos.data[offsetOf(cos, angle)], sin.data[offsetOf(sin, angle)]];
      const [low, high] = members.map((d) => x.data[offsetOf(x, replaced(index, 3, d))]);
      return depth === members[0] ? c * low - s * high : s * low + c * high;
    });
  },
};

/** The row-major offset of an index within `x`, without broadcasting. */
function offsetOf(x: Dense, index: readonly number[]): number {
  let offset = 0;
  x.shape.forEach((size, axis) => {
    if (index[axis] < 0 || index[axis] >= size) throw new Error(`index ${index[axis]} of size ${size}`);
    offset = offset * size + index[axis];
  });
  return offset;
}
