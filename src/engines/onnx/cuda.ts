/** Whether onnxruntime can compute on a CUDA device of this machine. Light: the runtime itself is not loaded. */
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';

const CUDA_LIBRARIES: Readonly<Partial<Record<NodeJS.Platform, readonly string[]>>> = {
  linux: ['libonnxruntime_providers_cuda.so', 'libonnxruntime_providers_shared.so'],
  win32: ['onnxruntime_providers_cuda.dll', 'onnxruntime_providers_shared.dll'],
};

/** Device files by which Linux shows an NVIDIA GPU; the last is that of WSL. */
const GPU_FILES = ['/dev/nvidiactl', '/dev/nvidia0', '/dev/dxg'];

/** What is asked of the machine; tests put another machine in its place. */
export interface Machine {
  readonly platform: NodeJS.Platform;
  /** The folder of the runtime's native libraries. */
  readonly libraries: string;
  readonly exists: (path: string) => boolean;
  /** The value of `CUDA_VISIBLE_DEVICES`; undefined where it is not set. */
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

/** What 'auto' stands for: CUDA where its libraries and a device that is not hidden are there, else the CPU. */
export function autoProvider(machine: Machine = thisMachine()): 'cuda' | 'cpu' {
  return whyNoCuda(machine) === null && hasGpu(machine) ? 'cuda' : 'cpu';
}

/** Why there is no CUDA provider, as far as the runtime's libraries go; null where there is one. */
export function whyNoCuda({ platform, libraries, exists }: Machine): string | null {
  const needed = CUDA_LIBRARIES[platform];
  if (needed === undefined) return `onnxruntime-node has no CUDA provider for ${platform}`;
  const missing = needed.filter((name) => !exists(join(libraries, name)));
  if (missing.length > 0) return `onnxruntime-node lacks ${missing.join(' and ')} in ${libraries}`;
  return null;
}

/** Whether there is an NVIDIA device that this process may see. Only Linux shows them as files; elsewhere one is assumed. */
export function hasGpu({ platform, exists, visible }: Machine): boolean {
  if (visible !== undefined && ['', '-1'].includes(visible.trim())) return false;
  return platform !== 'linux' || GPU_FILES.some((path) => exists(path));
}
