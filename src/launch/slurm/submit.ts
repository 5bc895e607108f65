/** Submits runs: writes files of cells and batch scripts into the folder of runs, and calls sbatch, parents first. */
import { mkdirSync, symlinkSync } from 'node:fs';
import { join, resolve } from 'node:path';
import type { LoadedConfig } from '../../config/load.js';
import { checkRunnable, dependencies } from '../../config/models.js';
import { ConfigError, must, printable, UsageError } from '../../core/errors.js';
import { diskError, writeFileAtomic } from '../../core/files.js';
import { RunPaths } from '../../run/paths.js';
import { setAside } from '../../run/remove.js';
import { readState, writeState } from '../../run/state.js';
import { chainOf } from '../chain.js';
import { openView } from '../live/view.js';
import { HubModels } from '../models/hub.js';
import type { CheckOptions } from '../preflight/preflight.js';
import type { RunFolderState } from '../sweep/schedule.js';
import { inspect, setAsideOutdated } from '../sweep/run_folders.js';
import { planArrays, type ArrayPlan, type SlurmRun, type Resources } from './jobs.js';
import {
  isUnderWay,
  reconcile,
  submissionsDir,
  submit,
  writeSubmission,
  type ArrayRecord,
  type SlurmJob,
  type Submission,
} from './queue.js';
import type { Experiment } from '../../config/experiment/load.js';
import { writeExperiment } from '../../run/find.js';
import { chooseCells, recordOf, type SweepChoice, type SweepLimits } from '../sweep/experiment.js';
import { shellQuote } from '../../core/process.js';

export interface SubmitOptions {
  /**
   * The program that runs `cell FILE INDEX` on a node: `[node, …/main.js]`. Its paths have to be valid on every node.
   */
  readonly program: readonly string[];
  /** Prefix of job names in squeue. */
  readonly name: string;
  /** Maximum number of tasks of one array at once. Null for as many as fit. */
  readonly maxParallel?: number | null;
}

/** The result of a submission. */
export interface Submitted {
  /** The folder with the scripts and the record. Null if nothing was left to submit. */
  readonly dir: string | null;
  readonly arrays: readonly ArrayRecord[];
  /** Names of finished runs. */
  readonly finished: readonly string[];
  /** Waiting or running jobs of earlier submissions. */
  readonly underWay: readonly SlurmJob[];
}

/**
 * Submits cells that are neither finished nor in the queue, and the parents that they need.
 * Raises ConfigError for settings that cannot be submitted or that differ from those in the run directory. Raises
 * RunError when Slurm is not installed, or with Slurm's message when it refuses. Jobs accepted before an error stay
 * submitted, and the next call does not submit them again.
 */
export async function submitCells(
  cells: readonly SlurmRun[],
  parents: readonly SlurmRun[],
  options: SubmitOptions,
): Promise<Submitted> {
  const runs = distinct([...parents, ...cells]);
  const base = baseOf(runs);
  const folderStates = new Map(runs.map(({ run_name, config }) => [run_name, inspect(config)]));
  const named = (...kinds: readonly RunFolderState['kind'][]): Set<string> =>
    new Set([...folderStates].flatMap(([name, { kind }]) => (kinds.includes(kind) ? [name] : [])));
  const finished = named('finished');
  const refused = named('refused');
  for (const parent of runs.flatMap((run) => run.parents)) {
    const listed = runs.some(({ run_name }) => run_name === parent);
    if (!listed && readState(new RunPaths(base, parent))?.state === 'finished') finished.add(parent);
  }
  const jobs = await reconcile(base);
  const underWay = runs.flatMap(({ run_name }) => {
    const job = jobs.get(run_name);
    return job !== undefined && isUnderWay(job) && !finished.has(run_name) && !refused.has(run_name) ? [job] : [];
  });
  const busy = new Set(underWay.map(({ run_name }) => run_name));
  const todo = needed(cells, runs, new Set([...finished, ...busy]));
  requireSameSettings(todo, folderStates);
  for (const { config } of todo) setAsideOutdated(config);
  const none = { dir: null, arrays: [], finished: [...finished], underWay };
  if (todo.length === 0) return none;
  const plans = planArrays(todo, { finished, underWay: busy });
  const submission = new SubmissionInProgress(base, options);
  submission.folders();
  for (const plan of plans) await submission.array(plan, jobs);
  return { ...none, dir: submission.dir, arrays: submission.record.arrays };
}

/** One submission. It is recorded before and after each call of sbatch, so that no job is lost or submitted twice. */
class SubmissionInProgress {
  readonly dir: string;
  readonly #id: string;
  /** Job ids by run name. */
  readonly #tasks = new Map<string, string>();
  record: Submission;

