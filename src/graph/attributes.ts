/** The attributes of a graph's nodes: element types, shapes, and those of every operator. */

export type Dtype = 'float32' | 'int64' | 'bool';

export type Shape = readonly number[];

/** How the kernel of a two-dimensional convolution moves: rows, then columns. */
export interface Convolution {
  readonly strides: readonly [number, number];
  /** Zeros around the picture: top, left, bottom, right. */
  readonly pads: readonly [number, number, number, number];
  /** Distance of the pictures' elements that one kernel reads. */
  readonly dilations: readonly [number, number];
}

type None = Readonly<Record<never, never>>;

/** Every operator. One that is listed here without a specification in operators/ does not compile. */
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
  /** alpha * op(a) op(b) + c over matrices, op transposing where asked; c, one number a column, may be left out. */
  Gemm: { readonly transA: boolean; readonly transB: boolean; readonly alpha: number };
  /** Pictures [N, C, H, W] by kernels [O, C, h, w], with one number per channel O added, which may be left out: [N, O, H', W']. */
  Conv: Convolution;
  /**
   * The result of Conv's transpose for [N, O, H', W'] and kernels [O, C, h, w]: [N, C, H, W]. Several sizes H have the same H'; `outputPadding` is
   * the difference of the wanted one from the smallest.
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
  /** Copies the first input and adds elements of the third where the second says, along an axis, in the order of the third's elements. */
  ScatterElements: { readonly axis: number };
  // reductions, keeping the reduced axes with size one
  ReduceSum: { readonly axes: readonly number[] };
  ReduceMean: { readonly axes: readonly number[] };
  ReduceMax: { readonly axes: readonly number[] };
  ReduceSumSquare: { readonly axes: readonly number[] };
  ArgMin: { readonly axis: number };
  // along the last axis
  /** scale (x - mean) / sqrt(variance + epsilon) + shift. Scale and shift are [width], or [batch, 1, width] beside x [batch, rows, width]. */
  LayerNormalization: { readonly epsilon: number };
  /** scale x / sqrt(mean(x^2) + epsilon), scale [width]. */
  RMSNormalization: { readonly epsilon: number };
  Softmax: None;
  LogSoftmax: None;
  /**
   * Rotary positions over [batch, heads, positions, depth] with caches [positions of the model, depth / 2] (ONNX 23). The pairs that turn
   * are elements i and i + depth / 2, or 2i and 2i + 1 where interleaved.
   */
  RotaryEmbedding: { readonly interleaved: boolean };
}

export type OpType = keyof OpAttributes;
