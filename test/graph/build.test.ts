import { describe, expect, it } from 'vitest';
import { GraphError } from '../../src/core/errors.js';
import { Graph, type OpAttributes, type OpType, type Value } from '../../src/graph/ir.js';
import * as g from '../../src/graph/build.js';

const graph = new Graph('policy');
const a = graph.input('a', [2, 3]);
const b = graph.input('b', [4, 5]);
const row = graph.input('row', [3]);
const heads = graph.input('heads', [1, 2, 3, 4]);
const ids = graph.input('ids', [2, 3], 'int64');
const flags = graph.input('flags', [2, 3], 'bool');
const scalar = graph.input('scalar', []);

type Misuse<K extends OpType> = readonly [inputs: readonly Value[], attributes: OpAttributes[K]];

const NONE = {};
const still = { strides: [1, 1], pads: [0, 0, 0, 0], dilations: [1, 1] } as const;
const unfit: readonly Misuse<'Add'>[] = [
  [[a, b], NONE],
  [[a, ids], NONE],
  [[a], NONE],
];
const notFloat: readonly Misuse<'Neg'>[] = [
  [[ids], NONE],
  [[a, a], NONE],
];
const uncompared: readonly Misuse<'Equal'>[] = [
  [[a, ids], NONE],
  [[a, b], NONE],
];
const noAxis: readonly Misuse<'ReduceSum'>[] = [
  [[a], { axes: [2] }],
  [[flags], { axes: [0] }],
  [[a], { axes: [] }],
  [[a], { axes: [1, 1] }],
];

/** Ways to misuse every operator; a missing one does not compile. */
const misuses: { readonly [K in OpType]: readonly Misuse<K>[] } = {
  Add: unfit,
  Sub: unfit,
  Mul: unfit,
  Div: unfit,
  Min: unfit,
  Max: unfit,
  Neg: notFloat,
  Exp: notFloat,
  Log: notFloat,
  Sqrt: notFloat,
  Reciprocal: notFloat,
  Sigmoid: notFloat,
  Tanh: notFloat,
  Relu: notFloat,
  Erf: notFloat,
  Abs: notFloat,
  Sin: notFloat,
  Cos: notFloat,
  Gelu: notFloat,
  Equal: uncompared,
  Less: [...uncompared, [[flags, flags], NONE]],
  Greater: [...uncompared, [[flags, flags], NONE]],
  Where: [
    [[a, a, a], NONE],
    [[flags, a, ids], NONE],
    [[flags, a, b], NONE],
  ],
  Cast: [[[a, a], { to: 'bool' }]],
  MatMul: [
    [[a, b], NONE],
    [[a, row], NONE],
    [[a, ids], NONE],
    [[heads, graph.input('keys', [3, 5, 4, 3])], NONE],
  ],
  Gemm: [
    [[a, b], { transA: false, transB: true, alpha: 1 }],
    [[heads, b], { transA: false, transB: false, alpha: 1 }],
    [[a, a, row], { transA: false, transB: true, alpha: 1 }],
  ],
  Reshape: [[[a], { shape: [4, 2] }]],
  Transpose: [
    [[a], { perm: [0] }],
    [[a], { perm: [0, 0] }],
    [[a], { perm: [0, 2] }],
  ],
  Expand: [
    [[row], { shape: [3, 2] }],
    [[a], { shape: [3] }],
    [[graph.input('line', [1, 3])], { shape: [3] }],
  ],
  Concat: [
    [[a, b], { axis: 0 }],
    [[a, ids], { axis: 0 }],
    [[a, a], { axis: 2 }],
  ],
  Slice: [
    [[a], { axis: 1, start: 2, end: 4 }],
    [[a], { axis: 1, start: 2, end: 1 }],
    [[a], { axis: -1, start: 0, end: 1 }],
  ],
  Pad: [[[a], { axis: 0, before: -1, after: 0 }]],
  Gather: [
    [[a, row], { axis: 0 }],
    [[a, ids], { axis: 2 }],
  ],
  GatherElements: [
    [[a, a], { axis: 1 }],
    [[b, graph.input('rows', [5, 1], 'int64')], { axis: 1 }],
    [[row, ids], { axis: 0 }],
  ],
  ScatterElements: [
    [[a, ids, b], { axis: 0 }],
    [[ids, ids, a], { axis: 0 }],
    [[b, ids, a], { axis: 2 }],
    [[row, ids, a], { axis: 0 }],
  ],
  ReduceSum: noAxis,
  ReduceMean: noAxis,
  ReduceMax: noAxis,
  ReduceSumSquare: noAxis,
  ArgMin: [
    [[a], { axis: 2 }],
    [[ids], { axis: 0 }],
  ],
  Conv: [
    [[heads, a], still],
    [[heads, graph.input('kernels', [4, 3, 1, 1])], still],
    [[heads, graph.input('large', [4, 2, 5, 1])], still],
    [[heads, heads], { ...still, strides: [0, 1] }],
    [[heads, heads], { ...still, pads: [0, -1, 0, 0] }],
    [[heads, heads, row], still],
  ],
  ConvTranspose: [
    [[heads, graph.input('other', [4, 2, 1, 1])], { ...still, outputPadding: [0, 0] }],
    [[heads, graph.input('fitting', [2, 4, 1, 1])], { ...still, outputPadding: [0, 1] }],
  ],
  LayerNormalization: [
    [[a, b, b], { epsilon: 1 }],
    [[a, row], { epsilon: 1 }],
  ],
  RMSNormalization: [[[a, b], { epsilon: 1 }]],
  Softmax: notFloat,
  LogSoftmax: notFloat,
  RotaryEmbedding: [
    [[a, a, a, ids], { interleaved: false }],
    [[heads, a, a, graph.input('places', [1, 3], 'int64')], { interleaved: false }],
    [
      [heads, graph.input('cos', [9, 2]), graph.input('sin', [9, 2]), graph.input('short', [1, 2], 'int64')],
      { interleaved: false },
    ],
    [
      [
        heads,
        graph.input('whole', [9, 2], 'int64'),
        graph.input('half', [9, 2]),
        graph.input('where', [1, 3], 'int64'),
      ],
      { interleaved: false },
    ],
  ],
};