  constructor(
    base: string,
    private readonly options: SubmitOptions,
  ) {
    this.#id = `${new Date().toISOString().replace(/[-:.Z]/g, '')}_${process.pid}`;
    this.dir = resolve(submissionsDir(base), this.#id);
    this.record = { format: 1, submitted_at: new Date().toISOString(), arrays: [] };
  }

  folders(): void {
    try {
      mkdirSync(this.dir, { recursive: true });
    } catch (cause) {
      throw diskError(this.dir, cause);
    }
  }

  /** Submits an array. `earlier` contains the jobs of parents from earlier submissions. */
  async array(plan: ArrayPlan, earlier: ReadonlyMap<string, SlurmJob>): Promise<void> {
    const index = this.record.arrays.length;
    const cells = join(this.dir, `cells_${index}.jsonl`);
    writeFileAtomic(cells, plan.runs.map(({ config }) => `${JSON.stringify(config)}\n`).join(''));
    for (const [task, { config }] of plan.runs.entries()) this.#linkLog(config, index, task);
    const name = `${this.options.name}-${this.#id}-${index}`;
    const { slurm } = plan.runs[0].config.settings.launch;
    const script = arrayScript({
      name,
      cwd: process.cwd(),
      output: `${literalPath(this.dir)}/array_${index}_%a.log`,
      account: slurm.account,
      partition: slurm.partition,
      signalBeforeS: slurm.signal_before_s,
      resources: plan.resources,
      dependency: this.#dependency(plan, earlier),
      tasks: plan.runs.length,
      maxParallel: this.options.maxParallel ?? null,
      program: [...this.options.program, 'cell'],
      cells,
    });
    const runs = plan.runs.map(({ run_name }) => run_name);
    const job = await this.#enter({ name, runs }, `array_${index}.sh`, script);
    for (const [task, run] of plan.runs.entries()) {
      this.#tasks.set(run.run_name, `${job}_${task}`);
      recordQueued(run.config, `${job}_${task}`);
    }
  }

  /** The jobs that an array waits for. Null if there are none. */
  #dependency(plan: ArrayPlan, earlier: ReadonlyMap<string, SlurmJob>): string | null {
    const parents = plan.after.map(
      (parent) => this.#tasks.get(parent) ?? must(earlier.get(parent)?.job ?? null, `the job of ${parent}`),
    );
    return parents.length === 0 ? null : `afterok:${[...new Set(parents)].join(':')}`;
  }

  /** Submits a job, records it before and after, and returns its id. */
  async #enter(job: Omit<ArrayRecord, 'job_id'>, file: string, script: string): Promise<string> {
    const before = this.record.arrays;
    const write = (job_id: string | null): void => {
      this.record = { ...this.record, arrays: [...before, { ...job, job_id }] };
      writeSubmission(this.dir, this.record);
    };
    write(null);
    const path = join(this.dir, file);
    writeFileAtomic(path, script);
    const id = await submit(path);
    write(id);
    return id;
  }

  /** Links a task's output, including Slurm's messages, into its run's directory. */
  #linkLog(config: LoadedConfig, array: number, task: number): void {
    const logs = RunPaths.of(config.settings).logsDir;
    const link = join(this.dir, `array_${array}_${task}.log`);
    try {
      mkdirSync(logs, { recursive: true });
      symlinkSync(resolve(logs, 'slurm.log'), link);
    } catch (cause) {
      throw diskError(link, cause);
    }
  }
}

/** Cells that are not done and the runs that they need, transitively. */
function needed(cells: readonly SlurmRun[], runs: readonly SlurmRun[], done: ReadonlySet<string>): SlurmRun[] {
  const wanted = new Set<string>();
  const byName = new Map(runs.map((run) => [run.run_name, run]));
  const want = (name: string): void => {
    const run = byName.get(name);
    if (run === undefined || done.has(name) || wanted.has(name)) return;
    wanted.add(name);
    run.parents.forEach(want);
  };
  for (const { run_name } of cells) want(run_name);
  return runs.filter(({ run_name }) => wanted.has(run_name));
}

function distinct(runs: readonly SlurmRun[]): SlurmRun[] {
  return [...new Map(runs.map((run) => [run.run_name, run])).values()];
}

function baseOf(runs: readonly SlurmRun[]): string {
  const bases = [...new Set(runs.map(({ config }) => config.settings.base_exp_dir))];
  if (bases.length === 1) return bases[0];
  throw new ConfigError(`runs of one submission need one folder; found ${bases.join(' and ')}`, {
    where: 'base_exp_dir',
    next: 'Give them one base_exp_dir.',
  });
}

/**
 * Raises ConfigError for runs whose directories have other settings or cannot be read, because their jobs would fail.
 */
