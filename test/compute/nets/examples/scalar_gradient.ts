/** The derivative of a scalar function: y = x^2 sin x, and its second derivative, which is a gradient of the gradient. */
import { Session } from '../../../../src/compute/onnx/session.js';
import { mul, sin } from '../../../../src/compute/graph/build.js';
import { gradients } from '../../../../src/compute/graph/differentiate.js';
import { Graph } from '../../../../src/compute/graph/ir.js';

export async function scalarGradient(x: number): Promise<{ y: number; dy: number; ddy: number }> {
  const graph = new Graph('scalar');
  const input = graph.input('x', []);
  const y = mul(mul(input, input), sin(input));
  const [dy] = gradients(y, [input]);
  const [ddy] = gradients(dy, [input]);

  const session = await Session.compile(graph, { y, dy, ddy });
  const out = await session.run({ x: Float32Array.of(x) });
  await session.dispose();
  return { y: Number(out['y'][0]), dy: Number(out['dy'][0]), ddy: Number(out['ddy'][0]) };
}
