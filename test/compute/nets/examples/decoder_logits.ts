/** The logits of a language model from a folder in the Hugging Face layout, for the last tokens of a text. */
import { Session } from '../../../../src/compute/onnx/session.js';
import { Graph } from '../../../../src/compute/graph/ir.js';
import { sequenceLogits } from '../../../../src/compute/nets/decoder/decoder.js';
import { sequenceInputs } from '../../../../src/compute/nets/decoder/inputs.js';
import { readDecoder } from './decoder.js';

/** Logits [answer tokens, vocabulary] of the token after each of an answer's tokens. The answer begins with the prompt's last token. */
export async function decoderLogits(
  folder: string,
  prompt: readonly number[],
  answer: readonly number[],
): Promise<Float32Array> {
  const { config, weights } = readDecoder(folder);
  const shape = { prompts: 1, answersPerPrompt: 1, promptColumns: prompt.length, answerColumns: answer.length };
  const graph = new Graph('decoder');
  const logits = sequenceLogits(config, shape, sequenceInputs(graph, shape));

  const session = await Session.compile(graph, { logits });
  const out = await session.run(
    {
      prompt_ids: BigInt64Array.from(prompt, BigInt),
      prompt_padding: new Float32Array(prompt.length),
      answer_ids: BigInt64Array.from(answer, BigInt),
    },
    weights,
  );
  await session.dispose();
  return out['logits'] as Float32Array;
}