function requireSameSettings(runs: readonly SlurmRun[], folderStates: ReadonlyMap<string, RunFolderState>): void {
  const refused = runs.flatMap(({ run_name }) => {
    const found = folderStates.get(run_name);
    return found?.kind === 'refused' ? [`${run_name}: ${found.reason}`] : [];
  });
  if (refused.length === 0) return;
  throw new ConfigError(refused.join('\n'), {
    next: 'Nothing was submitted. Correct each run as described and run the same command again, or leave these cells out with --only.',
  });
}

/** Records that a run is queued before it has begun. */
function recordQueued(config: LoadedConfig, job: string): void {
  const paths = RunPaths.of(config.settings);
  const state = readState(paths);
  if (state !== null && state.state !== 'queued') return;
  writeState(paths, {
    state: 'queued',
    iteration: 0,
    num_iterations: config.settings.num_iterations,
    reason: `Slurm job ${job}`,
    stopped_early: false,
  });
}

/**
 * Prepares runs before submission, because compute nodes may share the cache but have no network. Workers log the
 * warnings.
 */
async function prepare(runs: readonly LoadedConfig[], options: CheckOptions): Promise<void> {
  const view = openView(process.stderr);
  const models = new HubModels({ say: (line) => view.say(printable(line)), busy: (what) => view.busy(what) });
  try {
    const { Preflight } = await import('../preflight/preflight.js');
    await new Preflight().prepare(runs, { ...options, models, warn: () => {} });
  } finally {
    view.end();
    await models.close();
  }
}

/**
 * Submits a run and its parents, unless a problem prevents one of them.
 * With `fresh`, keeps the run's previous folder beside it and returns its path as `aside`. Raises ConfigError for runs
 * that depend on each other in a cycle, the problems of a run, and the errors of `submitCells`.
 */
export async function submitRun(
  config: LoadedConfig,
  program: readonly string[],
  fresh = false,
): Promise<Submitted & { readonly aside: string | null }> {
  const chain = await chainOf(config);
  const configs = chain.map((link) => link.config);
  const claimed = fresh ? configs.slice(0, -1) : configs;
  await prepare(configs, { claimed, startOver: new Set(fresh ? [config] : []) });
  const runs = chain.map((link) => {
    checkRunnable(link.config);
    const { settings } = link.config;
    return {
      run_name: settings.run_name,
      config: link.config,
      parents: dependencies(settings).map(({ run }) => run),
    };
  });
  const aside = fresh ? setAside(RunPaths.of(config.settings)) : null;
  return {
    aside,
    ...(await submitCells(runs.slice(-1), runs.slice(0, -1), { program, name: config.settings.run_name })),
  };
}

/**
 * Whether Slurm places the runs. Raises ConfigError if it would place only some of them, or for a request that Slurm
 * cannot fulfill.
 */
export function usesSlurm(experiment: Experiment): boolean {
  const runs = [...experiment.cells, ...experiment.parents];
  const onSlurm = runs.filter(({ config }) => config.settings.launch.backend === 'slurm');
  if (onSlurm.length === 0) return false;
  const where = `${experiment.file}: launch.backend`;
  const other = runs.find(({ config }) => config.settings.launch.backend !== 'slurm');
  if (other !== undefined) {
    throw new ConfigError(`all runs of a sweep have one backend; found slurm and, in ${other.run_name}, local`, {
      where,
      next: 'Set launch.backend in an overlay that reaches the parents too.',
    });
  }
  return true;
}

/** Submits the chosen cells and their parents. Raises the errors of `submitCells`. */
export async function submitSweep(
  experiment: Experiment,
  choice: SweepChoice,
  limits: SweepLimits,
  program: readonly string[],
): Promise<Submitted> {
  const unsupported = Object.entries({
    '--retries': limits.retries > 0,
    '--fail-fast': limits.failFast,
  }).flatMap(([name, given]) => (given ? [name] : []));
  if (unsupported.length > 0) {
    throw new UsageError(`${unsupported.join(', ')}: found with launch.backend slurm; allowed: with local`, {
      next: 'Leave it out: no process watches jobs on Slurm. Give the same command again to submit the runs that failed.',
    });
  }
  const cells = chooseCells(experiment, choice);
  const needed = new Set(cells.flatMap(({ parents }) => parents));
  const parents = experiment.parents.filter(({ run_name }) => needed.has(run_name));
  const configs = [...parents, ...cells].map(({ config }) => config);
  await prepare(configs, { claimed: [] });
  const { base_exp_dir } = must(experiment.cells[0], 'the first cell').config.settings;
  writeExperiment(base_exp_dir, recordOf(experiment));
  return submitCells(cells, experiment.parents, {
    program,
    name: experiment.name,
    maxParallel: limits.maxParallel,
  });
}

