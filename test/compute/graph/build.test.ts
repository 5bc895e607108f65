import { describe, expect, it } from 'vitest';
import { GraphError } from '../../../src/core/errors.js';
import { Graph, type OpAttributes, type OpType, type Value } from '../../../src/compute/graph/ir.js';
import * as g from '../../../src/compute/graph/build.js';

const graph = new Graph('policy');
const a = graph.input('a', [2, 3]);
const b = graph.input('b', [4, 5]);
const row = graph.input('row', [3]);
const heads = graph.input('heads', [1, 2, 3, 4]);
const ids = graph.input('ids', [2, 3], 'int64');
const flags = graph.input('flags', [2, 3], 'bool');
const scalar = graph.input('scalar', []);

type Misuse<K extends OpType> = readonly [inputs: readonly Value[], attributes: OpAttributes[K], says: string];

const NONE = {};
const still = { strides: [1, 1], pads: [0, 0, 0, 0], dilations: [1, 1] } as const;
const unfit: readonly Misuse<'Add'>[] = [
  [[a, b], NONE, 'cannot broadcast'],
  [[a, ids], NONE, 'takes float32'],
  [[a], NONE, 'takes 2 inputs'],
];
const notFloat: readonly Misuse<'Neg'>[] = [
  [[ids], NONE, 'takes float32'],
  [[a, a], NONE, 'takes 1 input'],
];
const uncompared: readonly Misuse<'Equal'>[] = [
  [[a, ids], NONE, 'compares float32 with int64'],
  [[a, b], NONE, 'cannot broadcast'],
];
const noAxis: readonly Misuse<'ReduceSum'>[] = [
  [[a], { axes: [2] }, 'is not within'],
  [[flags], { axes: [0] }, 'takes float32'],
  [[a], { axes: [] }, 'one or more different axes'],
  [[a], { axes: [1, 1] }, 'one or more different axes'],
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
  Less: [...uncompared, [[flags, flags], NONE, 'takes float32 or int64']],
  Greater: [...uncompared, [[flags, flags], NONE, 'takes float32 or int64']],
  Where: [
    [[a, a, a], NONE, 'takes bool'],
    [[flags, a, ids], NONE, 'chooses between'],
    [[flags, a, b], NONE, 'cannot broadcast'],
  ],
  Cast: [[[a, a], { to: 'bool' }, 'takes 1 input']],
  MatMul: [
    [[a, b], NONE, 'inner sizes differ'],
    [[a, row], NONE, 'takes matrices'],
    [[a, ids], NONE, 'takes float32'],
    [[heads, graph.input('keys', [3, 5, 4, 3])], NONE, 'cannot broadcast'],
  ],
  Gemm: [
    [[a, b], { transA: false, transB: true, alpha: 1 }, 'inner sizes differ'],
    [[heads, b], { transA: false, transB: false, alpha: 1 }, 'takes two matrices'],
    [[a, a, row], { transA: false, transB: true, alpha: 1 }, 'adds [3]'],
  ],
  Reshape: [[[a], { shape: [4, 2] }, 'cannot reshape']],
  Transpose: [
    [[a], { perm: [0] }, 'does not permute'],
    [[a], { perm: [0, 0] }, 'does not permute'],
    [[a], { perm: [0, 2] }, 'is not within'],
  ],
  Expand: [
    [[row], { shape: [3, 2] }, 'cannot broadcast'],
    [[a], { shape: [3] }, 'cannot expand'],
    [[graph.input('line', [1, 3])], { shape: [3] }, 'cannot expand'],
  ],
  Concat: [
    [[a, b], { axis: 0 }, 'cannot join'],
    [[a, ids], { axis: 0 }, 'joins float32 with int64'],
    [[a, a], { axis: 2 }, 'is not within'],
  ],
  Slice: [
    [[a], { axis: 1, start: 2, end: 4 }, 'is not within'],
    [[a], { axis: 1, start: 2, end: 1 }, 'is not within'],
    [[a], { axis: -1, start: 0, end: 1 }, 'is not within'],
  ],
  Pad: [[[a], { axis: 0, before: -1, after: 0 }, 'pads by']],
  Gather: [
    [[a, row], { axis: 0 }, 'takes int64'],
    [[a, ids], { axis: 2 }, 'is not within'],
  ],
  GatherElements: [
    [[a, a], { axis: 1 }, 'takes int64'],
    [[b, graph.input('rows', [5, 1], 'int64')], { axis: 1 }, 'are not within'],
    [[row, ids], { axis: 0 }, 'are not within'],
  ],
  ScatterElements: [
    [[a, ids, b], { axis: 0 }, 'has indices'],
    [[ids, ids, a], { axis: 0 }, 'takes float32'],
    [[b, ids, a], { axis: 2 }, 'is not within'],
    [[row, ids, a], { axis: 0 }, 'are not within'],
  ],
  ReduceSum: noAxis,
  ReduceMean: noAxis,
  ReduceMax: noAxis,
  ReduceSumSquare: noAxis,
  ArgMin: [
    [[a], { axis: 2 }, 'is not within'],
    [[ids], { axis: 0 }, 'takes float32'],
  ],
  Conv: [
    [[heads, a], still, 'takes images and kernels'],
    [[heads, graph.input('kernels', [4, 3, 1, 1])], still, 'kernels have 3 channels'],
    [[heads, graph.input('large', [4, 2, 5, 1])], still, 'are larger than'],
    [[heads, heads], { ...still, strides: [0, 1] }, 'must be at least 1'],
    [[heads, heads], { ...still, pads: [0, -1, 0, 0] }, 'pads by'],
    [[heads, heads, row], still, 'adds [3]'],
  ],
  ConvTranspose: [
    [[heads, graph.input('other', [4, 2, 1, 1])], { ...still, outputPadding: [0, 0] }, 'kernels have 4 channels'],
    [[heads, graph.input('fitting', [2, 4, 1, 1])], { ...still, outputPadding: [0, 1] }, 'outputPadding'],
  ],
  LayerNormalization: [
    [[a, b, b], { epsilon: 1 }, 'the scale or shift has shape'],
    [[a, row], { epsilon: 1 }, 'takes 3 inputs'],
  ],
  RMSNormalization: [[[a, b], { epsilon: 1 }, 'the scale or shift has shape']],
  Softmax: notFloat,
  LogSoftmax: notFloat,
  RotaryEmbedding: [
    [[a, a, a, ids], { interleaved: false }, 'takes [batch, heads'],
    [[heads, a, a, graph.input('places', [1, 3], 'int64')], { interleaved: false }, 'a cache must be'],
    [
      [heads, graph.input('cos', [9, 2]), graph.input('sin', [9, 2]), graph.input('short', [1, 2], 'int64')],
      { interleaved: false },
      'positions must be',
    ],
    [
      [
        heads,
        graph.input('whole', [9, 2], 'int64'),
        graph.input('half', [9, 2]),
        graph.input('where', [1, 3], 'int64'),
      ],
      { interleaved: false },
      'takes float32',
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
    for (const op of Object.keys(misuses) as OpType[]) {
      for (const [inputs, attributes, says] of misuses[op] as readonly Misuse<OpType>[]) {
        const message = messageOf(() => g.apply(op, inputs, attributes));
        expect(message).toContain(`graph policy: ${op}(${inputs.join(', ')}): `);
        expect(message).toContain(says);
      }
    }
  });

  it('is raised for values of two graphs, for none, and for names and sizes', () => {
    const other = new Graph('other').input('a', [2, 3]);
    const names = new Graph('names');
    names.input('x', [1]);
    names.parameter('w', [2, 3]);
    expect(names.parameter('w', [2, 3])).toBe(names.parameters.get('w'));
    const wrong: readonly (readonly [() => unknown, string])[] = [
      [() => g.add(a, other), 'different graphs'],
      [() => g.apply('Concat', [], { axis: 0 }), 'at least one input'],
      [() => names.parameter('w', [3, 2]), 'requested [3, 2]'],
      [() => names.input('w', [1]), 'already has an input or parameter named w'],
      [() => names.parameter('x', [1]), 'already has an input or parameter named x'],
      [() => names.input('y', [1.5]), 'not a whole number'],
      [() => names.constant(new Float32Array(5), [2, 3]), 'needs 6 elements'],
    ];
    for (const [build, says] of wrong) expect(messageOf(build)).toContain(says);
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