function messageOf(build: () => unknown): string {
  try {
    build();
  } catch (error) {
    if (error instanceof GraphError) return error.toText();
    throw error;
  }
  throw new Error('nothing was raised');
}

describe('an error while building', () => {
  it('names the operator, its inputs and their shapes, for every operator', () => {
    const messages = (Object.keys(misuses) as OpType[]).flatMap((op) =>
      (misuses[op] as readonly Misuse<OpType>[]).map(([inputs, attributes]) =>
        messageOf(() => g.apply(op, inputs, attributes)),
      ),
    );
    for (const message of messages) expect(message).toMatch(/^graph policy: \w+\((%\w+: \w+\[[\d, ]*\](, )?)+\): /);
    expect(messages.join('\n')).toMatchInlineSnapshot(`
      "graph policy: Add(%a: float32[2, 3], %b: float32[4, 5]): cannot broadcast [2, 3] with [4, 5]
      graph policy: Add(%a: float32[2, 3], %ids: int64[2, 3]): takes float32, got int64
      graph policy: Add(%a: float32[2, 3]): takes 2 inputs, got 1
      graph policy: Sub(%a: float32[2, 3], %b: float32[4, 5]): cannot broadcast [2, 3] with [4, 5]
      graph policy: Sub(%a: float32[2, 3], %ids: int64[2, 3]): takes float32, got int64
      graph policy: Sub(%a: float32[2, 3]): takes 2 inputs, got 1
      graph policy: Mul(%a: float32[2, 3], %b: float32[4, 5]): cannot broadcast [2, 3] with [4, 5]
      graph policy: Mul(%a: float32[2, 3], %ids: int64[2, 3]): takes float32, got int64
      graph policy: Mul(%a: float32[2, 3]): takes 2 inputs, got 1
      graph policy: Div(%a: float32[2, 3], %b: float32[4, 5]): cannot broadcast [2, 3] with [4, 5]
      graph policy: Div(%a: float32[2, 3], %ids: int64[2, 3]): takes float32, got int64
      graph policy: Div(%a: float32[2, 3]): takes 2 inputs, got 1
      graph policy: Min(%a: float32[2, 3], %b: float32[4, 5]): cannot broadcast [2, 3] with [4, 5]
      graph policy: Min(%a: float32[2, 3], %ids: int64[2, 3]): takes float32, got int64
      graph policy: Min(%a: float32[2, 3]): takes 2 inputs, got 1
      graph policy: Max(%a: float32[2, 3], %b: float32[4, 5]): cannot broadcast [2, 3] with [4, 5]
      graph policy: Max(%a: float32[2, 3], %ids: int64[2, 3]): takes float32, got int64
      graph policy: Max(%a: float32[2, 3]): takes 2 inputs, got 1
      graph policy: Neg(%ids: int64[2, 3]): takes float32, got int64
      graph policy: Neg(%a: float32[2, 3], %a: float32[2, 3]): takes 1 input, got 2
      graph policy: Exp(%ids: int64[2, 3]): takes float32, got int64
      graph policy: Exp(%a: float32[2, 3], %a: float32[2, 3]): takes 1 input, got 2
      graph policy: Log(%ids: int64[2, 3]): takes float32, got int64
      graph policy: Log(%a: float32[2, 3], %a: float32[2, 3]): takes 1 input, got 2
      graph policy: Sqrt(%ids: int64[2, 3]): takes float32, got int64
      graph policy: Sqrt(%a: float32[2, 3], %a: float32[2, 3]): takes 1 input, got 2
      graph policy: Reciprocal(%ids: int64[2, 3]): takes float32, got int64
      graph policy: Reciprocal(%a: float32[2, 3], %a: float32[2, 3]): takes 1 input, got 2
      graph policy: Sigmoid(%ids: int64[2, 3]): takes float32, got int64
      graph policy: Sigmoid(%a: float32[2, 3], %a: float32[2, 3]): takes 1 input, got 2
      graph policy: Tanh(%ids: int64[2, 3]): takes float32, got int64
      graph policy: Tanh(%a: float32[2, 3], %a: float32[2, 3]): takes 1 input, got 2
      graph policy: Relu(%ids: int64[2, 3]): takes float32, got int64
      graph policy: Relu(%a: float32[2, 3], %a: float32[2, 3]): takes 1 input, got 2
      graph policy: Erf(%ids: int64[2, 3]): takes float32, got int64
      graph policy: Erf(%a: float32[2, 3], %a: float32[2, 3]): takes 1 input, got 2
      graph policy: Abs(%ids: int64[2, 3]): takes float32, got int64
      graph policy: Abs(%a: float32[2, 3], %a: float32[2, 3]): takes 1 input, got 2
      graph policy: Sin(%ids: int64[2, 3]): takes float32, got int64
      graph policy: Sin(%a: float32[2, 3], %a: float32[2, 3]): takes 1 input, got 2
      graph policy: Cos(%ids: int64[2, 3]): takes float32, got int64
      graph policy: Cos(%a: float32[2, 3], %a: float32[2, 3]): takes 1 input, got 2
      graph policy: Gelu(%ids: int64[2, 3]): takes float32, got int64
      graph policy: Gelu(%a: float32[2, 3], %a: float32[2, 3]): takes 1 input, got 2
      graph policy: Equal(%a: float32[2, 3], %ids: int64[2, 3]): compares float32 with int64
      graph policy: Equal(%a: float32[2, 3], %b: float32[4, 5]): cannot broadcast [2, 3] with [4, 5]
      graph policy: Less(%a: float32[2, 3], %ids: int64[2, 3]): compares float32 with int64
      graph policy: Less(%a: float32[2, 3], %b: float32[4, 5]): cannot broadcast [2, 3] with [4, 5]
      graph policy: Less(%flags: bool[2, 3], %flags: bool[2, 3]): takes float32 or int64, got bool
      graph policy: Greater(%a: float32[2, 3], %ids: int64[2, 3]): compares float32 with int64
      graph policy: Greater(%a: float32[2, 3], %b: float32[4, 5]): cannot broadcast [2, 3] with [4, 5]
      graph policy: Greater(%flags: bool[2, 3], %flags: bool[2, 3]): takes float32 or int64, got bool
      graph policy: Where(%a: float32[2, 3], %a: float32[2, 3], %a: float32[2, 3]): takes bool, got float32
      graph policy: Where(%flags: bool[2, 3], %a: float32[2, 3], %ids: int64[2, 3]): chooses between float32 and int64
      graph policy: Where(%flags: bool[2, 3], %a: float32[2, 3], %b: float32[4, 5]): cannot broadcast [2, 3] with [4, 5]
      graph policy: Cast(%a: float32[2, 3], %a: float32[2, 3]): takes 1 input, got 2
      graph policy: MatMul(%a: float32[2, 3], %b: float32[4, 5]): inner sizes differ: [2, 3] times [4, 5]
      graph policy: MatMul(%a: float32[2, 3], %row: float32[3]): takes matrices (rank 2 or more)
      graph policy: MatMul(%a: float32[2, 3], %ids: int64[2, 3]): takes float32, got int64
      graph policy: MatMul(%heads: float32[1, 2, 3, 4], %keys: float32[3, 5, 4, 3]): cannot broadcast [1, 2] with [3, 5]
      graph policy: Gemm(%a: float32[2, 3], %b: float32[4, 5]): inner sizes differ: 3 and 5 (transA false, transB true)
      graph policy: Gemm(%heads: float32[1, 2, 3, 4], %b: float32[4, 5]): takes two matrices of rank 2
      graph policy: Gemm(%a: float32[2, 3], %a: float32[2, 3], %row: float32[3]): adds [3], which must be [2]
      graph policy: Reshape(%a: float32[2, 3]): cannot give [2, 3] the shape [4, 2]
      graph policy: Transpose(%a: float32[2, 3]): perm [0] does not permute rank 2
      graph policy: Transpose(%a: float32[2, 3]): perm [0, 0] does not permute rank 2
      graph policy: Transpose(%a: float32[2, 3]): axis 2 is not within rank 2
      graph policy: Expand(%row: float32[3]): cannot broadcast [3] with [3, 2]
      graph policy: Expand(%a: float32[2, 3]): cannot expand [2, 3] to [3]
      graph policy: Expand(%line: float32[1, 3]): cannot expand [1, 3] to [3]
      graph policy: Concat(%a: float32[2, 3], %b: float32[4, 5]): cannot join [2, 3] and [4, 5] along axis 0
      graph policy: Concat(%a: float32[2, 3], %ids: int64[2, 3]): joins float32 with int64
      graph policy: Concat(%a: float32[2, 3], %a: float32[2, 3]): axis 2 is not within rank 2
      graph policy: Slice(%a: float32[2, 3]): [2, 4) is not within axis 1 of [2, 3]
      graph policy: Slice(%a: float32[2, 3]): [2, 1) is not within axis 1 of [2, 3]
      graph policy: Slice(%a: float32[2, 3]): axis -1 is not within rank 2
      graph policy: Pad(%a: float32[2, 3]): pads by -1 and 0, both must be 0 or more
      graph policy: Gather(%a: float32[2, 3], %row: float32[3]): takes int64, got float32
      graph policy: Gather(%a: float32[2, 3], %ids: int64[2, 3]): axis 2 is not within rank 2
      graph policy: GatherElements(%a: float32[2, 3], %a: float32[2, 3]): takes int64, got float32
      graph policy: GatherElements(%b: float32[4, 5], %rows: int64[5, 1]): indices [5, 1] do not lie within [4, 5]
      graph policy: GatherElements(%row: float32[3], %ids: int64[2, 3]): indices [2, 3] do not lie within [3]
      graph policy: ScatterElements(%a: float32[2, 3], %ids: int64[2, 3], %b: float32[4, 5]): has indices [2, 3] for updates [4, 5]
      graph policy: ScatterElements(%ids: int64[2, 3], %ids: int64[2, 3], %a: float32[2, 3]): takes float32, got int64
      graph policy: ScatterElements(%b: float32[4, 5], %ids: int64[2, 3], %a: float32[2, 3]): axis 2 is not within rank 2
      graph policy: ScatterElements(%row: float32[3], %ids: int64[2, 3], %a: float32[2, 3]): indices [2, 3] do not lie within [3]
      graph policy: ReduceSum(%a: float32[2, 3]): axis 2 is not within rank 2
      graph policy: ReduceSum(%flags: bool[2, 3]): takes float32, got bool
      graph policy: ReduceSum(%a: float32[2, 3]): reduces over one or more different axes, not []
      graph policy: ReduceSum(%a: float32[2, 3]): reduces over one or more different axes, not [1, 1]
      graph policy: ReduceMean(%a: float32[2, 3]): axis 2 is not within rank 2
      graph policy: ReduceMean(%flags: bool[2, 3]): takes float32, got bool
      graph policy: ReduceMean(%a: float32[2, 3]): reduces over one or more different axes, not []
      graph policy: ReduceMean(%a: float32[2, 3]): reduces over one or more different axes, not [1, 1]
      graph policy: ReduceMax(%a: float32[2, 3]): axis 2 is not within rank 2
      graph policy: ReduceMax(%flags: bool[2, 3]): takes float32, got bool
      graph policy: ReduceMax(%a: float32[2, 3]): reduces over one or more different axes, not []
      graph policy: ReduceMax(%a: float32[2, 3]): reduces over one or more different axes, not [1, 1]
      graph policy: ReduceSumSquare(%a: float32[2, 3]): axis 2 is not within rank 2
      graph policy: ReduceSumSquare(%flags: bool[2, 3]): takes float32, got bool
      graph policy: ReduceSumSquare(%a: float32[2, 3]): reduces over one or more different axes, not []
      graph policy: ReduceSumSquare(%a: float32[2, 3]): reduces over one or more different axes, not [1, 1]
      graph policy: ArgMin(%a: float32[2, 3]): axis 2 is not within rank 2
      graph policy: ArgMin(%ids: int64[2, 3]): takes float32, got int64
      graph policy: Conv(%heads: float32[1, 2, 3, 4], %a: float32[2, 3]): takes pictures and kernels of four axes
      graph policy: Conv(%heads: float32[1, 2, 3, 4], %kernels: float32[4, 3, 1, 1]): kernels of 3 channels for pictures of 2
      graph policy: Conv(%heads: float32[1, 2, 3, 4], %large: float32[4, 2, 5, 1]): kernels [4, 2, 5, 1] are larger than the padded picture [1, 2, 3, 4]
      graph policy: Conv(%heads: float32[1, 2, 3, 4], %heads: float32[1, 2, 3, 4]): moves by [0, 1] and reads [1, 1] apart; both must be 1 or more
      graph policy: Conv(%heads: float32[1, 2, 3, 4], %heads: float32[1, 2, 3, 4]): pads by [0, -1, 0, 0]
      graph policy: Conv(%heads: float32[1, 2, 3, 4], %heads: float32[1, 2, 3, 4], %row: float32[3]): adds [3], which must be [1]
      graph policy: ConvTranspose(%heads: float32[1, 2, 3, 4], %other: float32[4, 2, 1, 1]): kernels for 4 channels, and pictures of 2
      graph policy: ConvTranspose(%heads: float32[1, 2, 3, 4], %fitting: float32[2, 4, 1, 1]): outputPadding [0, 1] must be less than the strides [1, 1]
      graph policy: LayerNormalization(%a: float32[2, 3], %b: float32[4, 5], %b: float32[4, 5]): scales or shifts by [4, 5]; allowed: [3]
      graph policy: LayerNormalization(%a: float32[2, 3], %row: float32[3]): takes 3 inputs, got 2
      graph policy: RMSNormalization(%a: float32[2, 3], %b: float32[4, 5]): scales or shifts by [4, 5]; allowed: [3]
      graph policy: Softmax(%ids: int64[2, 3]): takes float32, got int64
      graph policy: Softmax(%a: float32[2, 3], %a: float32[2, 3]): takes 1 input, got 2
      graph policy: LogSoftmax(%ids: int64[2, 3]): takes float32, got int64
      graph policy: LogSoftmax(%a: float32[2, 3], %a: float32[2, 3]): takes 1 input, got 2
      graph policy: RotaryEmbedding(%a: float32[2, 3], %a: float32[2, 3], %a: float32[2, 3], %ids: int64[2, 3]): takes [batch, heads, positions, depth]
      graph policy: RotaryEmbedding(%heads: float32[1, 2, 3, 4], %a: float32[2, 3], %a: float32[2, 3], %places: int64[1, 3]): a cache must be [positions of the model, 2], got [2, 3]
      graph policy: RotaryEmbedding(%heads: float32[1, 2, 3, 4], %cos: float32[9, 2], %sin: float32[9, 2], %short: int64[1, 2]): positions must be [1, 3], got [1, 2]
      graph policy: RotaryEmbedding(%heads: float32[1, 2, 3, 4], %whole: int64[9, 2], %half: float32[9, 2], %where: int64[1, 3]): takes float32, got int64"
    `);
  });

  it('is raised for values of two graphs, and for none', () => {
    const other = new Graph('other').input('a', [2, 3]);
    expect(messageOf(() => g.add(a, other))).toMatchInlineSnapshot(`"Add mixes values of different graphs"`);
    expect(messageOf(() => g.apply('Concat', [], { axis: 0 }))).toMatchInlineSnapshot(
      `"Concat needs at least one input"`,
    );
  });

  it('is raised for names and sizes', () => {
    const names = new Graph('names');
    names.input('x', [1]);
    names.parameter('w', [2, 3]);
    expect(names.parameter('w', [2, 3])).toBe(names.parameters.get('w'));
    expect(messageOf(() => names.parameter('w', [3, 2]))).toMatchInlineSnapshot(
      `"parameter w has shape [2, 3], asked for [3, 2]"`,
    );
    expect(messageOf(() => names.input('w', [1]))).toMatchInlineSnapshot(
      `"graph names already has an input or parameter named w"`,
    );
    expect(messageOf(() => names.parameter('x', [1]))).toMatchInlineSnapshot(
      `"graph names already has an input or parameter named x"`,
    );
    expect(messageOf(() => names.input('y', [1.5]))).toMatchInlineSnapshot(`"shape [1.5] is not made of whole sizes"`);
    expect(messageOf(() => names.constant(new Float32Array(5), [2, 3]))).toMatchInlineSnapshot(
      `"a constant of shape [2, 3] needs 6 elements, got 5"`,
    );
  });
});

