/** Which execution provider a session runs on, and what this machine offers. */
import { EngineError } from '../../core/errors.js';
import { matMul } from '../../graph/build.js';
import { Graph } from '../../graph/ir.js';
import { autoProvider, hasGpu, thisMachine, whyNoCuda, type Machine } from './cuda.js';
import { loadRuntime, Session, type Provider } from './session.js';

/** What a config may ask for; 'auto' takes CUDA where its libraries and a device are there, else WebGPU where that is Apple's GPU and works, else the CPU. */
export type ProviderChoice = 'auto' | Provider;

/** What this machine and this build of the runtime have. */
export interface RuntimeDescription {
  /** The version of onnxruntime-node. */
  readonly version: string;
  /** Providers that a session can be asked for, as far as can be told without making one. */
  readonly available: readonly Provider[];
  /** What is missing for the others, one sentence each. */
  readonly missing: Readonly<Partial<Record<Provider, string>>>;
}

/** The runtime's own install script; flags and variables of npm do not reach it where the project switches scripts off. */
export const CUDA_REMEDY =
  'Run `node node_modules/onnxruntime-node/script/install.js --onnxruntime-node-install=cuda12` where nuget.org can be reached ' +
  "(CUDA 12 and cuDNN 9 must be installed), or set policy.engine.provider to 'cpu'.";

/**
 * The provider to compile sessions for. Raises EngineError with the remedy where 'cuda' is asked for and its libraries are
 * missing, or 'webgpu' and this build of the runtime lacks it. Beyond Apple's machines, each of which has a GPU, WebGPU is taken only when
 * asked for: what it finds there may be a processor that plays one.
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
      const found = autoProvider(machine);
      return found === 'cpu' && machine.platform === 'darwin' && (await works('webgpu')) ? 'webgpu' : found;
    }
    case 'cuda': {
      const problem = whyNoCuda(machine);
      if (problem !== null) throw new EngineError(`provider cuda: ${problem}`, { next: CUDA_REMEDY });
      return 'cuda';
    }
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

/** For `doctor`: version and providers. Raises EngineError where the runtime cannot be loaded. */
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
