/** The memory of a gradient compared with the estimate of `editrl plan`, for several lengths of sequences, each in a separate process. */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { InternalError } from '../../src/core/errors.js';
import {
  decoderActivations,
  decoderParameters,
  flowActivations,
  flowModelParameters,
  trainingBytes,
  type FlowMicroBatch,
} from '../../src/recipes/memory.js';

const PROCESS = fileURLToPath(new URL('./memory_process.js', import.meta.url));
const FLOW_PROCESS = fileURLToPath(new URL('./flow_memory_process.js', import.meta.url));

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

/** A flow transformer with FLUX's two kinds of blocks; all of its weights train. */
export const flowShape = { width: 256, heads: 4, layers: 4, singleLayers: 8 };

export interface MeasuredFlow extends Omit<FlowMicroBatch, 'tokens'> {
  /** Side of a picture in tokens. */
  readonly side: number;
  readonly textTokens: number;
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
        const found = peak(PROCESS, one);
        const estimated = trainingBytes(decoderParameters(shape), decoderActivations(shape, one));
        console.log(
          `${prompts} x ${answersPerPrompt} answers, context ${context}${gradientCheckpointing ? ', checkpointed' : ''}: ${compared(found, estimated)}`,
        );
      }
    }
    for (const pictures of [1, 4]) {
      for (const side of [8, 16, 32]) {
        const one = { pictures, side, textTokens: 64, gradientCheckpointing };
        const found = peak(FLOW_PROCESS, one);
        const shape = {
          ...flowShape,
          kind: 'flow',
          textWidth: 64,
          patch: 16,
          imagePrompt: null,
          conditionDropout: 0,
        } as const;
        const activations = flowActivations(shape, { ...one, tokens: side ** 2 + one.textTokens });
        const estimated = trainingBytes(flowModelParameters(shape), activations);
        console.log(
          `${pictures} pictures of ${side} x ${side} tokens${gradientCheckpointing ? ', checkpointed' : ''}: ${compared(found, estimated)}`,
        );
      }
    }
  }
}

function compared(found: number, estimated: number): string {
  return `${mebibytes(found)} MiB, estimated ${mebibytes(estimated)}, ${(estimated / found).toFixed(2)} of it`;
}

function peak(program: string, one: Measured | MeasuredFlow): number {
  const { stdout, stderr, status } = spawnSync(process.execPath, [program, JSON.stringify(one)], { encoding: 'utf8' });
  if (status !== 0) throw new InternalError(`the measuring process failed: ${stderr}`);
  return Number(stdout.trim());
}

export function mebibytes(bytes: number): string {
  return (bytes / 2 ** 20).toFixed(0);
}
