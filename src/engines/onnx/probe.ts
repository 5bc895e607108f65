/** Whether sessions really run where they are asked to: a product whose result is known, timed. */
import { EngineError } from '../../core/errors.js';
import { matMul } from '../../graph/build.js';
import { Graph } from '../../graph/ir.js';
import { resolveProvider, type ProviderChoice } from './provider.js';
import { Session, type Provider } from './session.js';

export interface ProbedProvider {
  /** The provider that the choice stands for on this machine. */
  readonly provider: Provider;
  /** Speed of square matrix products, in 1e9 floating-point operations per second; copies to and from the device included. */
  readonly gflops: number;
}

const SIDE = 512;
const ROUNDS = 8;

/**
 * Runs [SIDE, SIDE] products on the provider. `threads` as in SessionOptions. Raises EngineError where the provider is missing,
 * refuses the graph, or computes something else.
 */
export async function probeProvider(choice: ProviderChoice, threads?: number): Promise<ProbedProvider> {
  const provider = await resolveProvider(choice);
  const graph = new Graph('probe');
  const product = matMul(graph.input('a', [SIDE, SIDE]), graph.input('b', [SIDE, SIDE]));
  const session = await Session.compile(
    graph,
    { product },
    { provider, ...(threads === undefined ? {} : { threads }) },
  );
  try {
    const feeds = { a: new Float32Array(SIDE * SIDE).fill(0.5), b: new Float32Array(SIDE * SIDE).fill(2) };
    // The first run chooses and compiles kernels.
    const first = await session.run(feeds);
    if ((first['product'] as Float32Array).some((value) => value !== SIDE)) {
      throw new EngineError(`provider ${provider} computes a wrong matrix product`, {
        next: "Check the device and its driver, or set policy.engine.provider to 'cpu'.",
      });
    }
    const before = session.seconds;
    for (let round = 0; round < ROUNDS; round++) await session.run(feeds);
    return { provider, gflops: (ROUNDS * 2 * SIDE ** 3) / (session.seconds - before) / 1e9 };
  } finally {
    await session.dispose();
  }
}
