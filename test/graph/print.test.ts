import { expect, it } from 'vitest';
import * as g from '../../src/graph/build.js';
import { gradients } from '../../src/graph/differentiate.js';
import { Graph } from '../../src/graph/ir.js';
import { printGraph } from '../../src/graph/print.js';

function training(spare: number): string {
  const graph = new Graph('step');
  const x = graph.input('x', [4, 3]);
  const ids = graph.input('ids', [4], 'int64');
  const w = graph.parameter('head.weight', [5, 3]);
  // values that nothing depends on move the ids of all others
  for (let i = 0; i < spare; i++) g.exp(x);
  const logp = graph.scope('head', () => g.logSoftmax(g.gemm(x, w, { transB: true })));
  const picked = g.gatherElements(logp, g.reshape(ids, [4, 1]), 1);
  const weights = graph.constant(Float32Array.of(1, 0, 0.5, 0, 1, 2).subarray(0, 4), [4, 1]);
  const loss = g.neg(g.sumAll(g.mul(weights, picked)));
  const [dw] = gradients(loss, [w]);
  return printGraph(
    graph,
    new Map([
      ['loss', loss],
      ['d:head.weight', dw],
      ['x', x],
    ]),
  );
}

it('lists what the outputs depend on, one line each', () => {
  expect(training(0)).toMatchInlineSnapshot(`
    "graph step
      %x: float32[4, 3] = input
      %head.weight: float32[5, 3] = parameter
      %0: float32[4, 5] = Gemm(%x, %head.weight) {transA=false, transB=true, alpha=1}
      %1: float32[4, 5] = LogSoftmax(%0)
      %ids: int64[4] = input
      %2: int64[4, 1] = Reshape(%ids) {shape=[4,1]}
      %3: float32[4, 1] = GatherElements(%1, %2) {axis=1}
      %4: float32[4, 1] = constant {1, 0, 0.5, 0}
      %5: float32[4, 1] = Mul(%4, %3)
      %6: float32[4] = Reshape(%5) {shape=[4]}
      %7: float32[1] = ReduceSum(%6) {axes=[0]}
      %8: float32[] = Reshape(%7) {shape=[]}
      %9: float32[] = Neg(%8)
      %10: float32[] = constant {1}
      %11: float32[] = Neg(%10)
      %12: float32[1] = Reshape(%11) {shape=[1]}
      %13: float32[4] = Expand(%12) {shape=[4]}
      %14: float32[4, 1] = Reshape(%13) {shape=[4,1]}
      %15: float32[4, 1] = Mul(%14, %4)
      %16: int64[5] = constant {0, 1, 2, 3, …}
      %17: bool[4, 5] = Equal(%2, %16)
      %18: float32[] = constant {0}
      %19: float32[4, 5] = Where(%17, %15, %18)
      %20: float32[4, 5] = Exp(%1)
      %21: float32[4, 1] = ReduceSum(%19) {axes=[1]}
      %22: float32[4, 5] = Mul(%20, %21)
      %23: float32[4, 5] = Sub(%19, %22)
      %24: float32[5, 3] = Gemm(%23, %x) {transA=true, transB=false, alpha=1}
      output loss = %9
      output d:head.weight = %24
      output x = %x
    "
  `);
});

it('numbers by appearance, so that equal graphs have equal listings', () => {
  expect(training(7)).toBe(training(0));
});
