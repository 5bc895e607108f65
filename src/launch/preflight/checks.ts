/** Checks of a run on this machine before anything starts. They write nothing and use no network. */
import type { ShapeOf } from '../../recipes/shared/memory.js';
import { accessSync, constants, existsSync, statSync } from 'node:fs';
import { delimiter, join, resolve } from 'node:path';
import type { LoadedConfig } from '../../config/load.js';
import { cannotRunYet, dependencies } from '../../config/models.js';
import { CheckpointError, ConfigError, RunError } from '../../core/errors.js';
import { cachedModel, cachedSnapshot } from '../../models/hub/cache.js';
import { HOW_TO_NAME_MODELS, hubKey, modelFolder } from '../../models/reference.js';
import { rejectIdleGpu } from '../../compute/onnx/cuda.js';
import { openRecipeOf } from '../../recipes/open.js';
import { enginesOf, recipeOf, rewardOf } from '../../recipes/settings.js';
import { trainerServerOf } from '../../recipes/shared/tokens/rules.js';
import { isTrainable } from '../../config/recipes.js';
import { decidingTerms, recordedTerms } from '../../rewards/score/choice.js';
import { describeEmbeddingModel } from '../../rewards/terms/clip/model.js';
import type { HubReference, ModelReference } from '../../config/schema/model.js';
import { getPath, isObject } from '../../core/schema/walk.js';
import type { RunSettings, TrainedSettings } from '../../config/schema/run.js';
import {
  checkCores,
  deviceKind,
  gibibytes,
  processesOf,
  runDevices,
  takesMemoryHere,
  wholeMachinePlacement,
  type Devices,
} from '../machine/devices.js';
import { checkFolder, type FreeSpace } from '../machine/disk.js';
import type { MemoryModel } from '../machine/estimate.js';
import { checkPlacement, placeParts } from '../machine/placement.js';
import { checkOffline, hubEnvironmentOf, wantedModels } from '../models/wanted.js';
import { HOW_TO_SERVE, serverPrograms } from '../servers/training_server.js';
import { checkServable, DEFAULT_COMMAND, HOW_TO_INSTALL } from '../servers/vllm.js';
import { checkJudgeCalls } from '../judge_questions.js';

/** One check: its name, which runs with the same check share, and a function that raises the problem. */
export type NamedCheck = readonly [what: string, run: () => void];

/** A run to check, with facts about the runs that are checked together. */
export interface CheckedRun {
  readonly config: LoadedConfig;
  /** Whether it starts over, whatever its folder contains. */
  readonly startsOver: boolean;
  /** The settings of all runs, by run_name. */
  readonly made: ReadonlyMap<string, RunSettings>;
  readonly shapeOf: ShapeOf;
  /** Bytes of their future checkpoints, by folder. */
  readonly space: ReadonlyMap<string, number>;
  readonly freeSpace: FreeSpace | undefined;
  readonly devices: (() => Devices) | undefined;
  /** Null if this machine's devices are unknown. */
  readonly memory: () => MemoryModel | null;
}

type Check = (run: CheckedRun) => readonly NamedCheck[];