/** Settings of every job of a submission. */
interface Job {
  readonly name: string;
  /** Absolute working folder of the job. Relative paths in the config are resolved against it. */
  readonly cwd: string;
  /** File for the job's output, in sbatch's notation. */
  readonly output: string;
  readonly account: string | null;
  readonly partition: string | null;
  readonly resources: Resources;
  readonly signalBeforeS: number;
  /** A dependency such as `afterok:12_0:12_1`. Null for none. */
  readonly dependency: string | null;
}

export interface ArrayJob extends Job {
  /** Number of tasks. */
  readonly tasks: number;
  /** Maximum number of tasks at once. Null for as many as fit. */
  readonly maxParallel: number | null;
  /** The program of one task. Its arguments are the file of cells and the task's index. */
  readonly program: readonly string[];
  /** Absolute path of the file of cells. */
  readonly cells: string;
}

/** The signal that Slurm sends before the time limit. */
const WARNING = 'USR1';

/** Forwards signals to the script's child. Signals that arrive before there is a child are forwarded later. */
const TRAPS = `requeue=
asked=
child=
ask_to_stop() { asked=yes; [[ -z "$child" ]] || kill -TERM "$child" 2>/dev/null; }
trap 'requeue=yes; ask_to_stop' ${WARNING}
trap ask_to_stop TERM`;

/**
 * Runs one cell per task.
 * On the warning signal, the cell stops after a checkpoint (exit code 130) and the task requeues itself. On SIGTERM,
 * the cell stops in the same way and the task ends.
 */
export function arrayScript(job: ArrayJob): string {
  const array = `0-${job.tasks - 1}${job.maxParallel === null ? '' : `%${job.maxParallel}`}`;
  return `#!/bin/bash
${directives(job, [`--array=${array}`])}

${TRAPS}

echo "Slurm job \${SLURM_ARRAY_JOB_ID}_\${SLURM_ARRAY_TASK_ID} on $(hostname), start \${SLURM_RESTART_COUNT:-0}"
${shellWords([...job.program, job.cells])} "$SLURM_ARRAY_TASK_ID" &
${waitForChild}

# 143: the signal came before the cell handled signals, so there is nothing to save.
if [[ -n "$requeue" && ( "$code" == 130 || "$code" == 143 ) ]]; then
  echo 'the time limit is near: checkpointed, back into the queue'
  # Slurm ends this script as soon as it has put the task back.
  scontrol requeue "\${SLURM_ARRAY_JOB_ID}_\${SLURM_ARRAY_TASK_ID}" && sleep 300
fi
exit "$code"
`;
}

/**
 * Waits for the child. A signal interrupts `wait`, so only the last call returns the child's exit code. A child that
 * has just started would miss an earlier signal.
 */
const waitForChild = `child=$!
[[ -z "$asked" ]] || { sleep 1; ask_to_stop; }
wait "$child"
while kill -0 "$child" 2>/dev/null; do wait "$child"; done
wait "$child"
code=$?`;

function directives(job: Job, more: readonly string[]): string {
  const { resources } = job;
  const optional: readonly (readonly [string, string | number | null])[] = [
    ['account', job.account],
    ['partition', job.partition],
    ['gres', resources.gres],
    ['cpus-per-task', resources.cpus_per_task],
    ['mem', resources.mem],
    ['dependency', job.dependency],
  ];
  const flags = [
    `--job-name=${job.name}`,
    ...more,
    '--nodes=1',
    '--ntasks=1',
    `--time=${resources.time}`,
    ...optional.flatMap(([name, value]) => (value === null ? [] : [`--${name}=${value}`])),
    `--chdir=${job.cwd}`,
    `--output=${job.output}`,
    '--open-mode=append',
    '--requeue',
    `--signal=B:${WARNING}@${job.signalBeforeS}`,
    // A job that depends on a failed one would otherwise wait forever.
    '--kill-on-invalid-dep=yes',
    ...resources.extra,
  ];
  return flags.map((flag) => `#SBATCH ${directive(flag)}`).join('\n');
}

/** Quotes a directive. sbatch splits its words like a shell, without expansion. */
function directive(flag: string): string {
  return /^[\w@%+=:,./[\]-]+$/.test(flag) ? flag : `"${flag.replace(/["\\]/g, '\\$&')}"`;
}

function shellWords(texts: readonly string[]): string {
  return texts.map(shellQuote).join(' ');
}

/** Escapes a path, so that sbatch replaces no patterns in it. */
export function literalPath(path: string): string {
  return path.replaceAll('%', '%%');
}
