/** How much memory a run needs, from its settings alone, before anything is built. */
import { freemem } from 'node:os';
import type { DecoderInit, Settings } from '../config/settings.js';
import type { Gpu } from './devices.js';

/** What a process takes before it holds a model: the runtime, the engine and their libraries. */
const PROCESS_BYTES = 300 * 2 ** 20;
const FLOAT = 4;
/** Weights, gradient, that of a later micro-batch, and the optimizer's two moments. */
const COPIES_TRAINED = 5;
/** Values kept per token, layer and unit of width for the backward pass: attention and normalisation. */
const ACTIVATIONS_PER_WIDTH = 14;
/** Vocabulary of the tiny world, where the policy starts from random weights. */
const ASSUMED_VOCABULARY = 512;

/**
 * Bytes that one process of a run needs, or null where nobody can tell (a policy of unknown architecture, another trainer). A decoder of width d, feed-forward width f, L layers and vocabulary V has L(4d² + 3df) + 2Vd
 * parameters, kept five times in float32 (weights, gradients of the first and of a later micro-batch, two moments), once more as the frozen reference for GRPO, and once more as the
 * moving average where there is one. A micro-batch of B sequences of T tokens keeps B·T·L(14d + 3f) + B·L·h·T² + 2·B·T·V values. An image tokenizer counts
 * 20 convolutions' activations. It is an estimate, good to a factor of two.
 */
export function memoryBytes(settings: Settings, architecture: DecoderInit | null): number | null {
  const batch = settings.task === 'external' ? 0 : settings.optimizer.per_device_batch_size;
  if (settings.task === 'image_edit_tokens') {
    if (architecture === null) return null;
    const tokens = settings.policy.model_context_size;
    const {
      hidden_size: d,
      intermediate_size: f,
      num_hidden_layers: layers,
      num_attention_heads: heads,
    } = architecture;
    const parameters = layers * (4 * d * d + 3 * d * f) + 2 * ASSUMED_VOCABULARY * d;
    const averaged = settings.optimizer.ema_decay === null ? 0 : 1;
    const copies = COPIES_TRAINED + averaged + (settings.algorithm.type === 'grpo' ? 1 : 0);
    const perToken = layers * (ACTIVATIONS_PER_WIDTH * d + 3 * f) + 2 * ASSUMED_VOCABULARY;
    const kept = batch * tokens * (perToken + layers * heads * tokens);
    return PROCESS_BYTES + FLOAT * (copies * parameters + kept);
  }
  if (settings.task === 'image_tokenizer') {
    const { hidden, codebook_size, code_dim, patch } = settings.environment.init;
    const tiny = settings.data.tiny;
    if (tiny === null) return null;
    const pixels = (tiny.grid * tiny.cell) ** 2;
    const parameters = 2 * (3 * patch * patch * hidden + 4 * hidden * hidden) + codebook_size * code_dim;
    return PROCESS_BYTES + FLOAT * (COPIES_TRAINED * parameters + batch * 20 * (pixels / patch ** 2) * hidden);
  }
  return null;
}

export interface MemoryVerdict {
  readonly fits: boolean;
  /** What is free, in bytes, where the run would be placed. */
  readonly freeBytes: number;
  /** What to do when it does not fit. */
  readonly advice: string | null;
}

/** Whether processes that need so many bytes each fit: one on each GPU, or all in the machine's free memory. */
export function memoryVerdict(bytes: number, processes: number, gpus: readonly Gpu[]): MemoryVerdict {
  const onGpus = gpus.flatMap(({ memoryBytes: all, usedBytes }) => (all === null ? [] : [all - (usedBytes ?? 0)]));
  const freeBytes = onGpus.length > 0 ? Math.min(...onGpus) : freemem();
  const needed = onGpus.length > 0 ? bytes : bytes * processes;
  const fits = needed <= freeBytes;
  const advice = fits
    ? null
    : 'lower optimizer.per_device_batch_size or policy.model_context_size, or launch.processes';
  return { fits, freeBytes, advice };
}
