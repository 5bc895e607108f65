/** Compiled sessions, shared by sessions that differ only in sizes. */
import { createHash } from 'node:crypto';
import { must } from '../../core/errors.js';
import type { TensorCell } from './tensor_cell.js';
import type * as Ort from 'onnxruntime-node';

/** Weights by name. */
export type WeightData = ReadonlyMap<string, { readonly data: Float32Array }>;

/** Weights by name, as runs are fed them: elements, or cells in which they lie. */
export type FedWeights = ReadonlyMap<string, { readonly data: Float32Array } | TensorCell>;

interface Compiled {
  readonly native: Promise<Ort.InferenceSession>;
  users: number;
}

/**
 * Sessions of one pool leave their sizes open: graphs that differ only in sizes are compiled once, and the compiled session is freed with its last
 * user. Products hold packed copies of frozen weights, which are made at compilation and shared in the same way; their results differ in the last
 * bits from those with weights that are fed.
 */
export class SessionPool {
  readonly #compiled = new Map<string, Compiled>();

  /** `frozen`: weights that nothing changes between the first use of a session of the pool and the last. */
  constructor(readonly frozen: WeightData = new Map()) {}

  /** Lends what was compiled of a model, or compiles it. */
  async lend(key: string, compile: () => Promise<Ort.InferenceSession>): Promise<Ort.InferenceSession> {
    const entry = this.#compiled.get(key) ?? { native: compile(), users: 0 };
    this.#compiled.set(key, entry);
    entry.users += 1;
    try {
      return await entry.native;
    } catch (error) {
      // Others may have failed with it before and started over.
      if (this.#compiled.get(key) === entry) this.#compiled.delete(key);
      throw error;
    }
  }

  async giveBack(key: string): Promise<void> {
    const entry = must(this.#compiled.get(key), key);
    entry.users -= 1;
    if (entry.users > 0) return;
    this.#compiled.delete(key);
    const native = await entry.native;
    if ('endProfiling' in native) (native as { endProfiling(): void }).endProfiling();
    await native.release();
  }
}

/** Whether a session computes on the CPU. */
export function isOnCpu({ provider = 'cpu' }: { readonly provider?: string }): boolean {
  return provider === 'cpu';
}

/**
 * A pool for sessions with these options, each of which would otherwise hold the memory of its own largest run. None on an accelerator, where tensors
 * that depend on sizes would be copied at every run.
 */
export function poolFor(options: { readonly provider?: string }, frozen?: WeightData): SessionPool | undefined {
  return isOnCpu(options) ? new SessionPool(frozen) : undefined;
}

/** Tells models apart. */
export function keyOf(model: Uint8Array): string {
  return createHash('sha256').update(model).digest('base64');
}
