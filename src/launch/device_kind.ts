/** Whether a run computes on GPUs or on the CPU, and so which kind of slot it takes. */
import type { Settings } from '../config/settings.js';
import { autoProvider } from '../engines/onnx/cuda.js';
import type { DeviceKind, Devices } from './devices.js';

type Provider = 'auto' | 'cpu' | 'webgpu' | 'cuda';

/**
 * `cpu` where there is no GPU, where `launch.devices` is empty, and where all engines of the run compute on the CPU, `auto`
 * resolved as its workers will resolve it. Another trainer is taken to use the GPUs that are there.
 */
export function deviceKind(
  settings: Settings,
  devices: Pick<Devices, 'gpus'>,
  auto: () => 'cuda' | 'cpu' = autoHere,
): DeviceKind {
  if (devices.gpus.length === 0 || settings.launch.devices?.length === 0) return 'cpu';
  const providers = providersOf(settings);
  if (providers === null) return 'gpu';
  return providers.every((provider) => (provider === 'auto' ? auto() : provider) === 'cpu') ? 'cpu' : 'gpu';
}

let here: 'cuda' | 'cpu' | null = null;

/** Asked once: a large matrix would ask for each of its cells. */
function autoHere(): 'cuda' | 'cpu' {
  return (here ??= autoProvider());
}

/** What a run's engines are to compute on; null where another program trains. */
function providersOf(settings: Settings): Provider[] | null {
  if (settings.launch.command !== null) return null;
  switch (settings.task) {
    case 'image_edit_tokens':
      return [settings.policy.engine.provider, settings.environment.engine.provider];
    case 'image_tokenizer':
      return [settings.environment.engine.provider];
    case 'external':
      return null;
  }
}