/** The checks, in the order in which problems are reported. */
const checks = {
  settings: ({ config: { settings, file } }) =>
    cannotRunYet(settings).map((reason) => [`${file} ${reason}`, () => fail(new ConfigError(reason, { where: file }))]),
  folder: ({ config, space, freeSpace }) => {
    const { base_exp_dir } = config.settings;
    const bytes = space.get(base_exp_dir) ?? 0;
    // The amount is part of the name: another chain may need more in the same folder.
    return [[`folder ${base_exp_dir} ${bytes}`, () => checkFolder(base_exp_dir, bytes, freeSpace)]];
  },
  parents: ({ config: { settings }, made }) =>
    dependencies(settings).map(({ run }) => {
      const start = made.get(run);
      const what = `${settings.run_name} in ${settings.base_exp_dir} from ${run} in ${start?.base_exp_dir ?? ''}`;
      return [what, () => checkPlace(settings, start)];
    }),
  placement: ({ config: { settings }, devices }) => {
    const { launch } = settings;
    const { placement, backend, devices: allowed, command } = launch;
    if (placement === null || command !== null) return [];
    const check = (): void => {
      checkPlacement(launch);
      // Slurm runs it on another machine.
      if (devices === undefined || backend === 'slurm') return;
      const gpus = devices().gpus.filter(({ index }) => allowed === null || allowed.includes(index));
      if (deviceKind(settings, { gpus }) === 'gpu') placeParts(placement, gpus);
    };
    return [[`placement ${JSON.stringify([placement, launch.processes, allowed])}`, check]];
  },
  /** GPUs, cores and providers. Slurm runs it on another machine. */
  devices: ({ config: { settings }, devices }) => {
    const { backend, devices: allowed, processes } = settings.launch;
    if (devices === undefined || backend === 'slurm' || cannotRunYet(settings).length > 0) return [];
    const what = JSON.stringify([allowed, processes, providersOf(settings)]);
    return [[`devices ${what} ${settings.run_name}`, () => checkDevices(settings, devices())]];
  },
  command: ({ config: { settings } }) => {
    const { command, env } = settings.launch;
    return command === null ? [] : [programCheck(command[0], NO_PROGRAM, env['PATH'])];
  },
  recipe: trained((settings, { shapeOf }) =>
    openRecipeOf(settings)
      .checks(settings, shapeOf)
      .map(({ name, run }) => [name, run]),
  ),
  hub: trained((settings) =>
    wantedModels(settings).map((wanted) => [
      `hub ${hubKey(wanted.reference)} ${wanted.pinned ?? ''}`,
      () => checkOffline(wanted, hubEnvironmentOf(settings)),
    ]),
  ),
  /** The description of a reward's Hub model, which is cached before its weights. */
  embedders: trained((settings) => {
    const reward = rewardOf(settings);
    const terms = reward === null ? [] : [...decidingTerms(reward), ...recordedTerms(reward)];
    return terms.flatMap(({ kind, fields: { model } }): NamedCheck[] => {
      if (kind.name !== 'clip' || !isObject(model) || !('hub' in model)) return [];
      const reference = model as unknown as HubReference;
      const environment = hubEnvironmentOf(settings);
      const folder = cachedSnapshot(reference, null, environment);
      if (folder === null || cachedModel(reference, 'model', null, environment) !== null) return [];
      return [[`embedder ${folder}`, () => void describeEmbeddingModel(folder)]];
    });
  }),
  models: trained((settings) =>
    recipeOf(settings).models.flatMap((key): NamedCheck[] => {
      const model = getPath(settings, key) as ModelReference | null | undefined;
      return typeof model === 'string' ? [[`model ${model}`, () => checkFolderOf(key, model)]] : [];
    }),
  ),
  /** A vLLM of the run: its program, and its model if it exists already. */
  sampler: trained((settings) => {
    const sampled = recipeOf(settings).sampler(settings);
    const serve = sampled?.engine.serve ?? null;
    if (sampled === null || serve === null) return [];
    const { model } = sampled;
    const [program] = serve.command ?? DEFAULT_COMMAND;
    const check = programCheck(program, { key: 'rollout.engine.serve', next: HOW_TO_INSTALL });
    return typeof model === 'string'
      ? [check, [`served ${model}`, () => checkServable(modelFolder(model, () => ''))]]
      : [check];
  }),
  /** A training server of the run: the programs that it needs. */
  trainer: trained((settings) => {
    const trainer = trainerServerOf(settings);
    if (trainer === null || trainer.serve === null) return [];
    return serverPrograms(trainer.serve).map(({ key, program }) => programCheck(program, { key, next: HOW_TO_SERVE }));
  }),
  judgeCalls: trained((settings, { config, startsOver }) => {
    // An evaluation counts its judge requests in its own folder.
    const most = config.evaluation === undefined ? (rewardOf(settings)?.max_judge_calls ?? null) : null;
    const what = `judge calls ${settings.base_exp_dir} ${settings.run_name} ${most ?? ''}`;
    return most === null ? [] : [[what, () => checkJudgeCalls(settings, most, startsOver)]];
  }),
  memory: ({ config: { settings }, memory }) => {
    const verdict = takesMemoryHere(settings) ? memory()?.(settings).verdict() : undefined;
    if (!verdict?.neverFits) return [];
    const { neededBytes, totalBytes, advice } = verdict;
    const found = `needs about ${gibibytes(neededBytes)} of memory, and this machine has ${gibibytes(totalBytes)}`;
    const next = `To make it fit, ${advice ?? ''}.`;
    return [[`memory ${found}`, () => fail(new RunError(found, { where: settings.run_name, next }))]];
  },
} as const satisfies Readonly<Record<string, Check>>;

