/**
 * One worker of a run: the program that a launcher starts once per rank. Rank 0 makes the run's data, trains and records; the others take part in its
 * process group. The launcher owns the run: it has claimed it and records failures. Modules needed only later are loaded later, so that the first log line comes soon.
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

/** Ranks wait this long for rank 0, which may have to make the data first, and waits for servers. */
const MEETING_MS = 30 * 60_000;

type Start = Extract<ToWorker, { kind: 'start' }>;

/** What rank 0 knows and the other ranks need. */
interface LeaderFacts {
  readonly servers: RunServers;
  /** As recorded, with the checkpoints that are used. */
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
  /** Why one of them will not answer any more. */
  #serverLost: Error | null = null;
  readonly #rank = Number(process.env['RANK'] ?? 0);

  /** Listens to the launcher until the run has ended; this process ends with its launcher, however that ends. */
  listen(): void {
    process.on('disconnect', () => process.exit(1));
    // Only rank 0 decides when to stop; it tells the others where.
    for (const signal of this.#rank === 0 ? (['SIGINT', 'SIGTERM'] as const) : []) {
      process.on(signal, () => this.#stop.abort());
    }
    // The code that waits for them reports the error; a run that ends earlier does not.
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
        // Waiting for it would be in vain.
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

  /** Rank 0 works on the run. */
  async #lead({ config, run, threads, places }: Start): Promise<RunKind> {
    const settings = withThreads(config.settings, threads, places);
    const handle = RunHandle.borrow(RunPaths.of(settings), run);
    const terminal = (line: string): void => void process.stdout.write(`${line}\n`);
    const log = openRunLog({ paths: handle.paths, attempt: handle.attempt, rank: 0, terminal });
    try {
      const begun = `${handle.kind === 'new' ? 'starting' : 'resuming'} ${settings.run_name}${resumeNote(handle)}`;
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
    // Pinned before anything is made from them, and before the other ranks look.
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

  /** The addresses of the run's servers; null if the run is asked to stop before they are up: loading a model may take half an hour. */
  #serversOrStop(): Promise<RunServers | null> {
    const { signal } = this.#stop;
    const stopped = new Promise<null>((resolve) => {
      if (signal.aborted) resolve(null);
      else signal.addEventListener('abort', () => resolve(null), { once: true });
    });
    return Promise.race([this.#servers, stopped]);
  }

  /** The other ranks compute what rank 0 says, and own nothing. */
  async #follow({ config, run, threads, places }: Start): Promise<RunKind> {
    const settings = withThreads(config.settings, threads, places);
    const { group, told } = await this.#meet(null, servedWithin(settings));
    if (told === null) return 'interrupted';
    const [{ evaluateRun, trainRun }, { recipeOpening }, { runResolver }] = await Promise.all([
      import('../../train/worker.js'),
      import('../../recipes/open.js'),
      import('../models/wanted.js'),
    ]);
    const paths = RunPaths.of(settings);
    const log = openRunLog({ paths, attempt: run.attempt, rank: this.#rank, terminal: null });
    try {
      const resolveRun = runResolver(settings.base_exp_dir, () => told);
      const { servers } = told;
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

  /** Joins the ranks; rank 0 tells the others what they take part in, null when nothing is left to do; the others wait for its servers, too. */
  async #meet(
    known: LeaderFacts | null,
    servedWithinS = 0,
  ): Promise<{ group: ProcessGroup; told: LeaderFacts | null }> {
    const { openProcessGroup } = await import('../../core/group/process_group.js');
    const group = await openProcessGroup(process.env, { timeoutMs: MEETING_MS + 1000 * servedWithinS });
    return { group, told: await group.broadcast(known) };
  }
}

/** The reward's own models run on its GPU if one is named and there is an engine for it. */
function rewardPlace({ reward: device }: NonNullable<Start['places']> = {}): Pick<TrainingContext, 'rewardSession'> {
  return device === undefined || autoProvider() === 'cpu' ? {} : { rewardSession: { provider: 'cuda', device } };
}

/** Seconds within which the servers that are started with a run have to be up. */
function servedWithin(settings: TrainedSettings): number {
  const serves = [recipeOf(settings).sampler(settings)?.engine.serve, trainerServeOf(settings)];
  return serves.reduce((sum, serve) => sum + (serve?.start_timeout_s ?? 0), 0);
}

/** Replaces "all cores" by a share of them, and gives each part's engine its GPU. */
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

/** Pins the checkpoints of other runs that a run uses, and warns if one is not the newest because that is not whole. */
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

/** Resolves when the message has been sent to the launcher, so that ending does not lose it. */
function sendAndWait(message: FromWorker): Promise<void> {
  return new Promise((resolve) => {
    if (process.send === undefined) throw new InternalError('a worker was started without a channel to its launcher');
    process.send(message, undefined, undefined, () => resolve());
  });
}

new Worker().listen();
