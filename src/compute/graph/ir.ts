/**
 * The intermediate representation: a graph of ONNX operators whose values carry shape and dtype. `apply` (build.ts)
 * makes values, which never change. A Graph owns only their numbering and its inputs.
 */
import { GraphError } from '../../core/errors.js';

export type Dtype = 'float32' | 'int64' | 'bool';

export type Shape = readonly number[];

/** How the kernel of a two-dimensional convolution moves: rows, then columns. */
export interface Convolution {
  readonly strides: readonly [number, number];
  /** Zeros around the image: top, left, bottom, right. */
  readonly pads: readonly [number, number, number, number];
  /** The distance between image elements that neighboring kernel elements read. */
  readonly dilations: readonly [number, number];
}

type None = Readonly<Record<never, never>>;

/** Every operator. One that is listed here without a specification in operators.ts does not compile. */
export interface OpAttributes {
  // elementwise with broadcasting
  Add: None;
  Sub: None;
  Mul: None;
  Div: None;
  Min: None;
  Max: None;
  // elementwise
  Neg: None;
  Exp: None;
  Log: None;
  Sqrt: None;
  Reciprocal: None;
  Sigmoid: None;
  Tanh: None;
  Relu: None;
  Erf: None;
  Abs: None;
  Sin: None;
  Cos: None;
  /** The tanh approximation. */
  Gelu: None;
  // comparison and choice
  Equal: None;
  Less: None;
  Greater: None;
  Where: None;
  Cast: { readonly to: Dtype };
  // products
  MatMul: None;
  /** alpha * op(a) op(b) + c over matrices, where op optionally transposes. c, one number a column, is optional. */
  Gemm: { readonly transA: boolean; readonly transB: boolean; readonly alpha: number };
  /** Images [N, C, H, W] convolved with kernels [O, C, h, w], plus an optional bias [O]: [N, O, H', W']. */
  Conv: Convolution;
  /**
   * Conv's transpose for [N, O, H', W'] and kernels [O, C, h, w]: [N, C, H, W]. Different H can have the same H'.
   * `outputPadding` is the difference between the desired H and the smallest such H, and the same for W.
   */
  ConvTranspose: Convolution & { readonly outputPadding: readonly [number, number] };
  // form
  Reshape: { readonly shape: Shape };
  Transpose: { readonly perm: readonly number[] };
  Expand: { readonly shape: Shape };
  Concat: { readonly axis: number };
  Slice: { readonly axis: number; readonly start: number; readonly end: number };
  Pad: { readonly axis: number; readonly before: number; readonly after: number };
  Gather: { readonly axis: number };
  GatherElements: { readonly axis: number };
  /**
   * Copies the first input and adds the elements of the third at the indices of the second along an axis, in the order
   * of the third's elements.
   */
  ScatterElements: { readonly axis: number };
  // reductions, keeping the reduced axes with size one
  ReduceSum: { readonly axes: readonly number[] };
  ReduceMean: { readonly axes: readonly number[] };
  ReduceMax: { readonly axes: readonly number[] };
  ReduceSumSquare: { readonly axes: readonly number[] };
  ArgMin: { readonly axis: number };
  // along the last axis
  /**
   * scale (x - mean) / sqrt(variance + epsilon) + shift. Scale and shift are [width], or [batch, 1, width] for x
   * [batch, rows, width].
   */
  LayerNormalization: { readonly epsilon: number };
  /** scale x / sqrt(mean(x^2) + epsilon), scale [width]. */
  RMSNormalization: { readonly epsilon: number };
  Softmax: None;
  LogSoftmax: None;
  /**
   * Rotary positions over [batch, heads, positions, depth] with caches [positions of the model, depth / 2] (ONNX 23).
   * Each rotated pair consists of elements i and i + depth / 2, or 2i and 2i + 1 if interleaved.
   */
  RotaryEmbedding: { readonly interleaved: boolean };
}

export type OpType = keyof OpAttributes;

/** Shape and dtype of a value. All sizes are known when the graph is built. */
export interface ValueType {
  readonly shape: Shape;
  readonly dtype: Dtype;
}

/** The operation that makes a value. */
export type Origin =
  | { readonly kind: 'input' }
  | { readonly kind: 'parameter' }
  | { readonly kind: 'constant'; readonly data: Float32Array | BigInt64Array | Uint8Array }
  | NodeOrigin;

export interface NodeOrigin<K extends OpType = OpType> {
  readonly kind: 'node';
  readonly op: K;
  readonly inputs: readonly Value[];
  readonly attributes: OpAttributes[K];
}

/**
 * A region with its own gradient: `gradient` replaces differentiation through the nodes that made the value. It
 * receives the gradient of the output, and for each input whether its gradient is needed. It returns one entry per
 * input, null for "none".
 */
export interface CustomGradient {
  readonly name: string;
  readonly inputs: readonly Value[];
  readonly gradient: (outputGradient: Value, needed: readonly boolean[]) => readonly (Value | null)[];
}

