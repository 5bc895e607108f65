/** The memory of a gradient compared with the estimate of `editrl plan`, for several lengths of sequences, each in a separate process. */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { InternalError } from '../../src/core/errors.js';
import { decoderActivations, decoderParameters, trainingBytes } from '../../src/recipes/memory.js';

const PROCESS = fileURLToPath(new URL('./memory_process.js', import.meta.url));

/** Large enough that attention takes as much as the rest, and small enough for any machine. */
export const shape = {
  vocab_size: 1000,
  hidden_size: 128,
  intermediate_size: 344,
  num_hidden_layers: 6,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 32,
  tie_word_embeddings: false,
};

export interface Measured {
  readonly prompts: number;
  readonly answersPerPrompt: number;
  readonly promptTokens: number;
  readonly answerTokens: number;
  readonly gradientCheckpointing: boolean;
}

/** Prints a line for each case: the peak of the resident memory, the estimate of `plan`, and their ratio. */
export function benchMemory(): void {
  for (const gradientCheckpointing of [false, true]) {
    for (const [prompts, answersPerPrompt] of [
      [4, 1],
      [1, 4],
    ]) {
      for (const context of [256, 512, 1024]) {
        const half = context / 2;
        const one = { prompts, answersPerPrompt, promptTokens: half, answerTokens: half, gradientCheckpointing };
        const found = peak(one);
        const estimated = trainingBytes(decoderParameters(shape), decoderActivations(shape, one));
        console.log(
          `${prompts} x ${answersPerPrompt} answers, context ${context}${gradientCheckpointing ? ', checkpointed' : ''}: ${mebibytes(found)} MiB, estimated ${mebibytes(estimated)}, ${(estimated / found).toFixed(2)} of it`,
        );
      }
    }
  }
}

function peak(one: Measured): number {
  const { stdout, stderr, status } = spawnSync(process.execPath, [PROCESS, JSON.stringify(one)], { encoding: 'utf8' });
  if (status !== 0) throw new InternalError(`the measuring process failed: ${stderr}`);
  return Number(stdout.trim());
}

export function mebibytes(bytes: number): string {
  return (bytes / 2 ** 20).toFixed(0);
}
