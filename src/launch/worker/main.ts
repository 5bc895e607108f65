/**
 * The program of one rank of a run.
 * Rank 0 makes the run's data, trains and records. The other ranks take part in its process group. The launcher owns
 * the run: it has claimed it, and it records failures. Modules that are needed later are loaded later, so that the
 * first log line comes soon.
 */
import { InternalError } from '../../core/errors.js';
import { autoProvider } from '../../compute/onnx/cuda.js';
import { withEngines, recipeOf } from '../../recipes/settings.js';
import { trainerServeOf } from '../../recipes/shared/tokens/rules.js';
import { isTrainable } from '../../config/recipes.js';
import type { WholeCheckpoint } from '../../run/checkpoints.js';
import { RunHandle } from '../../run/claim/claim.js';
import type { PlainObject } from '../../run/record.js';
import { openRunLog, type RunLog } from '../../run/logs.js';
import { RunPaths } from '../../run/paths.js';
import type { RunSettings, TrainedSettings } from '../../config/schema/run.js';
import type { ProcessGroup } from '../../core/group/process_group.js';
import type { TrainingContext } from '../../train/context.js';
import type { RecordedModels } from '../models/wanted.js';
import { packError, unpackError, type FromWorker, type RunKind, type RunServers, type ToWorker } from './protocol.js';

const HEARTBEAT_INTERVAL_MS = 1000;
/** The exit code that shells report for a process ended by SIGTERM. */
const ENDED = 143;

/** Milliseconds that ranks wait for rank 0, which may first make the data and wait for servers. */
const MEETING_MS = 30 * 60_000;

type Start = Extract<ToWorker, { kind: 'start' }>;

/** Facts that rank 0 sends to the other ranks. */
interface LeaderFacts {
  readonly servers: RunServers;
  /** The recorded parents, with the checkpoints in use. */
  readonly parents: readonly PlainObject[];
  readonly models: NonNullable<RecordedModels['models']>;
}