/** One immutable tensor of a graph. Graph and `apply` make them. */
export class Value implements ValueType {
  /** Set once by `withGradient`, before anything is differentiated. */
  custom: CustomGradient | null = null;

  constructor(
    readonly graph: Graph,
    readonly id: number,
    readonly name: string,
    readonly shape: Shape,
    readonly dtype: Dtype,
    readonly origin: Origin,
  ) {}

  get size(): number {
    return sizeOf(this.shape);
  }

  /** `%12: float32[2, 3]`, as in listings and errors. */
  toString(): string {
    return `%${this.name}: ${formatType(this)}`;
  }
}

/** A define-then-run graph. Every run takes new inputs. Parameters are inputs that training may change. */
export class Graph {
  readonly inputs: Value[] = [];
  readonly parameters = new Map<string, Value>();
  readonly #names = new Set<string>();
  readonly #scope: string[] = [];
  #next = 0;

  constructor(readonly name: string) {}

  /** The number of values made so far. Ids count up from 0, so the older of two values has the lower id. */
  get valueCount(): number {
    return this.#next;
  }

  input(name: string, shape: Shape, dtype: Dtype = 'float32'): Value {
    const value = this.#make(this.#claim(name), { shape, dtype }, { kind: 'input' });
    this.inputs.push(value);
    return value;
  }

  /** A float32 weight. The same name returns the same value, and its shapes must agree. */
  parameter(name: string, shape: Shape): Value {
    const known = this.parameters.get(name);
    if (known !== undefined) {
      if (!sameShape(known.shape, shape)) {
        throw new GraphError(
          `parameter ${name} has shape ${formatShape(known.shape)}, requested ${formatShape(shape)}`,
        );
      }
      return known;
    }
    const value = this.#make(this.#claim(name), { shape, dtype: 'float32' }, { kind: 'parameter' });
    this.parameters.set(name, value);
    return value;
  }

  constant(data: Float32Array | BigInt64Array | Uint8Array, shape: Shape): Value {
    const dtype: Dtype = data instanceof Float32Array ? 'float32' : data instanceof BigInt64Array ? 'int64' : 'bool';
    if (data.length !== sizeOf(shape)) {
      throw new GraphError(
        `a constant of shape ${formatShape(shape)} needs ${sizeOf(shape)} elements, got ${data.length}`,
      );
    }
    return this.#make(null, { shape, dtype }, { kind: 'constant', data });
  }

  scalar(value: number): Value {
    return this.constant(Float32Array.of(value), []);
  }

  /** Runs `build` with a label that names its nodes, such as `layers.0.mlp`. */
  scope<T>(label: string, build: () => T): T {
    this.#scope.push(label);
    try {
      return build();
    } finally {
      this.#scope.pop();
    }
  }

  /** Internal to `apply`: records a node whose type has been inferred. */
  node(type: ValueType, origin: NodeOrigin): Value {
    return this.#make(null, type, origin);
  }

  #claim(name: string): string {
    if (this.#names.has(name)) {
      throw new GraphError(`graph ${this.name} already has an input or parameter named ${name}`);
    }
    this.#names.add(name);
    return name;
  }

  #make(name: string | null, type: ValueType, origin: Origin): Value {
    const id = this.#next++;
    for (const size of type.shape) {
      if (!Number.isInteger(size) || size < 0) {
        throw new GraphError(`shape ${formatShape(type.shape)} has a size that is not a whole number`);
      }
    }
    const scoped = this.#scope.length > 0 ? `${this.#scope.join('.')}.${id}` : String(id);
    return new Value(this, id, name ?? scoped, [...type.shape], type.dtype, origin);
  }
}

export function sizeOf(shape: Shape): number {
  return shape.reduce((product, size) => product * size, 1);
}

export function sameShape(a: Shape, b: Shape): boolean {
  return a.length === b.length && a.every((size, axis) => size === b[axis]);
}

export function formatShape(shape: Shape): string {
  return `[${shape.join(', ')}]`;
}

export function formatType(type: ValueType): string {
  return `${type.dtype}${formatShape(type.shape)}`;
}

/**
 * Values that `roots` depend on, each after its inputs, older inputs first. Iterative, so that depth is not limited. onnxruntime walks a model from
 * its outputs and computes a node's inputs starting with the one that is written last. So a chain of operators is written before values that are
 * computed from a parameter in one step, such as a slice of it, and these are not kept in memory while the chain is computed.
 */
export function topological(roots: readonly Value[]): Value[] {
  const done = new Set<Value>();
  const order: Value[] = [];
  const stack: { value: Value; expanded: boolean }[] = [...roots]
    .reverse()
    .map((value) => ({ value, expanded: false }));
  for (let top = stack.pop(); top !== undefined; top = stack.pop()) {
    const { value, expanded } = top;
    if (done.has(value)) continue;
    if (expanded || value.origin.kind !== 'node') {
      done.add(value);
      order.push(value);
      continue;
    }
    stack.push({ value, expanded: true });
    for (const input of [...value.origin.inputs].sort((a, b) => b.id - a.id)) {
      if (!done.has(input)) stack.push({ value: input, expanded: false });
    }
  }
  return order;
}
