/**
 * Runs a foreign trainer: `launch.command` instead of our own workers. The launcher's process owns the run. Environment variables give the trainer the
 * run's name, the paths of its files and the address at which its processes meet.
 */
import { mkdirSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { basename, join, resolve } from 'node:path';
import { externalVariables } from '../../config/jsonnet.js';
import type { LoadedConfig } from '../../config/load.js';
import { must } from '../../core/errors.js';
import { diskError } from '../../core/files.js';
import { sha256 } from '../../core/images/image.js';
import type { RunHandle } from '../../run/claim/claim.js';
import { FILES_ONLY, openRunLog, type RunLog } from '../../run/logs.js';
import type { RunPaths } from '../../run/paths.js';
import { recordedWandbId } from '../../run/track/wandb/environment.js';
import type { View } from '../live/view.js';
import { freePort, rankEnvironment, supervise, type RankCommand } from '../processes/supervise.js';
import type { RunKind } from '../worker/protocol.js';
import type { Attempt, AttemptServices } from './attempt.js';
import { TrainerMetrics } from './metrics_file.js';

const FOLLOW_INTERVAL_MS = 200;

/** The part of a run directory that belongs to the trainer. */
export class TrainerPaths {
  readonly dir: string;

  constructor(paths: RunPaths) {
    this.dir = resolve(paths.dir, 'trainer');
  }

  /** The resolved config. */
  get config(): string {
    return join(this.dir, 'config.json');
  }
  /** The folder for the trainer's own checkpoints. */
  get checkpointsDir(): string {
    return join(this.dir, 'checkpoints');
  }
  /** Metrics of one attempt. Each attempt has its own file, so that a line torn by a crash cannot damage the next one. */
  metrics(attempt: number): string {
    return join(this.dir, `metrics_${String(attempt).padStart(3, '0')}.jsonl`);
  }
  /** The metrics files of earlier attempts, oldest first. */
  earlierMetrics(attempt: number): string[] {
    return readdirSync(this.dir)
      .filter((name) => Number(/^metrics_(\d{3,})\.jsonl$/.exec(name)?.[1] ?? Infinity) < attempt)
      .sort((a, b) => a.length - b.length || (a < b ? -1 : 1))
      .map((name) => join(this.dir, name));
  }
}

/** Programs that start a trainer's processes themselves. */
const LAUNCHERS = ['torchrun', 'accelerate', 'deepspeed'];
const LAUNCHER_MODULES = ['torch.distributed.run', 'torch.distributed.launch', 'accelerate.commands.launch'];

/** Whether a command starts its ranks itself. It is then started once, with all devices of the run. */
export function startsItsOwnRanks(command: readonly string[]): boolean {
  if (command.some((word) => LAUNCHERS.includes(basename(word)) && !word.startsWith('-'))) return true;
  const module = command[command.indexOf('-m') + 1];
  return command.includes('-m') && LAUNCHER_MODULES.includes(module);
}

/**
 * Runs the trainer of a claimed run to its end. Keeps `metrics.jsonl` and the iteration in the state up to date with the metrics that it reports. Exit
 * code 0 means that it has finished. Raises RunFailed for any other code, and RunError if a write fails.
 */
export async function runCommand(attempt: Attempt, { guardian, view }: CommandServices): Promise<RunKind> {
  const { config, handle, log, stop, kill, onStarted } = attempt;
  const { settings } = config;
  const trainer = prepareTrainer(config, handle.paths);
  const metrics = new TrainerMetrics({
    paths: handle.paths,
    warn: (sentence) => log.logger.warn(sentence),
  });
  const logs = new RankLogs(handle, log);
  const broken = new AbortController();
  try {
    if (handle.kind !== 'new') await metrics.replay(trainer.earlierMetrics(handle.attempt));
    const file = trainer.metrics(handle.attempt);
    metrics.begin(file);
    const follower = new Follower(metrics, handle, (error) => broken.abort(error));
    follower.start();
    const { kind, exits } = await supervise({
      run: settings.run_name,
      guardian,
      ranks: rankCommands(attempt, await freePort()),
      heartbeatTimeoutS: settings.launch.heartbeat_timeout_s,
      progress: () => statSync(file, { throwIfNoEntry: false })?.size ?? 0,
      stop,
      kill: AbortSignal.any([kill, broken.signal]),
      onLine: (rank, line) => {
        logs.write(rank, line);
        if (rank === 0) view.trainerLine(settings.run_name, line);
      },
      onStarted,
    }).finally(() => follower.end());
    if (broken.signal.aborted) throw broken.signal.reason as Error;
    const [reported, wanted] = [metrics.iteration, settings.num_iterations];
    const isComplete = reported >= wanted && exits.every(({ code }) => code === 0);
    if (kind === 'stopped' && !isComplete) return 'interrupted';
    // A trainer that reports no metrics has done all iterations.
    handle.setState({
      state: 'finished',
      reason: null,
      iteration: reported < 0 ? wanted : reported,
      stopped_early: false,
    });
    return 'finished';
  } finally {
    await metrics.finish();
    await logs.close();
  }
}

type CommandServices = Pick<AttemptServices, 'guardian'> & { readonly view: Pick<View, 'trainerLine'> };

/** Reads the metrics file at intervals while the trainer runs, and once after its end. */
class Follower {
  #timer: NodeJS.Timeout | null = null;
  #reading: Promise<void> = Promise.resolve();

  /** `onBroken` is called when metrics cannot be recorded. */
  constructor(
    private readonly metrics: TrainerMetrics,
    private readonly handle: RunHandle,
    private readonly onBroken: (error: unknown) => void,
  ) {}

  start(): void {
    this.#timer = setInterval(() => this.#read(false), FOLLOW_INTERVAL_MS);
    if (this.metrics.iteration >= 0) this.handle.setState({ iteration: this.metrics.iteration });
  }

  async end(): Promise<void> {
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#read(true);
    await this.#reading;
  }

  #read(ended: boolean): void {
    this.#reading = this.#reading.then(async () => {
      try {
        if (await this.metrics.read(ended)) this.handle.setState({ iteration: this.metrics.iteration });
      } catch (error) {
        this.onBroken(error);
      }
    });
  }
}