describe('builders', () => {
  it('leave out what does nothing', () => {
    expect(g.reshape(a, [2, 3])).toBe(a);
    expect(g.expand(a, [2, 3])).toBe(a);
    expect(g.cast(a, 'float32')).toBe(a);
    expect(g.concat([a], 0)).toBe(a);
    expect(g.slice(a, 1, 0, 3)).toBe(a);
    expect(g.pad(a, 1, 0, 0)).toBe(a);
  });

  it('know every shape', () => {
    expect(g.add(graph.input('p', [2, 1, 3]), graph.input('q', [4, 1])).shape).toEqual([2, 4, 3]);
    expect(g.add(scalar, scalar).shape).toEqual([]);
    expect(g.matMul(graph.input('m', [5, 1, 2, 3]), graph.input('n', [4, 3, 2])).shape).toEqual([5, 4, 2, 2]);
    expect(g.sumAll(b).shape).toEqual([]);
    expect(g.gather(b, ids).shape).toEqual([2, 3, 5]);
    expect(g.equal(a, row)).toMatchObject({ shape: [2, 3], dtype: 'bool' });
    expect(g.argMin(a, 1)).toMatchObject({ shape: [2, 1], dtype: 'int64' });
  });

  it('name values by their scope', () => {
    const scoped = new Graph('scoped');
    const x = scoped.input('x', [1]);
    const y = scoped.scope('layers.0', () => scoped.scope('mlp', () => g.exp(x)));
    expect(String(y)).toBe('%layers.0.mlp.1: float32[1]');
    expect(() => scoped.scope('broken', () => g.matMul(x, x))).toThrow(GraphError);
    expect(String(g.exp(x))).toBe('%2: float32[1]');
  });
});
