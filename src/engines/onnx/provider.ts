/** Selects the execution provider of a session, and tells what this machine offers. */
import { EngineError } from '../../core/errors.js';
import { matMul } from '../../graph/build.js';
import { Graph } from '../../graph/ir.js';
import { autoProvider, hasGpu, refuseIdleGpu, thisMachine, whyNoCuda, type Machine } from './cuda.js';
import { loadRuntime, Session, type Provider } from './session.js';

/**
 * The values that a config may ask for. 'auto' means CUDA if its libraries and a device are present, else WebGPU if that is Apple's GPU and works,
 * else the CPU.
 */
export type ProviderChoice = 'auto' | Provider;

/** What this machine and this build of the runtime support. */
export interface RuntimeDescription {
  /** The version of onnxruntime-node. */
  readonly version: string;
  /** Providers that a session can ask for, as far as can be told without creating one. */
  readonly available: readonly Provider[];
  /** What the other providers lack, one sentence each. */
  readonly missing: Readonly<Partial<Record<Provider, string>>>;
}

/**
 * The provider to compile sessions for. Raises EngineError, with the remedy, if 'cuda' is asked for and its libraries are missing, if 'auto' would
 * leave an NVIDIA GPU idle, or if 'webgpu' is asked for and this build of the runtime lacks it. Every Apple machine has a GPU; on others WebGPU is used only on request, because the adapter that
 * it finds may be a CPU that emulates a GPU.
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
      refuseIdleGpu('auto', machine);
      const found = autoProvider(machine);
      return found === 'cpu' && machine.platform === 'darwin' && (await works('webgpu')) ? 'webgpu' : found;
    }
    case 'cuda':
      refuseIdleGpu('cuda', machine);
      return 'cuda';
    case 'webgpu': {
      if (await isBundled('webgpu')) return 'webgpu';
      throw new EngineError(`provider webgpu: onnxruntime-node has none for ${machine.platform}`, {
        next: "Set policy.engine.provider to 'cpu'.",
      });
    }
  }
}

/** Whether a session that does next to nothing can be had. */
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
  const noCuda = whyNoCuda(machine) ?? (hasGpu(machine) ? null : 'no NVIDIA device is visible');
  const webgpu = await isBundled('webgpu');
  const available: Provider[] = ['cpu'];
  if (webgpu) available.push('webgpu');
  if (noCuda === null) available.push('cuda');
  return {
    version: ort.env.versions.node ?? ort.env.versions.common,
    available,
    missing: {
      ...(noCuda === null ? {} : { cuda: noCuda }),
      ...(webgpu ? {} : { webgpu: `onnxruntime-node has none for ${machine.platform}` }),
    },
  };
}