/** The output of the ranks. Rank 0 writes to console.log, and each other rank to its own file. */
class RankLogs {
  readonly #others = new Map<number, RunLog>();

  constructor(
    private readonly handle: Pick<RunHandle, 'paths' | 'attempt'>,
    private readonly first: RunLog,
  ) {}

  write(rank: number, line: string): void {
    // The view shows it on the terminal.
    this.#of(rank).logger.info(line, FILES_ONLY);
  }

  async close(): Promise<void> {
    for (const log of this.#others.values()) await log.close();
  }

  #of(rank: number): RunLog {
    if (rank === 0) return this.first;
    const { paths, attempt } = this.handle;
    const log = this.#others.get(rank) ?? openRunLog({ paths, attempt, rank, terminal: null });
    this.#others.set(rank, log);
    return log;
  }
}

type Claimed = Pick<RunHandle, 'paths' | 'attempt' | 'record' | 'kind'>;

/** The processes to start for one attempt, with their environments. Raises ConfigError if the GPUs cannot be divided evenly. */
export function rankCommands(
  {
    config,
    handle,
    placement,
    processes,
  }: Pick<Attempt, 'config' | 'placement' | 'processes'> & {
    readonly handle: Claimed;
  },
  port: number,
): RankCommand[] {
  const command = must(config.settings.launch.command, 'launch.command');
  const env = { ...runEnvironment(config, handle), ...config.settings.launch.env };
  if (startsItsOwnRanks(command)) {
    const place = { processes: 1, placement, port };
    return [{ rank: 0, command, env: ownRanksEnvironment(rankEnvironment(0, place, env), processes, port) }];
  }
  const place = { processes, placement, port };
  return Array.from({ length: processes }, (_, rank) => ({ rank, command, env: rankEnvironment(rank, place, env) }));
}

/** Environment variables that describe the run to each of its processes. */
function runEnvironment(config: LoadedConfig, claimed: Claimed): Record<string, string> {
  const { settings } = config;
  const trainer = new TrainerPaths(claimed.paths);
  return {
    ...externalVariables(config.file, process.env),
    APP__RUN_NAME: settings.run_name,
    APP__BASE_EXP_DIR: settings.base_exp_dir,
    RUN_NAME: settings.run_name,
    RUN_DIR: resolve(claimed.paths.dir),
    RESUME: claimed.kind === 'new' ? '0' : '1',
    EDITRL_CONFIG: trainer.config,
    EDITRL_METRICS: trainer.metrics(claimed.attempt),
    EDITRL_CHECKPOINTS: trainer.checkpointsDir,
    WANDB_RUN_ID: wandbRunId(claimed),
    WANDB_RESUME: 'allow',
  };
}

/**
 * One W&B id for all attempts of a run: WANDB_RUN_ID if the run was started with one. A run that is recreated under the same name gets another id.
 * Raises RunError if the recorded id cannot be read.
 */
export function wandbRunId({ record, paths }: Pick<RunHandle, 'record' | 'paths'>): string {
  const noted = recordedWandbId(paths);
  if (noted !== null) return noted;
  return sha256(Buffer.from(`${record.run_name} ${record.created_at}`)).slice(0, 16);
}

/**
 * The environment of a program that numbers its ranks itself: no rank variables, and torchrun options that keep two runs on one machine from using the
 * same port.
 */
function ownRanksEnvironment(env: NodeJS.ProcessEnv, processes: number, port: number): NodeJS.ProcessEnv {
  const rest = Object.entries(env).filter(([name]) => !RANK_VARIABLES.includes(name));
  const torchrun = { PET_NPROC_PER_NODE: String(processes), PET_MASTER_PORT: String(port) };
  return { ...torchrun, ...Object.fromEntries(rest) };
}

const RANK_VARIABLES = ['RANK', 'LOCAL_RANK', 'GROUP_RANK', 'WORLD_SIZE', 'LOCAL_WORLD_SIZE'];

/** Creates the trainer's folder and writes the resolved config into it. Raises RunError if a write fails. */
export function prepareTrainer(config: LoadedConfig, paths: RunPaths): TrainerPaths {
  const trainer = new TrainerPaths(paths);
  try {
    mkdirSync(trainer.checkpointsDir, { recursive: true });
    // Not synced: every start writes it again.
    writeFileSync(trainer.config, `${JSON.stringify(config.settings, null, 2)}\n`);
  } catch (cause) {
    throw diskError(trainer.config, cause);
  }
  return trainer;
}
