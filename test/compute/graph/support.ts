/** What the tests of graphs share: feeding values by identity, running on onnxruntime, comparing. */
import { expect } from 'vitest';
import type { TensorData } from '../../../src/compute/onnx/tensors.js';
import { Session } from '../../../src/compute/onnx/session.js';
import { CHECKPOINT_INPUT } from '../../../src/compute/graph/checkpoint.js';
import type { Dtype, Graph, Value } from '../../../src/compute/graph/ir.js';

export type Feeds = ReadonlyMap<Value, TensorData>;

export function tensorData(dtype: Dtype, numbers: readonly number[]): TensorData {
  switch (dtype) {
    case 'float32':
      return Float32Array.from(numbers);
    case 'int64':
      return BigInt64Array.from(numbers, BigInt);
    case 'bool':
      return Uint8Array.from(numbers);
  }
}

/** The values of `outputs` on onnxruntime, as plain numbers; 'fresh' feeds of the checkpoints' flag are the session's own. */
export async function runOnnx(graph: Graph, outputs: readonly Value[], feeds: Feeds): Promise<number[][]> {
  const session = await Session.compile(graph, Object.fromEntries(outputs.map((output, i) => [`y${i}`, output])), {
    threads: 1,
  });
  try {
    const weights = new Map<string, { readonly data: Float32Array }>();
    const inputs: Record<string, TensorData> = {};
    for (const [value, data] of feeds) {
      if (value.origin.kind === 'parameter') weights.set(value.name, { data: data as Float32Array });
      else if (value.name !== CHECKPOINT_INPUT) inputs[value.name] = data;
    }
    const results = await session.run(inputs, weights);
    return outputs.map((_, i) => Array.from<number | bigint, number>(results[`y${i}`], Number));
  } finally {
    await session.dispose();
  }
}

/** Every pair within `tolerance` of the larger magnitude, or of one. */
export function expectClose(
  actual: ArrayLike<number>,
  expected: ArrayLike<number>,
  tolerance: number,
  what: string,
): void {
  expect(actual.length, `${what}: length`).toBe(expected.length);
  for (let i = 0; i < expected.length; i++) {
    const scale = Math.max(1, Math.abs(expected[i]));
    const difference = Math.abs(actual[i] - expected[i]);
    if (!(difference <= tolerance * scale)) {
      expect.fail(`${what}: element ${i} is ${actual[i]}, expected ${expected[i]} within ${tolerance}`);
    }
  }
}

/** The derivative of `f` by every element of `data`, by central differences; `data` is left as it was. */
export function centralDifferences(data: Float64Array, f: () => number, step = 1e-5): Float64Array {
  return data.map((_, i) => {
    const kept = data[i];
    data[i] = kept + step;
    const above = f();
    data[i] = kept - step;
    const below = f();
    data[i] = kept;
    return (above - below) / (2 * step);
  });
}
