/** All file names in a run directory. */
import { basename, dirname, join } from 'node:path';
import { ConfigError, InternalError } from '../core/errors.js';

const RUN_NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$/;

/** Whether a text is a valid run name: 1 to 96 letters, digits, `.`, `_` or `-`. */
export function isRunName(name: string): boolean {
  return RUN_NAME.test(name);
}

/** Raises ConfigError for an invalid run name. */
export function checkRunName(name: string): void {
  if (isRunName(name)) return;
  throw new ConfigError(`'${name}' is not a valid run name`, {
    where: 'run_name',
    next: 'Use 1 to 96 letters, digits, ".", "_" or "-", starting with a letter or a digit. base_exp_dir sets the directory.',
  });
}

/** An iteration as part of a file name: at least six digits, so that names sort like numbers. */
export function iterationName(iteration: number): string {
  if (!Number.isInteger(iteration) || iteration < 0) throw new InternalError(`iteration ${iteration} has no name`);
  return String(iteration).padStart(6, '0');
}

/** The iteration in a name from `iterationName`. Null for any other name. */
export function parseIterationName(name: string): number | null {
  return /^\d{6,}$/.test(name) ? Number(name) : null;
}

/** Folders that may contain temporary files. */
export function writtenFolders(paths: RunPaths): string[] {
  const { dir, episodesDir, mediaDir, contactSheetsDir, trackDir } = paths;
  return [dir, episodesDir, mediaDir, contactSheetsDir, trackDir];
}

/** The paths in one run directory. Nothing is read or created. */
export class RunPaths {
  /** `dir` differs from the run's own folder while the run is being moved. */
  constructor(
    readonly baseExpDir: string,
    readonly runName: string,
    readonly dir: string = join(baseExpDir, runName),
  ) {
    checkRunName(runName);
  }

  /** The paths of the run that settings describe. */
  static of(settings: { readonly base_exp_dir: string; readonly run_name: string }): RunPaths {
    return new RunPaths(settings.base_exp_dir, settings.run_name);
  }

  /** The paths of a run whose folder is known. */
  static ofDirectory(dir: string): RunPaths {
    return new RunPaths(dirname(dir), basename(dir));
  }

  get record(): string {
    return join(this.dir, 'run.json');
  }
  get state(): string {
    return join(this.dir, 'state.json');
  }
  get lock(): string {
    return join(this.dir, 'lock.json');
  }
  get stopRequest(): string {
    return join(this.dir, 'stop_request');
  }
  /** Requests to the training server. */
  get spent(): string {
    return join(this.dir, 'spent.jsonl');
  }
  get metrics(): string {
    return join(this.dir, 'metrics.jsonl');
  }
  get judgements(): string {
    return join(this.dir, 'judgements.jsonl');
  }
  /** Answers of remote samplers. */
  get answers(): string {
    return join(this.dir, 'answers.jsonl');
  }
  /** Images from an images server. */
  get pictures(): string {
    return join(this.dir, 'pictures.jsonl');
  }
  /** Adapters that a remote sampler has loaded. */
  get adaptersDir(): string {
    return join(this.dir, 'adapters');
  }
  /** State of the run's own training server. */
  get trainingServerDir(): string {
    return join(this.dir, 'training_server');
  }
  get episodesDir(): string {
    return join(this.dir, 'episodes');
  }
  episodes(iteration: number): string {
    return join(this.episodesDir, `${iterationName(iteration)}.jsonl`);
  }
  /** The episodes of a held-out evaluation. */
  heldOutEpisodes(iteration: number): string {
    return join(this.episodesDir, `validation_${iterationName(iteration)}.jsonl`);
  }
  get rescoredDir(): string {
    return join(this.dir, 'rescored');
  }
  /** Results of rescoring: outcomes (`.jsonl`), their summary (`.json`), and judge requests. */
  rescored(name: string): { readonly outcomes: string; readonly summary: string; readonly judgements: string } {
    const file = (suffix: string): string => join(this.rescoredDir, `${name}${suffix}`);
    return { outcomes: file('.jsonl'), summary: file('.json'), judgements: file('.judgements.jsonl') };
  }
  /** The published numbers of a benchmark. */
  get benchmark(): string {
    return join(this.dir, 'benchmark.json');
  }
  /** Evaluations of the run's checkpoints without training, each in its own run directory. */
  get evaluationsDir(): string {
    return join(this.dir, 'evaluations');
  }
  get mediaDir(): string {
    return join(this.dir, 'media');
  }
  media(sha256: string): string {
    return join(this.mediaDir, `${sha256}.png`);
  }
  get checkpointsDir(): string {
    return join(this.dir, 'checkpoints');
  }
  checkpoint(iteration: number): string {
    return join(this.checkpointsDir, iterationName(iteration));
  }
  get logsDir(): string {
    return join(this.dir, 'logs');
  }
  /** The logs of one attempt (a start or a resume), counted from 1. */
  attemptLogsDir(attempt: number): string {
    return join(this.logsDir, `attempt_${String(attempt).padStart(3, '0')}`);
  }
  consoleLog(attempt: number): string {
    return join(this.attemptLogsDir(attempt), 'console.log');
  }
  rankLog(attempt: number, rank: number): string {
    return join(this.attemptLogsDir(attempt), `rank_${rank}.log`);
  }
  /** Derived files: upload progress and system load. */
  get trackDir(): string {
    return join(this.dir, 'track');
  }
  get trackLock(): string {
    return join(this.trackDir, 'lock.json');
  }
  /** CPU, memory and GPU use during the run. */
  get systemMetrics(): string {
    return join(this.trackDir, 'system.jsonl');
  }
  /** Upload progress of W&B. */
  get wandb(): string {
    return join(this.trackDir, 'wandb.json');
  }
  /** The run's id in W&B, if it is not its run_name. */
  get wandbId(): string {
    return join(this.trackDir, 'wandb_id');
  }
  /** Progress of the event files. */
  get tensorboard(): string {
    return join(this.trackDir, 'tensorboard.json');
  }
  get tensorboardDir(): string {
    return join(this.dir, 'tensorboard');
  }
  /** Published checkpoints on the Hub. */
  get hub(): string {
    return join(this.trackDir, 'hub.json');
  }
  get curveSvg(): string {
    return join(this.dir, 'curve.svg');
  }
  get curvePng(): string {
    return join(this.dir, 'curve.png');
  }
  /** Contact sheets of earlier evaluations. */
  get contactSheetsDir(): string {
    return join(this.dir, 'contact_sheets');
  }
  get contactSheet(): string {
    return join(this.dir, 'contact_sheet.png');
  }
}