class Worker {
  readonly #stop = new AbortController();
  #serversAre: (servers: RunServers) => void = () => {};
  #noServers: (error: Error) => void = () => {};
  readonly #servers = new Promise<RunServers>((resolve, reject) => {
    this.#serversAre = resolve;
    this.#noServers = reject;
  });
  /** The error if a server will not answer any more. */
  #serverLost: Error | null = null;
  readonly #rank = Number(process.env['RANK'] ?? 0);

  /** Handles messages of the launcher until the run has ended. This process ends whenever its launcher does. */
  listen(): void {
    process.on('disconnect', () => process.exit(1));
    // Only rank 0 decides when to stop, and broadcasts that point to the others.
    for (const signal of this.#rank === 0 ? (['SIGINT', 'SIGTERM'] as const) : []) {
      process.on(signal, () => this.#stop.abort());
    }
    // Code that awaits the servers reports the error. A run that ends earlier must not raise it.
    this.#servers.catch(() => {});
    process.on('message', (message) => this.#receive(message as ToWorker));
    setInterval(() => send({ kind: 'heartbeat' }), HEARTBEAT_INTERVAL_MS).unref();
  }

  #receive(message: ToWorker): void {
    switch (message.kind) {
      case 'start':
        void this.#work(message);
        return;
      case 'servers':
        this.#serversAre(message.servers);
        return;
      case 'server_lost':
        this.#serverLost = unpackError(message.error);
        this.#noServers(this.#serverLost);
        // No server will come up after this error.
        this.#stop.abort();
        return;
      case 'stop':
        this.#stop.abort();
        return;
      case 'end':
        process.exit(ENDED);
    }
  }

  async #work(start: Start): Promise<void> {
    let code = 0;
    try {
      const result = this.#rank === 0 ? await this.#lead(start) : await this.#follow(start);
      await sendAndWait({ kind: 'ended', result });
    } catch (error) {
      code = error instanceof Error && 'exitCode' in error ? Number(error.exitCode) : 1;
      await sendAndWait({ kind: 'failed', error: packError(error, this.#rank) });
    }
    process.exit(code);
  }

  /** Runs the training as rank 0. */
  async #lead({ config, run, threads, places }: Start): Promise<RunKind> {
    const settings = withThreads(config.settings, threads, places);
    const handle = RunHandle.borrow(RunPaths.of(settings), run);
    const terminal = (line: string): void => void process.stdout.write(`${line}\n`);
    const log = openRunLog({ paths: handle.paths, attempt: handle.attempt, rank: 0, terminal });
    try {
      const { run_name, task, algorithm } = settings;
      const begun =
        handle.kind === 'new'
          ? `starting ${run_name} (task ${task}, algorithm ${algorithm.type})`
          : `resuming ${run_name}${resumeNote(handle)}`;
      const { evaluation } = config;
      const what = evaluation === undefined ? begun : `evaluating ${evaluation.checkpoint ?? 'the starting model'}`;
      log.logger.info(`${what} in ${handle.paths.dir}`);
      const kind = await this.#train({ ...config, settings }, handle, log, places);
      if (this.#serverLost !== null && kind === 'interrupted') throw this.#serverLost;
      return kind;
    } finally {
      await log.close();
    }
  }

  async #train(
    { settings, evaluation }: Pick<Start['config'], 'evaluation'> & { readonly settings: TrainedSettings },
    handle: RunHandle,
    log: RunLog,
    places: Start['places'],
  ): Promise<RunKind> {
    const [
      { evaluateRun, trainRun },
      { openRecipeOf, recipeOpening },
      { MetricsJournal, readMetrics },
      { runResolver },
    ] = await Promise.all([
      import('../../train/worker.js'),
      import('../../recipes/open.js'),
      import('../../run/metrics.js'),
      import('../models/wanted.js'),
    ]);
    const resolveRun = runResolver(settings.base_exp_dir, () => handle.record, pinParents(handle, log));
    // Pinned before any data is made from the parents, and before other ranks read them.
    for (const { run } of handle.record.parents) resolveRun({ run: String(run), config: '' });
    await openRecipeOf(settings).makeData(settings, resolveRun, (line) => log.logger.info(line));
    const servers = await this.#serversOrStop();
    if (servers === null) {
      await this.#meet(null);
      handle.setState({ state: 'interrupted', reason: 'stopped on request' });
      return 'interrupted';
    }
    const { group } = await this.#meet({
      servers,
      parents: handle.record.parents,
      models: handle.record.models ?? {},
    });
    const journal = new MetricsJournal(handle.paths);
    const stop = this.#stop.signal;
    const services = { handle, log, journal, resolveRun, ...servers, stop, ...rewardPlace(places) };
    const recipe = recipeOpening(settings);
    const end =
      evaluation === undefined
        ? await trainRun(settings, recipe, { ...services, group })
        : await evaluateRun(evaluation, recipe, { ...services, group });
    group.close();
    if (end.kind === 'finished' && end.reason !== null) {
      log.logger.info(`${settings.run_name} stops here: ${end.reason}`);
    }
    journal.close();
    if (evaluation !== undefined) return end.kind;
    const { writeCurve } = await import('../../run/report/curve.js');
    await writeCurve(handle.paths, readMetrics(handle.paths));
    return end.kind;
  }

  /**
   * The addresses of the run's servers. Null if a stop is requested before they are up, because loading a model may
   * take half an hour.
   */
  #serversOrStop(): Promise<RunServers | null> {
    const { signal } = this.#stop;
    const stopped = new Promise<null>((resolve) => {
      if (signal.aborted) resolve(null);
      else signal.addEventListener('abort', () => resolve(null), { once: true });
    });
    return Promise.race([this.#servers, stopped]);
  }

  /** Runs the other ranks, which follow rank 0 and own nothing. */
  async #follow({ config, run, threads, places }: Start): Promise<RunKind> {
    const settings = withThreads(config.settings, threads, places);
    const { group, facts } = await this.#meet(null, servedWithin(settings));
    if (facts === null) return 'interrupted';
    const [{ evaluateRun, trainRun }, { recipeOpening }, { runResolver }] = await Promise.all([
      import('../../train/worker.js'),
      import('../../recipes/open.js'),
      import('../models/wanted.js'),
    ]);
    const paths = RunPaths.of(settings);
    const log = openRunLog({ paths, attempt: run.attempt, rank: this.#rank, terminal: null });
    try {
      const resolveRun = runResolver(settings.base_exp_dir, () => facts);
      const { servers } = facts;
      const services = { group, handle: null, log, resolveRun, ...servers, stop: this.#stop.signal };
      const recipe = recipeOpening(settings);
      const { evaluation } = config;
      const { kind } =
        evaluation === undefined
          ? await trainRun(settings, recipe, services)
          : await evaluateRun(evaluation, recipe, services);
      group.close();
      return kind;
    } catch (error) {
      log.logger.debug(error instanceof Error ? (error.stack ?? error.message) : String(error));
      throw error;
    } finally {
      await log.close();
    }
  }

  /**
   * Joins the ranks. Rank 0 broadcasts its facts, or null when nothing is left to do. The others wait as long as rank 0
   * waits for servers.
   */
  async #meet(
    known: LeaderFacts | null,
    servedWithinS = 0,
  ): Promise<{ group: ProcessGroup; facts: LeaderFacts | null }> {
    const { openProcessGroup } = await import('../../core/group/process_group.js');
    const group = await openProcessGroup(process.env, { timeoutMs: MEETING_MS + 1000 * servedWithinS });
    return { group, facts: await group.broadcast(known) };
  }
}

/** The reward's own models run on its GPU, if the settings name one and there is an engine for it. */
function rewardPlace({ reward: device }: NonNullable<Start['places']> = {}): Pick<TrainingContext, 'rewardSession'> {
  return device === undefined || autoProvider() === 'cpu' ? {} : { rewardSession: { provider: 'cuda', device } };
}

/** Seconds within which the run's own servers have to be up. */
function servedWithin(settings: TrainedSettings): number {
  const serves = [recipeOf(settings).sampler(settings)?.engine.serve, trainerServeOf(settings)];
  return serves.reduce((sum, serve) => sum + (serve?.start_timeout_s ?? 0), 0);
}

/** Replaces "all cores" by this rank's share, and assigns its GPU to each part's engine. */
function withThreads(settings: RunSettings, threads: number, places: Start['places'] = {}): TrainedSettings {
  if (!isTrainable(settings)) throw new InternalError("another trainer's run reached this program's own");
  return withEngines(settings, (engine, key) => {
    const device = places[key === 'environment.engine' ? 'image' : 'policy'];
    return {
      ...engine,
      ...(engine.threads === 0 ? { threads } : {}),
      ...(device === undefined ? {} : { device }),
    };
  });
}

/**
 * Pins the parents' checkpoints that a run uses, and warns if the newest one is incomplete and an older one is used.
 */
function pinParents(handle: RunHandle, log: RunLog): (run: string, checkpoint: WholeCheckpoint) => void {
  return (run, checkpoint) => {
    handle.noteParent(run, checkpoint);
    const { iteration, problems } = checkpoint;
    for (const problem of problems) log.logger.warn(`checkpoint of ${run} passed over: ${problem}`);
    if (problems.length > 0) log.logger.warn(`the checkpoint of iteration ${iteration} of ${run} is used`);
  };
}

function resumeNote(handle: RunHandle): string {
  return handle.checkpoint === null ? '' : ` from iteration ${handle.checkpoint.iteration}`;
}

function send(message: FromWorker): void {
  process.send?.(message);
}

/** Resolves once the message has been sent to the launcher, so that it is not lost when this process ends. */
function sendAndWait(message: FromWorker): Promise<void> {
  return new Promise((resolve) => {
    if (process.send === undefined) throw new InternalError('a worker was started without a channel to its launcher');
    process.send(message, undefined, undefined, () => resolve());
  });
}

new Worker().listen();
