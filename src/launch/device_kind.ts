/** Whether a run computes on GPUs or on the CPU, and so which kind of slot it takes. */
import { autoProvider } from '../engines/onnx/cuda.js';
import { enginesOf } from '../recipes/engines.js';
import { isTrainable } from '../recipes/settings.js';
import type { RunSettings } from '../schema/run.js';
import type { DeviceKind, Devices } from './devices.js';

/**
 * `cpu` where there is no GPU, where `launch.devices` is empty, and where all engines of the run compute on the CPU, `auto`
 * resolved as its workers will resolve it. Another trainer is taken to use the GPUs that are there.
 */
export function deviceKind(
  settings: RunSettings,
  devices: Pick<Devices, 'gpus'>,
  auto: () => 'cuda' | 'cpu' = autoHere,
): DeviceKind {
  if (devices.gpus.length === 0 || settings.launch.devices?.length === 0) return 'cpu';
  if (settings.launch.command !== null || !isTrainable(settings)) return 'gpu';
  const onCpu = enginesOf(settings).every(({ provider }) => (provider === 'auto' ? auto() : provider) === 'cpu');
  return onCpu ? 'cpu' : 'gpu';
}

let here: 'cuda' | 'cpu' | null = null;

/** Asked once: a large matrix would ask for each of its cells. */
function autoHere(): 'cuda' | 'cpu' {
  return (here ??= autoProvider());
}
