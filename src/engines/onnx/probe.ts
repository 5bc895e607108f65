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

/** Square matrix products that are timed. */
export interface SquareProducts {
  readonly provider: Provider;
  /** A power of two, so that what they come to is exact. */
  readonly side: number;
  /** Products of one run, each of the result of the one before; what is copied to and from the device is copied once. */
  readonly chained: number;
  readonly rounds: number;
  /** As in SessionOptions. */
  readonly threads?: number | undefined;
}

/** Runs products of [side, side], and returns 1e9 floating-point operations per second. Raises EngineError as `probeProvider` does. */
export async function squareProductSpeed(asked: SquareProducts): Promise<number> {
  const { provider, side, chained, rounds, threads } = asked;
  const graph = new Graph('probe');
  const b = graph.input('b', [side, side]);
  let product = graph.input('a', [side, side]);
  for (let i = 0; i < chained; i++) product = matMul(product, b);
  const session = await Session.compile(
    graph,
    { product },
    { provider, ...(threads === undefined ? {} : { threads }) },
  );
  try {
    const feeds = { a: new Float32Array(side * side).fill(0.5), b: new Float32Array(side * side).fill(1 / side) };
    // The first run chooses and compiles kernels.
    const into = await session.run(feeds);
    if ((into['product'] as Float32Array).some((value) => value !== 0.5)) {
      throw new EngineError(`provider ${provider} computes a wrong matrix product`, {
        next: "Check the device and its driver, or set policy.engine.provider to 'cpu'.",
      });
    }
    const before = session.seconds;
    for (let round = 0; round < rounds; round++) await session.run(feeds, new Map(), into);
    return (rounds * chained * 2 * side ** 3) / (session.seconds - before) / 1e9;
  } finally {
    await session.dispose();
  }
}

/**
 * Runs [SIDE, SIDE] products on the provider. `threads` as in SessionOptions. Raises EngineError where the provider is missing,
 * refuses the graph, or computes something else.
 */
export async function probeProvider(choice: ProviderChoice, threads?: number): Promise<ProbedProvider> {
  const provider = await resolveProvider(choice);
  return { provider, gflops: await squareProductSpeed({ provider, side: SIDE, chained: 1, rounds: ROUNDS, threads }) };
}
