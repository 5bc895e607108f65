/**
 * `editrl check --launch`: starts a run's processes, exchanges tensors between them, and reports each process's devices. If a training server trains
 * the run, it also probes that server.
 */
import { randomUUID } from 'node:crypto';
import { availableParallelism } from 'node:os';
import { performance } from 'node:perf_hooks';
import type { LoadedConfig } from '../config/load.js';
import { InternalError, RunError } from '../core/errors.js';
import { probeProvider, type ProbedProvider, type ProviderChoice } from '../compute/onnx/provider.js';
import {
  detectDevices,
  deviceKind,
  gibibytes,
  processesOf,
  requireFree,
  runDevices,
  wholeMachinePlacement,
  whyFewerProcesses,
  type Devices,
  type Gpu,
  type Placement,
} from '../launch/machine/devices.js';
import { RunFailed } from '../launch/processes/failure.js';
import { Guardian } from '../launch/processes/guardian.js';
import { availableMemory } from '../launch/machine/memory.js';
import { freePort, rankEnvironment, supervise } from '../launch/processes/supervise.js';
import { openProcessGroup, type ProcessGroup } from '../core/group/process_group.js';
import { runResolver } from '../launch/models/wanted.js';
import { withTrainingServer } from '../launch/servers/training_server.js';
import { enginesOf } from '../recipes/settings.js';
import { probeFor } from '../recipes/open.js';
import { isTrainable } from '../config/recipes.js';
import type { LaunchSettings } from '../config/schema/launch.js';
import type { RunSettings } from '../config/schema/run.js';
import { formatTable, printError, printLine } from './shared/output.js';
import { text, type Action } from './shared/verb.js';

/** The report of one rank. */
export interface RankReport {
  readonly rank: number;
  readonly pid: number;
  /** Visible GPUs. Empty on the CPU. */
  readonly gpus: readonly Pick<Gpu, 'index' | 'uuid' | 'name'>[];
  /** Available cores. */
  readonly cpus: number;
  /** CPU threads to use. Null if there is no limit. */
  readonly threads: number | null;
  /** Available memory in bytes, of the GPU or the machine. Null if the driver does not report it. */
  readonly free_bytes: number | null;
  /** Throughput of the tensor sum over ranks, in bytes per second. Null for a single rank. */
  readonly bytes_per_second: number | null;
  /** The execution provider and its matrix product speed. Null if another program trains. */
  readonly engine: ProbedProvider | null;
}

const FLOATS = 4 * 2 ** 20;
const ROUNDS = 8;
const TIMEOUT_S = 60;
/** Prefix of the output line with a rank's report. */
const MARK = 'rank report:';

/** The result of a launch check. */
export interface LaunchReport {
  readonly processes: number;
  readonly devices: Placement['devices'];
  readonly ranks: readonly RankReport[];
  readonly trainer: Awaited<ReturnType<typeof probeFor>>;
  /** The report as text. */
  readonly text: string;
}

/** Checks that the processes of a run start and connect. Raises RunError with the rank that failed, and the errors of the training server's probe. */
export async function checkLaunch(config: LoadedConfig): Promise<LaunchReport> {
  const { launch } = config.settings;
  const devices = detectDevices();
  const kind = deviceKind(config.settings, devices);
  const own = runDevices(config.settings, devices);
  const processes = processesOf(config.settings, own, kind);
  const placement = wholeMachinePlacement({ ...launch, processes }, own, kind);
  requireFree(placement.devices);
  const ranks = await startRanks(config, processes, placement);
  const trainer = await checkTrainer(config.settings, devices, placement);
  const why = whyFewerProcesses(config.settings, own, kind) ?? countSource(launch.processes, own.gpus.length);
  return { processes, devices: placement.devices, ranks, trainer, text: reportText(ranks, trainer, why) };
}

/** One process of a launch check. Only `checkLaunch` starts it. */
export const rankVerb: Action = {
  positionals: '[provider]',
  build: (yargs) =>
    yargs
      .positional('provider', {
        type: 'string',
        describe: 'Execution provider of its sessions; none if a server trains',
      })
      .example('$0 rank cpu', 'Needs the environment that `editrl check --launch` sets'),
  run: (args) => runAsRank(text(args, 'provider')),
};

/** Probes the training server, and starts it first if the run does. Null if this machine trains the policy. */
async function checkTrainer(
  settings: RunSettings,
  devices: Devices,
  placement: Placement,
): ReturnType<typeof probeFor> {
  const stop = new AbortController();
  const onSignal = (): void => stop.abort();
  process.once('SIGINT', onSignal).once('SIGTERM', onSignal);
  try {
    const resolveRun = runResolver(settings.base_exp_dir);
    const services = { stop: stop.signal, onNote: printError };
    return await withTrainingServer(settings, { devices, placement, ...services }, (started) =>
      probeFor(settings, resolveRun, { started, ...services }),
    );
  } finally {
    process.off('SIGINT', onSignal).off('SIGTERM', onSignal);
  }
}