/** All checks for a run. */
export function checksFor(run: CheckedRun): NamedCheck[] {
  return Object.values<Check>(checks).flatMap((check) => check(run));
}

/** A check for runs that our own workers train. Runs of foreign trainers need none. */
function trained(check: (settings: TrainedSettings, run: CheckedRun) => readonly NamedCheck[]): Check {
  return (run) => {
    const { settings } = run.config;
    return isTrainable(settings) && settings.launch.command === null ? check(settings, run) : [];
  };
}

/** The providers of a run's engines. Empty for a foreign trainer. */
function providersOf(settings: RunSettings): string[] {
  if (!isTrainable(settings) || settings.launch.command !== null) return [];
  return [...new Set(enginesOf(settings).map(({ provider }) => provider))];
}

/** Raises problems with devices: GPUs that do not exist or that its engines cannot use, too few of them, or too few cores. */
function checkDevices(settings: RunSettings, devices: Devices): void {
  const providers = providersOf(settings);
  const onCpu = settings.launch.devices?.length === 0;
  if (providers.includes('cuda')) rejectIdleGpu('cuda');
  if (providers.includes('auto') && !onCpu) rejectIdleGpu('auto');
  const wantsGpus =
    providers.some((provider) => provider === 'auto' || provider === 'cuda') || settings.launch.command !== null;
  if (devices.problem !== undefined && wantsGpus && !onCpu) {
    throw new RunError(`this machine has NVIDIA GPUs, but ${devices.problem}`, {
      where: settings.run_name,
      next: 'Repair the driver (run nvidia-smi by hand), or use the CPU: set launch.devices to [].',
    });
  }
  if (providers.includes('cuda') && (onCpu || devices.gpus.length === 0)) {
    const details = { where: settings.run_name, next: "Set engine.provider to 'cpu' or 'auto'." };
    throw onCpu
      ? new ConfigError("engine.provider is 'cuda', and launch.devices is []", details)
      : new RunError("engine.provider is 'cuda', and this machine has no visible NVIDIA GPU", details);
  }
  const kind = deviceKind(settings, devices);
  const own = runDevices(settings, devices);
  const processes = processesOf(settings, own, kind);
  if (kind === 'cpu') checkCores(processes, devices.cpus);
  wholeMachinePlacement({ ...settings.launch, processes }, own, kind);
}

function checkFolderOf(key: string, folder: string): void {
  if (existsSync(folder)) return;
  throw new CheckpointError('there is no such model folder', { where: `${key}: ${folder}`, next: HOW_TO_NAME_MODELS });
}

function fail(error: Error): never {
  throw error;
}

/** Checks that a run and its parent are in the same folder of runs. */
function checkPlace({ run_name, base_exp_dir }: RunSettings, start: RunSettings | undefined): void {
  if (start === undefined || resolve(start.base_exp_dir) === resolve(base_exp_dir)) return;
  throw new ConfigError(
    `${run_name} expects the run ${start.run_name} in ${base_exp_dir}, but its config puts it into ${start.base_exp_dir}`,
    {
      where: 'base_exp_dir',
      next: 'Give both one folder: by APP__BASE_EXP_DIR, an overlay, or --set base_exp_dir=/path.',
    },
  );
}

/** A setting that names a program, and advice if it does not exist. */
interface NamedProgram {
  readonly key: string;
  readonly next: string;
}

const NO_PROGRAM: NamedProgram = {
  key: 'launch.command',
  next: 'Name an executable program by its path, or one on PATH (launch.env may set PATH).',
};

function programCheck(program: string, { key, next }: NamedProgram, path = process.env['PATH'] ?? ''): NamedCheck {
  return [
    `command ${program} ${path}`,
    () => {
      const places = program.includes('/')
        ? [resolve(program)]
        : path.split(delimiter).map((dir) => join(dir, program));
      if (places.some(isProgram)) return;
      const isPath = program.includes('/');
      throw new RunError(`no program '${isPath ? resolve(program) : program}'${isPath ? '' : ' on PATH'}`, {
        where: key,
        next,
      });
    },
  ];
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false; // Missing or not executable.
  }
}
