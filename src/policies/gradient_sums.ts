/** The gradient of an optimizer step, added up over micro-batches and then over ranks, in memory that is kept from step to step. */
import { InternalError, must } from '../core/errors.js';
import type { Session, TensorData } from '../engines/onnx/session.js';
import { sizeOf } from '../graph/ir.js';
import type { Peers } from '../group/peers.js';
import type { Weights } from '../models/files.js';

/** What a training graph calls the gradient of a parameter: this before the parameter's name. */
export const GRADIENT = 'd:';

export class GradientSums {
  /** The gradients of the first micro-batch, to which the others' are added; kept, so that no step takes memory of that size anew. */
  readonly #sums: Record<string, TensorData> = {};
  /** The gradients of a later micro-batch. */
  readonly #parts: Record<string, TensorData> = {};
  /** Whether the sums hold anything since they were last taken. */
  #begun = false;
  /** What the sums are of, in the order of the graph: known on every rank, also where there was no micro-batch; none after a step. */
  #names: readonly string[] = [];

  /** Where a run of the training graph is to write the gradients of a micro-batch. */
  buffers(session: Session): Record<string, TensorData> {
    const into = this.#begun ? this.#parts : this.#sums;
    // What the runtime makes itself, it makes in memory of its own first, which it then keeps.
    for (const [name, { shape }] of session.outputs) {
      if (name.startsWith(GRADIENT)) into[name] ??= new Float32Array(sizeOf(shape));
    }
    return into;
  }

  /** Adds what such a run gave. */
  add(result: Readonly<Record<string, TensorData>>): void {
    for (const [name, gradient] of Object.entries(result)) {
      if (!name.startsWith(GRADIENT) || !this.#begun) continue;
      const sum = this.#sums[name] as Float32Array;
      for (let i = 0; i < sum.length; i++) sum[i] += (gradient as Float32Array)[i];
    }
    this.#begun = true;
  }

  /** What this rank has gradients of, for the others. */
  get names(): readonly string[] {
    return Object.keys(this.#sums);
  }

  /** Told what each rank has gradients of. */
  agree(namesR: readonly (readonly string[])[]): void {
    this.#names = namesR.find((names) => names.length > 0) ?? [];
  }

  /**
   * What was learnt, by parameter of `weights`: the ranks' sums, added in a fixed tree and the same on each. The next `add` begins anew, and
   * writes into these arrays.
   */
  async take(weights: Weights, peers: Peers): Promise<Map<string, Float32Array>> {
    if (this.#names.length === 0) throw new InternalError('a step without anything learnt');
    const total = this.#names.map((name): [string, Float32Array] => {
      const parameter = name.slice(GRADIENT.length);
      const size = must(weights.get(parameter), parameter).data.length;
      return [parameter, this.#begun ? (this.#sums[name] as Float32Array) : new Float32Array(size)];
    });
    this.#begun = false;
    this.#names = [];
    await peers.sum(total.map(([, gradient]) => gradient));
    return new Map(total);
  }
}
