/** Selects the execution provider of a session, and reports the providers of this machine. */
import { EngineError } from '../../core/errors.js';
import { matMul } from '../graph/build.js';
import { Graph } from '../graph/ir.js';
import { autoProvider, hasGpu, type Machine, rejectIdleGpu, thisMachine, cudaProblem } from './cuda.js';
import { loadRuntime, type Provider, Session } from './session.js';

/**
 * The allowed values in a config. 'auto' means CUDA if its libraries and a device are present, otherwise WebGPU if it
 * works on an Apple GPU, otherwise the CPU.
 */
export type ProviderChoice = 'auto' | Provider;

/** The providers of this machine and this build of the runtime. */
export interface RuntimeDescription {
  /** The version of onnxruntime-node. */
  readonly version: string;
  /** Providers that a session can request, as far as known without creating one. */
  readonly available: readonly Provider[];
  /** Why each of the other providers is missing, one sentence each. */
  readonly missing: Readonly<Partial<Record<Provider, string>>>;
}

/**
 * The provider to compile sessions for. Raises EngineError, with the remedy, in three cases: 'cuda' is requested and
 * its libraries are missing, 'auto' would leave an NVIDIA GPU idle, or 'webgpu' is requested and this build of the
 * runtime lacks it. Every Apple machine has a GPU. On others WebGPU is used only on request, because its adapter may be
 * a CPU that emulates a GPU.
 */
export async function resolveProvider(
  choice: ProviderChoice,
  machine: Machine = thisMachine(),
  works: (provider: Provider) => Promise<boolean> = canCompute,
): Promise<Provider> {
  switch (choice) {
    case 'cpu':
      return 'cpu';
    case 'auto': {
      rejectIdleGpu('auto', machine);
      const found = autoProvider(machine);
      return found === 'cpu' && machine.platform === 'darwin' && (await works('webgpu')) ? 'webgpu' : found;
    }
    case 'cuda':
      rejectIdleGpu('cuda', machine);
      return 'cuda';
    case 'webgpu': {
      if (await isBundled('webgpu')) return 'webgpu';
      throw new EngineError(`provider webgpu: onnxruntime-node has no WebGPU for ${machine.platform}`, {
        next: "Set policy.engine.provider to 'cpu'.",
      });
    }
  }
}

/** Whether a minimal session runs. */
async function canCompute(provider: Provider): Promise<boolean> {
  if (!(await isBundled(provider))) return false;
  const graph = new Graph('look');
  const x = graph.input('x', [1, 1]);
  try {
    const session = await Session.compile(graph, { y: matMul(x, x) }, { provider });
    await session.run({ x: new Float32Array(1) });
    await session.dispose();
    return true;
  } catch (error) {
    if (error instanceof EngineError) return false;
    throw error;
  }
}

async function isBundled(provider: Provider): Promise<boolean> {
  const ort = await loadRuntime();
  return ort.listSupportedBackends().some(({ name, bundled }) => name === provider && bundled);
}

/** Version and providers, for `doctor`. Raises EngineError if the runtime cannot be loaded. */
export async function describeRuntime(machine: Machine = thisMachine()): Promise<RuntimeDescription> {
  const ort = await loadRuntime();
  const noCuda = cudaProblem(machine) ?? (hasGpu(machine) ? null : 'no NVIDIA device is visible');
  const webgpu = await isBundled('webgpu');
  const available: Provider[] = ['cpu'];
  if (webgpu) available.push('webgpu');
  if (noCuda === null) available.push('cuda');
  return {
    version: ort.env.versions.node ?? ort.env.versions.common,
    available,
    missing: {
      ...(noCuda === null ? {} : { cuda: noCuda }),
      ...(webgpu ? {} : { webgpu: `onnxruntime-node has no WebGPU for ${machine.platform}` }),
    },
  };
}

export interface ProbedProvider {
  /** The provider of the choice on this machine. */
  readonly provider: Provider;
  /**
   * Speed of square matrix products, in 1e9 floating-point operations per second, including copies to and from the
   * device.
   */
  readonly gflops: number;
}

const SIDE = 512;
const ROUNDS = 8;

/** Square matrix products that are timed. */
export interface SquareProducts {
  readonly provider: Provider;
  /** A power of two, so that the results are exact. */
  readonly side: number;
  /** Products of one run, each multiplying the previous result. Inputs and outputs are copied once per run. */
  readonly chained: number;
  readonly rounds: number;
  /** See SessionOptions. */
  readonly threads?: number | undefined;
}

/** Runs products of [side, side], and returns 1e9 floating-point operations per second. Raises the EngineErrors of `probeProvider`. */
export async function squareProductSpeed(products: SquareProducts): Promise<number> {
  const { provider, side, chained, rounds, threads } = products;
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
 * Runs [SIDE, SIDE] products on the provider. `threads` as in SessionOptions. Raises EngineError if the provider is
 * missing, refuses the graph, or computes a wrong result.
 */
export async function probeProvider(choice: ProviderChoice, threads?: number): Promise<ProbedProvider> {
  const provider = await resolveProvider(choice);
  return { provider, gflops: await squareProductSpeed({ provider, side: SIDE, chained: 1, rounds: ROUNDS, threads }) };
}
