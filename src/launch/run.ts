/** From a loaded config to a finished run: missing parents first, then data, judge, claim, training, report. */
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { CheckpointError, ConfigError, EndpointError, InternalError, RunError } from '../core/errors.js';
import { cannotRunYet, dependencies, loadReferenced, referencedFile, type LoadedConfig } from '../config/load.js';
import type { Settings } from '../config/settings.js';
import { latestWhole } from '../run/checkpoints.js';
import { claimRun, type RunHandle } from '../run/claim.js';
import { claimRequest } from '../run/claim_request.js';
import { openRunLog } from '../run/logs.js';
import { readMetrics } from '../run/metrics.js';
import { RunPaths } from '../run/paths.js';
import { writeCurve } from '../run/report/curve.js';
import { readState } from '../run/state.js';
import { RunDirectoryTracker } from '../track/tracker.js';
import type { RunResolver } from '../tasks/models.js';
import { trainRun } from '../train/worker.js';
import { startEmbeddedJudge, type EmbeddedJudge } from './embedded_judge.js';
import { ensureTinyData } from './tiny_data.js';

export interface RunOptions {
  /** Where readable lines go besides the log files. */
  readonly terminal: NodeJS.WritableStream | null;
  readonly command: readonly string[];
  readonly stop: AbortSignal;
}

export type RunResult = 'finished' | 'already_finished' | 'interrupted';

/** Runs configs one after another; a judge that was started for one serves the others too. */
export class Launcher {
  #judge: Promise<EmbeddedJudge> | null = null;
  /** Parents that are finished and were made with the settings that their configs give. */
  readonly #made = new Set<string>();

  constructor(private readonly options: RunOptions) {}

  /** Trains what the config needs and then the config's own run. */
  async run(config: LoadedConfig, ancestry: readonly string[] = []): Promise<RunResult> {
    const { settings } = config;
    const obstacles = cannotRunYet(settings);
    if (obstacles.length > 0) throw new ConfigError(obstacles.join('\n'), { where: config.file });
    for (const reference of dependencies(settings)) {
      if (this.#made.has(reference.run)) continue;
      if ([...ancestry, settings.run_name].includes(reference.run)) {
        throw new ConfigError(`runs need each other: ${[...ancestry, settings.run_name, reference.run].join(' -> ')}`, {
          where: config.file,
        });
      }
      // A finished parent is claimed all the same, which refuses one that was made with other settings; where its config is not
      // at hand, it is taken as it is.
      const finished = isFinished(settings.base_exp_dir, reference.run);
      if (finished && !existsSync(referencedFile(config, reference))) continue;
      const parent = await loadReferenced(config, reference);
      if (!finished) {
        this.#say(`${settings.run_name} starts from ${reference.run}, which is not finished: training it first`);
      }
      if ((await this.run(parent, [...ancestry, settings.run_name])) === 'interrupted') return 'interrupted';
      this.#made.add(reference.run);
    }
    return this.#train(config);
  }

  async close(): Promise<void> {
    await (await this.#judge)?.close();
    this.#judge = null;
  }

  async #train(config: LoadedConfig): Promise<RunResult> {
    const { settings } = config;
    if (settings.task === 'external') throw new InternalError("an external run reached this program's own trainer");
    const handle = claimRun(
      claimRequest(config, {
        command: this.options.command,
        versions: versions(),
        parents: dependencies(settings).map((reference) => ({ ...reference })),
      }),
    );
    for (const warning of config.warnings) this.#say(`warning: ${warning}`);
    if (handle.kind === 'finished') return 'already_finished';
    const log = openRunLog({ paths: handle.paths, attempt: handle.attempt, rank: 0, terminal: this.options.terminal });
    const stop = new AbortController();
    const forward = (): void => stop.abort();
    this.options.stop.addEventListener('abort', forward);
    if (this.options.stop.aborted) forward();
    let lost: unknown = null;
    handle.startHeartbeat((error) => {
      lost = error;
      stop.abort();
    });
    const tracker = new RunDirectoryTracker(handle.paths);
    try {
      for (const note of handle.notes) log.logger.info(note);
      log.logger.info(
        `${handle.kind === 'new' ? 'starting' : 'resuming'} ${settings.run_name}${resumeNote(handle)} in ${handle.paths.dir}`,
      );
      const resolveRun = runResolver(settings.base_exp_dir);
      await ensureTinyData(settings, resolveRun, (line) => log.logger.info(line));
      const end = await trainRun(settings, {
        handle,
        log,
        tracker,
        resolveRun,
        judgeEndpoint: await this.#judgeEndpoint(settings),
        stop: stop.signal,
      });
      if (lost !== null) throw lost as Error;
      if (end.kind === 'finished' && end.reason !== null) {
        log.logger.info(`${settings.run_name} stops here: ${end.reason}`);
      }
      await tracker.finish();
      await writeCurve(handle.paths, readMetrics(handle.paths));
      return end.kind;
    } catch (error) {
      if (lost === null) {
        const reason = error instanceof Error ? error.message : String(error);
        log.logger.debug(error instanceof Error ? (error.stack ?? reason) : reason);
        recordEnd(handle, error instanceof EndpointError ? 'interrupted' : 'failed', reason);
      }
      throw error;
    } finally {
      this.options.stop.removeEventListener('abort', forward);
      handle.release();
      await log.close();
    }
  }

  async #judgeEndpoint(settings: Settings): Promise<string | null> {
    if (settings.task !== 'image_edit_tokens' || settings.reward.endpoint === '') return null;
    if (settings.reward.endpoint !== 'embedded') return settings.reward.endpoint;
    this.#judge ??= startEmbeddedJudge(settings.reward.model);
    return (await this.#judge).url;
  }

  #say(line: string): void {
    this.options.terminal?.write(`${line}\n`);
  }
}

/** On a full disk not even the state can be written: then the error that the run ended with is the one to show. */
function recordEnd(handle: RunHandle, state: 'interrupted' | 'failed', reason: string): void {
  try {
    handle.setState({ state, reason });
  } catch (error) {
    if (!(error instanceof RunError)) throw error;
  }
}

function resumeNote(handle: RunHandle): string {
  return handle.checkpoint === null ? '' : ` from iteration ${handle.checkpoint.iteration}`;
}

function isFinished(baseExpDir: string, run: string): boolean {
  return readState(new RunPaths(baseExpDir, run))?.state === 'finished';
}

/** Finds the newest whole checkpoint of a finished run. */
export function runResolver(baseExpDir: string): RunResolver {
  return (run) => {
    const whole = latestWhole(new RunPaths(baseExpDir, run));
    if (whole === null) {
      throw new CheckpointError(`run ${run} has no whole checkpoint`, {
        where: join(baseExpDir, run),
        next: 'Run its config again, then this one.',
      });
    }
    return whole.dir;
  };
}

function versions(): Record<string, string> {
  const require = createRequire(import.meta.url);
  const versionIn = (file: string): string => (require(file) as { version: string }).version;
  return {
    editrl: versionIn('../../../package.json'),
    node: process.version,
    'onnxruntime-node': versionIn('onnxruntime-node/package.json'),
  };
}
