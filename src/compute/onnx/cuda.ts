/** Whether onnxruntime can compute on a CUDA device of this machine. Light: the runtime itself is not loaded. */
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { EngineError } from '../../core/errors.js';

const CUDA_LIBRARIES: Readonly<Partial<Record<NodeJS.Platform, readonly string[]>>> = {
  linux: ['libonnxruntime_providers_cuda.so', 'libonnxruntime_providers_shared.so'],
  win32: ['onnxruntime_providers_cuda.dll', 'onnxruntime_providers_shared.dll'],
};

/** Device files of NVIDIA's driver for Linux. */
const NVIDIA_FILES = ['/dev/nvidia0', '/dev/nvidiactl'];

/** WSL's device file: of any maker's GPU. */
const WSL_FILE = '/dev/dxg';

/** Reads facts about the machine. Tests replace it. */
export interface Machine {
  readonly platform: NodeJS.Platform;
  /** The folder of the runtime's native libraries. */
  readonly libraries: string;
  readonly exists: (path: string) => boolean;
  /** The value of `CUDA_VISIBLE_DEVICES`. Undefined if it is not set. */
  readonly visible?: string | undefined;
}

export function thisMachine(): Machine {
  const root = dirname(createRequire(import.meta.url).resolve('onnxruntime-node/package.json'));
  return {
    platform: process.platform,
    libraries: join(root, 'bin', 'napi-v6', process.platform, process.arch),
    exists: existsSync,
    visible: process.env['CUDA_VISIBLE_DEVICES'],
  };
}

/** The provider of 'auto': CUDA if its libraries and a visible device are present, otherwise the CPU. */
export function autoProvider(machine: Machine = thisMachine()): 'cuda' | 'cpu' {
  return cudaProblem(machine) === null && hasGpu(machine) ? 'cuda' : 'cpu';
}

/** Why the runtime's libraries have no CUDA provider. Null if they have one. */
export function cudaProblem({ platform, libraries, exists }: Machine): string | null {
  const needed = CUDA_LIBRARIES[platform];
  if (needed === undefined) return `onnxruntime-node has no CUDA provider for ${platform}`;
  const missing = needed.filter((name) => !exists(join(libraries, name)));
  if (missing.length > 0) return `onnxruntime-node lacks ${missing.join(' and ')} in ${libraries}`;
  return null;
}

/** Whether this process has an NVIDIA device. Only Linux exposes devices as files. On other systems one is assumed. */
export function hasGpu({ platform, exists, visible }: Machine): boolean {
  if (visible !== undefined && ['', '-1'].includes(visible.trim())) return false;
  return platform !== 'linux' || [...NVIDIA_FILES, WSL_FILE].some((path) => exists(path));
}

/** A device file of NVIDIA's driver. Undefined if there is none, or on a system without such files. */
export function nvidiaFile({ platform, exists }: Machine): string | undefined {
  return platform === 'linux' ? NVIDIA_FILES.find((path) => exists(path)) : undefined;
}

/**
 * Why provider 'auto' would leave an NVIDIA GPU idle, as a sentence. Null if no GPU is visible or CUDA can use it. Only
 * on Linux do device files identify NVIDIA GPUs.
 */
export function idleGpuProblem(machine: Machine = thisMachine()): string | null {
  const device = hasGpu(machine) ? nvidiaFile(machine) : undefined;
  const problem = device === undefined ? null : cudaProblem(machine);
  return problem === null
    ? null
    : `this machine has an NVIDIA GPU (${device}) that provider 'auto' cannot use: ${problem}`;
}

const FETCH_PROVIDER = 'To use the GPU, run the script scripts/fetch_cuda, which downloads the CUDA provider.';

/** What to do, by the requested provider. Without GPUs, 'auto' computes on the CPU, and 'cuda' fails. */
const REMEDIES = {
  auto: `${FETCH_PROVIDER} To compute on the CPU, set engine.provider to 'cpu' or launch.devices to [], or hide the GPUs from this command: CUDA_VISIBLE_DEVICES=''.`,
  cuda: `${FETCH_PROVIDER} To compute on the CPU, set engine.provider to 'cpu'.`,
} as const;

/**
 * Raises EngineError, with the choices, if 'auto' would leave an NVIDIA GPU idle, or if 'cuda' is requested and its
 * libraries are missing.
 */
export function rejectIdleGpu(choice: 'auto' | 'cuda', machine: Machine = thisMachine()): void {
  const problem = choice === 'auto' ? idleGpuProblem(machine) : cudaProblem(machine);
  if (problem === null) return;
  throw new EngineError(choice === 'auto' ? problem : `engine.provider is 'cuda', but ${problem}`, {
    next: REMEDIES[choice],
  });
}
