/** What a run needs of the machine: GPUs or the CPU, and how many processes. */
import { autoProvider } from '../../engines/onnx/cuda.js';
import { enginesOf, recipeOf } from '../../recipes/settings.js';
import { isTrainable } from '../../config/recipes.js';
import type { RunSettings, TrainedSettings } from '../../schema/run.js';
import type { ServeSettings } from '../../schema/sampler.js';
import { trainerServeOf } from '../../recipes/shared/tokens/rules.js';
import { processCount, type DeviceKind, type Devices } from './devices.js';

/**
 * `cpu` if there is no GPU, if `launch.devices` is empty, or if all engines of the run compute on the CPU, with `auto` resolved as its workers will.
 * Another trainer is assumed to use the existing GPUs, and so is a training server that is started with the run and names none.
 */
export function deviceKind(
  settings: RunSettings,
  devices: Pick<Devices, 'gpus'>,
  auto: () => 'cuda' | 'cpu' = detectedProvider,
): DeviceKind {
  // A run whose policy is trained by a server of its own may leave all GPUs to that.
  const serve = trainerServeOf(settings);
  const { gpus } = serve === null ? devices : runDevices(settings, devices);
  if (gpus.length === 0 || settings.launch.devices?.length === 0) return 'cpu';
  // That server computes on the GPU that the run is given, wherever the run itself computes.
  if (serve !== null && serve.devices === null && serve.mode !== 'jax') return 'gpu';
  if (settings.launch.command !== null || !isTrainable(settings)) return 'gpu';
  const onCpu = enginesOf(settings).every(({ provider }) => (provider === 'auto' ? auto() : provider) === 'cpu');
  return onCpu ? 'cpu' : 'gpu';
}

/** What a run itself may use of a machine, without the GPUs of a server that is started with it. */
export function runDevices<D extends Pick<Devices, 'gpus'>>(settings: RunSettings, devices: D): D {
  const served = serveOf(settings)?.devices ?? trainerServeOf(settings)?.devices ?? [];
  return { ...devices, gpus: devices.gpus.filter(({ index }) => !served.includes(index)) };
}

/**
 * The GPUs of a server that is started with a run: those that it names. Else one that samples has one that the run may use but does not, else the run's
 * first, which they share; one that trains has those of the run, or the first that it may use. Null if there is no GPU to assign: there is no such
 * server, or no such GPU.
 */
export function serverDevices(
  settings: RunSettings,
  devices: Pick<Devices, 'gpus'>,
  taken: readonly number[],
): readonly number[] | null {
  const trains = trainerServeOf(settings);
  if (trains !== null) return trainerDevices(trains.devices, settings, devices, taken);
  const serve = serveOf(settings);
  if (serve === null) return null;
  if (serve.devices !== null) return serve.devices;
  if (taken.length === 0) return null;
  const allowed = settings.launch.devices;
  const spare = devices.gpus.filter(({ index }) => !taken.includes(index) && (allowed?.includes(index) ?? true));
  return [...spare.map(({ index }) => index), ...taken].slice(0, 1);
}

function trainerDevices(
  named: readonly number[] | null,
  { launch }: RunSettings,
  { gpus }: Pick<Devices, 'gpus'>,
  taken: readonly number[],
): readonly number[] | null {
  if (named !== null) return named;
  // A run that was given GPUs among others keeps to them.
  if (taken.length > 0) return taken;
  const usable = gpus.filter(({ index }) => launch.devices?.includes(index) ?? true);
  return usable.length === 0 ? null : [usable[0].index];
}

function serveOf(settings: RunSettings): ServeSettings | null {
  return isTrainable(settings) ? (recipeOf(settings).sampler(settings)?.engine.serve ?? null) : null;
}

/** The number of processes in the config, but not more than a step has micro-batches: the others would have nothing to compute. */
export function processesOf(settings: RunSettings, devices: Pick<Devices, 'gpus'>, kind: DeviceKind): number {
  const asked = processCount(settings.launch, devices, kind);
  if (settings.launch.command !== null || !isTrainable(settings)) return asked;
  return Math.min(asked, recipeOf(settings).microBatches(settings));
}

/** Why a run has fewer processes than its config asks for, as a sentence without its end; null if it has as many. */
export function whyFewerProcesses(
  settings: RunSettings,
  devices: Pick<Devices, 'gpus'>,
  kind: DeviceKind,
): string | null {
  const [asked, processes] = [processCount(settings.launch, devices, kind), processesOf(settings, devices, kind)];
  if (processes >= asked) return null;
  return `${asked} processes are asked for, but a step has ${processes} micro-batch${processes === 1 ? '' : 'es'}: so many are started. A lower optimizer.per_device_batch_size gives it more`;
}

/** What the model that learns computes on, with `auto` resolved as this machine's workers will; `cpu` for a run that has no engine of it. */
export function learnersProvider(
  settings: TrainedSettings,
  auto: () => 'cuda' | 'cpu' = detectedProvider,
): 'cpu' | 'webgpu' | 'cuda' {
  const asked = enginesOf(settings).at(0)?.provider ?? 'cpu';
  if (asked !== 'auto') return asked;
  return settings.launch.devices?.length === 0 ? 'cpu' : auto();
}

let here: 'cuda' | 'cpu' | null = null;

/** Cached: a large matrix asks for each of its cells. */
function detectedProvider(): 'cuda' | 'cpu' {
  return (here ??= autoProvider());
}