/** Starts the ranks and collects their reports. Raises RunError with the rank that died or hung and its last lines. */
async function startRanks(
  { settings }: LoadedConfig,
  processes: number,
  placement: ReturnType<typeof wholeMachinePlacement>,
): Promise<RankReport[]> {
  const run = settings.run_name;
  const guardian = new Guardian();
  const place = { processes, placement, port: await freePort() };
  const env = { ...settings.launch.env, EDITRL_GROUP_TOKEN: randomUUID() };
  const reports = new Map<number, RankReport>();
  const stop = new AbortController();
  const onSignal = (): void => stop.abort();
  process.once('SIGINT', onSignal).once('SIGTERM', onSignal);
  try {
    await supervise({
      run,
      guardian,
      ranks: Array.from({ length: processes }, (_, rank) => ({
        rank,
        command: [process.execPath, process.argv[1], 'rank', providerOf(settings)],
        env: rankEnvironment(rank, place, env),
      })),
      heartbeatTimeoutS: TIMEOUT_S,
      stop: stop.signal,
      onLine: (rank, line) => {
        if (line.startsWith(MARK)) reports.set(rank, JSON.parse(line.slice(MARK.length)) as RankReport);
      },
    });
  } catch (error) {
    if (!(error instanceof RunFailed)) throw error;
    throw new RunError(error.message, {
      where: run,
      next: 'Fix the error in these lines, or exclude the device with launch.devices. Then check again.',
      cause: error,
    });
  } finally {
    process.off('SIGINT', onSignal).off('SIGTERM', onSignal);
    guardian.close();
  }
  return Array.from({ length: processes }, (_, rank) => {
    const report = reports.get(rank);
    if (report === undefined) throw new InternalError(`rank ${rank} ended without a report`);
    return report;
  });
}

/** The provider that a run trains on. Empty if another program trains. */
function providerOf(settings: RunSettings): string {
  return isTrainable(settings) ? enginesOf(settings)[0].provider : '';
}

/** The work of each started process. */
async function runAsRank(provider: string): Promise<number> {
  const group = await openProcessGroup(process.env, { timeoutMs: TIMEOUT_S * 1000 });
  try {
    const bandwidth = await timeAllReduce(group);
    const { gpus } = detectDevices();
    const prescribed = process.env['OMP_NUM_THREADS'];
    const threads = prescribed === undefined ? null : Number(prescribed);
    const engine = provider === '' ? null : await probeProvider(provider as ProviderChoice, threads ?? undefined);
    const report: RankReport = {
      rank: group.rank,
      pid: process.pid,
      gpus: gpus.map(({ index, uuid, name }) => ({ index, uuid, name })),
      cpus: availableParallelism(),
      threads,
      free_bytes: gpus.length > 0 ? freeGpuMemory(gpus) : availableMemory(),
      bytes_per_second: bandwidth,
      engine,
    };
    printLine(`${MARK}${JSON.stringify(report)}`);
    await group.barrier();
    return 0;
  } finally {
    group.close();
  }
}

/** Sums a tensor over the ranks, checks the sum, and returns the throughput in bytes per second. Null for a single rank. */
async function timeAllReduce(group: ProcessGroup): Promise<number | null> {
  if (group.size === 1) return null;
  const tensor = new Float32Array(FLOATS);
  const expected = (group.size * (group.size + 1)) / 2;
  let seconds = 0;
  for (let round = 0; round < ROUNDS; round++) {
    tensor.fill(group.rank + 1);
    await group.barrier();
    const before = performance.now();
    await group.sum([tensor]);
    // The first round allocates the buffers that later rounds receive into.
    if (round > 0) seconds += (performance.now() - before) / 1000;
    if (tensor.some((value) => value !== expected)) {
      throw new InternalError(`rank ${group.rank} received a wrong sum of the tensors`);
    }
  }
  return ((ROUNDS - 1) * tensor.byteLength) / seconds;
}

function freeGpuMemory(gpus: readonly Gpu[]): number | null {
  return gpus.reduce<number | null>(
    (sum, { memoryBytes, usedBytes }) =>
      sum === null || memoryBytes === null || usedBytes === null ? null : sum + memoryBytes - usedBytes,
    0,
  );
}

/** Explains the number of processes, as a clause. */
function countSource(processes: LaunchSettings['processes'], gpus: number): string {
  if (processes !== 'auto') return `launch.processes is ${processes}`;
  return `launch.processes is 'auto' (one per GPU) and ${gpus === 0 ? 'there is no GPU' : `there are ${gpus}`}`;
}

/** @param why a clause that explains the number of processes. */
function reportText(reports: readonly RankReport[], trainer: LaunchReport['trainer'], why: string): string {
  const rows = reports.map((report) => [
    report.rank,
    report.pid,
    report.gpus.length > 0
      ? report.gpus.map(({ index, name, uuid }) => `GPU ${index} ${name} ${uuid}`).join(', ')
      : `CPU, ${report.threads ?? report.cpus} of ${report.cpus} cores`,
    report.free_bytes === null ? null : gibibytes(report.free_bytes),
    report.engine === null ? null : `${report.engine.provider}, ${report.engine.gflops.toFixed(0)} GFLOP/s`,
    report.bytes_per_second === null ? null : `${(report.bytes_per_second / 1e9).toFixed(2)} GB/s`,
  ]);
  const columns = [
    { title: 'rank', align: 'right' as const },
    { title: 'pid', align: 'right' as const },
    { title: 'device' },
    { title: 'memory', align: 'right' as const },
    { title: 'matrix product', align: 'right' as const },
    { title: 'sum over ranks', align: 'right' as const },
  ];
  const met =
    reports.length === 1
      ? `One process, so there was nothing to exchange: ${why}.`
      : `All ${reports.length} ranks connected and agree on the sum.`;
  const server =
    trainer === null
      ? ''
      : `\n\nThe training server ${trainer.url} passed its probe in ${trainer.seconds} s. Loss reduction: ${trainer.reduction}.`;
  return `${formatTable(columns, rows)}\n\n${met}${server}\n`;
}
