/** One step of LoRA: the base weights stay frozen, and a step along the adapter's gradient makes a text more probable. */
import { AdamW } from '../../../../src/compute/onnx/optimizer.js';
import { Session } from '../../../../src/compute/onnx/session.js';
import { neg, reduceMean } from '../../../../src/compute/graph/build.js';
import { gradients } from '../../../../src/compute/graph/differentiate.js';
import { Graph, type Value } from '../../../../src/compute/graph/ir.js';
import { decoderParameters, withAdapter } from '../../../../src/compute/nets/decoder/config.js';
import { sequenceLogits } from '../../../../src/compute/nets/decoder/decoder.js';
import { sequenceInputs } from '../../../../src/compute/nets/decoder/inputs.js';
import { initAdapter, isAdapters } from '../../../../src/compute/nets/lora.js';
import { wholeDistribution } from '../../../../src/compute/nets/token_distribution.js';
import { readDecoder } from './decoder.js';

export async function loraStep(
  folder: string,
  prompt: readonly number[],
  answer: readonly number[],
): Promise<{ before: number; after: number }> {
  const { config: base, weights } = readDecoder(folder);
  const config = withAdapter(base, { rank: 2, alpha: 4, rslora: false, targets: ['q_proj', 'v_proj'] });
  const shapeOf = (name: string): readonly number[] => decoderParameters(base).get(name)?.shape ?? [];
  const adapter = initAdapter(config.adapter, shapeOf, 1);

  const columns = answer.length - 1;
  const shape = { prompts: 1, answersPerPrompt: 1, promptColumns: prompt.length, answerColumns: columns };
  const graph = new Graph('lora');
  const logits = sequenceLogits(config, shape, sequenceInputs(graph, shape));
  const { logProbs } = wholeDistribution(logits, graph.input('targets', [columns], 'int64'), 1, null);
  const loss = neg(reduceMean(logProbs, [0]));
  const trained = [...graph.parameters.values()].filter(({ name }) => isAdapters(name));
  const found = gradients(loss, trained);
  const outputs: Record<string, Value> = { loss };
  trained.forEach(({ name }, i) => (outputs[name] = found[i]));
  const session = await Session.compile(graph, outputs);

  const optimizer = new AdamW(adapter, { betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0 });
  const feeds = {
    prompt_ids: BigInt64Array.from(prompt, BigInt),
    prompt_padding: new Float32Array(prompt.length),
    answer_ids: BigInt64Array.from(answer.slice(0, -1), BigInt),
    targets: BigInt64Array.from(answer.slice(1), BigInt),
  };
  const all = new Map([...weights, ...adapter]);
  const { loss: before, ...ofAdapter } = await session.run(feeds, all);
  optimizer.step(new Map(Object.entries(ofAdapter as Record<string, Float32Array>)), 1e-2);
  const { loss: after } = await session.run(feeds, all);
  await session.dispose();
  return { before: Number(before[0]), after: Number(after[0]) };
}
