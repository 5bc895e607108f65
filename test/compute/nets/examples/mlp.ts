/** A network with one hidden layer learns XOR: parameters are inputs of the graph, and the optimizer changes their arrays in place. */
import { RandomStream } from '../../../../src/core/random.js';
import { AdamW } from '../../../../src/compute/onnx/optimizer.js';
import { Session } from '../../../../src/compute/onnx/session.js';
import { sigmoid, tanh } from '../../../../src/compute/graph/build.js';
import { gradients } from '../../../../src/compute/graph/differentiate.js';
import { Graph, type Value } from '../../../../src/compute/graph/ir.js';
import { linear } from '../../../../src/compute/nets/layers.js';
import { meanSquaredError } from '../../../../src/compute/nets/losses.js';

const HIDDEN = 8;
const inputs = { x: Float32Array.of(0, 0, 0, 1, 1, 0, 1, 1), wanted: Float32Array.of(0, 1, 1, 0) };

export async function mlp(steps: number): Promise<{ first: number; last: number; answers: number[] }> {
  const graph = new Graph('mlp');
  const hidden = tanh(linear(graph.input('x', [4, 2]), 'hidden', HIDDEN, true));
  const answers = sigmoid(linear(hidden, 'out', 1, true));
  const loss = meanSquaredError(answers, graph.input('wanted', [4, 1]));
  const parameters = [...graph.parameters.values()];
  const found = gradients(loss, parameters);
  const outputs: Record<string, Value> = { loss, answers };
  parameters.forEach(({ name }, i) => (outputs[`d ${name}`] = found[i]));
  const session = await Session.compile(graph, outputs);

  const random = new RandomStream(1, 'mlp');
  const begun = ({ size }: Value): Float32Array => Float32Array.from({ length: size }, () => random.normal());
  const weights = new Map(parameters.map((value) => [value.name, { shape: value.shape, data: begun(value) }]));
  const optimizer = new AdamW(weights, { betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0 });
  const losses: number[] = [];
  for (;;) {
    const out = await session.run(inputs, weights);
    losses.push(Number(out['loss'][0]));
    if (losses.length > steps) {
      await session.dispose();
      return { first: losses[0], last: losses[steps], answers: Array.from(out['answers'], Number) };
    }
    const ofParameters = [...weights.keys()].map((name) => [name, out[`d ${name}`] as Float32Array] as const);
    optimizer.step(new Map(ofParameters), 0.05);
  }
}
