/** Whether onnxruntime can compute on a CUDA device of this machine. Light: the runtime itself is not loaded. */
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';

const CUDA_LIBRARIES: Readonly<Partial<Record<NodeJS.Platform, readonly string[]>>> = {
  linux: ['libonnxruntime_providers_cuda.so', 'libonnxruntime_providers_shared.so'],
  win32: ['onnxruntime_providers_cuda.dll', 'onnxruntime_providers_shared.dll'],
};

/** Device files through which Linux exposes an NVIDIA GPU; the last is WSL's. */
const GPU_FILES = ['/dev/nvidiactl', '/dev/nvidia0', '/dev/dxg'];

/** Queries to the machine; tests replace them. */
export interface Machine {
  readonly platform: NodeJS.Platform;
  /** The folder of the runtime's native libraries. */
  readonly libraries: string;
  readonly exists: (path: string) => boolean;
  /** The value of `CUDA_VISIBLE_DEVICES`; undefined if it is not set. */
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

/** The provider that 'auto' stands for: CUDA if its libraries and a visible device are present, else the CPU. */
export function autoProvider(machine: Machine = thisMachine()): 'cuda' | 'cpu' {
  return whyNoCuda(machine) === null && hasGpu(machine) ? 'cuda' : 'cpu';
}

/** Why the runtime's libraries offer no CUDA provider; null if they do. */
export function whyNoCuda({ platform, libraries, exists }: Machine): string | null {
  const needed = CUDA_LIBRARIES[platform];
  if (needed === undefined) return `onnxruntime-node has no CUDA provider for ${platform}`;
  const missing = needed.filter((name) => !exists(join(libraries, name)));
  if (missing.length > 0) return `onnxruntime-node lacks ${missing.join(' and ')} in ${libraries}`;
  return null;
}

/** Whether this process can see an NVIDIA device. Only Linux exposes devices as files; on other systems one is assumed. */
export function hasGpu({ platform, exists, visible }: Machine): boolean {
  if (visible !== undefined && ['', '-1'].includes(visible.trim())) return false;
  return platform !== 'linux' || GPU_FILES.some((path) => exists(path));
}
