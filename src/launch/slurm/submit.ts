/** Submits runs: writes files of cells and batch scripts into the folder of runs, and calls sbatch in the order of the parents. */
import { mkdirSync, rmSync, symlinkSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import type { LoadedConfig } from '../../config/load.js';
import { ConfigError, EditrlError, must, RunError } from '../../core/errors.js';
import { diskError, writeFileAtomic } from '../../core/files.js';
import { isTrainable } from '../../config/recipes.js';
import { rewardOf } from '../../recipes/settings.js';
import { RunPaths } from '../../run/paths.js';
import { readState, writeState } from '../../run/state.js';
import type { SlurmSettings } from '../../schema/launch.js';
import type { RunFolderState } from '../sweep/schedule.js';
import { inspect, setAsideOutdated } from '../sweep/run_folders.js';
import { arrayScript, farewellScript, judgeScript, literalPath } from './batch_script.js';
import { onCluster, runSlurm, submit, type JobId } from './commands.js';
import { planArrays, resourcesOf, type ArrayPlan, type Resources, type SlurmRun } from './jobs.js';
import { isUnderWay, liveJudges, reconcile, type SlurmJob } from './queue.js';
import {
  submissionsDir,
  writeSubmission,
  type ArrayRecord,
  type FarewellRecord,
  type JudgeRecord,
  type Submission,
} from './record.js';

export interface SubmitOptions {
  /** Runs `cell FILE INDEX` on a node: `[node, …/main.js]`; the paths have to be the same on every node. */
  readonly program: readonly string[];
  /** Prefix of the jobs' names in squeue. */
  readonly name: string;
  /** Maximum number of tasks of one array that run at once; null means as many as fit. */
  readonly maxParallel?: number | null;
}

/** The result of a submission. */
export interface Submitted {
  /** The folder with its scripts and its record; null if nothing was left to submit. */
  readonly dir: string | null;
  readonly arrays: readonly ArrayRecord[];
  readonly judges: readonly JudgeRecord[];
  /** Names of runs that are finished. */
  readonly finished: readonly string[];
  /** Waiting or running jobs of an earlier submission. */
  readonly underWay: readonly SlurmJob[];
}

/**
 * Submits cells that are neither finished nor already in the queue, and the parents that they need. Raises ConfigError for settings that cannot be
 * submitted, or that differ from those of the run in the directory; RunError when Slurm is not installed or refuses (with its message). What was
 * accepted until then stays submitted, and the next call does not submit it again.
 */
export async function submitCells(
  cells: readonly SlurmRun[],
  parents: readonly SlurmRun[],
  options: SubmitOptions,
): Promise<Submitted> {
  const runs = distinct([...parents, ...cells]);
  const base = baseOf(runs);
  const looks = new Map(runs.map(({ run_name, config }) => [run_name, inspect(config)]));
  const named = (...kinds: readonly RunFolderState['kind'][]): Set<string> =>
    new Set([...looks].flatMap(([name, { kind }]) => (kinds.includes(kind) ? [name] : [])));
  const finished = named('finished', 'stopped');
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
  requireSameSettings(todo, looks);
  for (const { config } of todo) setAsideOutdated(config);
  const none = { dir: null, arrays: [], judges: [], finished: [...finished], underWay };
  if (todo.length === 0) return none;
  const plans = planArrays(todo, { finished, underWay: busy });
  const submission = new SubmissionInProgress(base, options);
  try {
    await submission.judges(todo.map(({ config }) => config));
    for (const plan of plans) await submission.array(plan, jobs);
  } catch (error) {
    await submission.farewells(error);
    throw error;
  }
  await submission.farewells(null);
  return { ...none, dir: submission.dir, arrays: submission.record.arrays, judges: submission.record.judges };
}

/** A judge that a submission's runs use. */
interface UsedJudge extends JobId {
  readonly slurm: SlurmSettings;
  /** Ids of arrays of earlier submissions that use it; null if this submission started it. */
  readonly users: readonly string[] | null;
}

/** The lists of jobs that a submission records. */
interface Jobs {
  readonly arrays: ArrayRecord;
  readonly judges: JudgeRecord;
  readonly farewells: FarewellRecord;
}

/** One submission: every step is recorded before and after calling sbatch, so that no job is lost or submitted twice. */
class SubmissionInProgress {
  readonly dir: string;
  readonly #id: string;
  readonly #tasks = new Map<string, JobId>();
  /** The judges that its runs use, by node file. */
  readonly #judges = new Map<string, UsedJudge>();
  record: Submission;

  constructor(
    private readonly base: string,
    private readonly options: SubmitOptions,
  ) {
    this.#id = `${new Date().toISOString().replace(/[-:.Z]/g, '')}_${process.pid}`;
    this.dir = resolve(submissionsDir(base), this.#id);
    this.record = { format: 1, submitted_at: new Date().toISOString(), arrays: [], judges: [], farewells: [] };
    try {
      mkdirSync(this.dir, { recursive: true });
    } catch (cause) {
      throw diskError(this.dir, cause);
    }
  }

  async judges(configs: readonly LoadedConfig[]): Promise<void> {
    const wanted = new Map(configs.flatMap((config) => judgeOf(config) ?? []).map((judge) => [judge.nodeFile, judge]));
    if (wanted.size === 0) return;
    const live = await liveJudges(this.base);
    for (const { nodeFile, slurm, settings } of wanted.values()) {
      mkdirSync(dirname(nodeFile), { recursive: true });
      const running = live.get(nodeFile);
      if (running !== undefined) {
        // Before anything else, so that the judge is not ended while runs are submitted that use it.
        for (const farewell of running.farewells) await cancel(farewell);
        this.#judges.set(nodeFile, { ...running, slurm });
        continue;
      }
      const index = this.record.judges.length;
      const name = `${this.options.name}-judge-${this.#id}-${index}`;
      const script = judgeScript({
        ...this.#common(slurm, name, `judge_${index}`),
        resources: resourcesOf(settings),
        dependency: null,
        cluster: null,
        command: settings.command,
        nodeFile,
      });
      // An earlier judge left the name of a node that no longer serves.
      rmSync(nodeFile, { force: true });
      const job = await this.#enter('judges', { name, node_file: nodeFile }, settings, `judge_${index}.sh`, script);
      this.#judges.set(nodeFile, { ...job, slurm, users: null });
    }
  }

  /** `earlier`: jobs of parents submitted earlier. */
  async array(plan: ArrayPlan, earlier: ReadonlyMap<string, SlurmJob>): Promise<void> {
    const index = this.record.arrays.length;
    const cells = join(this.dir, `cells_${index}.jsonl`);
    writeFileAtomic(cells, plan.runs.map(({ config }) => `${JSON.stringify(config)}\n`).join(''));
    for (const [task, { config }] of plan.runs.entries()) this.#linkLog(config, index, task);
    const name = `${this.options.name}-${this.#id}-${index}`;
    const { slurm } = plan.runs[0].config.settings.launch;
    const script = arrayScript({
      ...this.#common(slurm, name, `array_${index}_%a`),
      resources: plan.resources,
      ...this.#dependency(plan, earlier),
      tasks: plan.runs.length,
      maxParallel: this.options.maxParallel ?? null,
      program: [...this.options.program, 'cell'],
      cells,
    });
    const runs = plan.runs.map(({ run_name }) => run_name);
    const job = await this.#enter('arrays', { name, runs }, plan.resources, `array_${index}.sh`, script);
    for (const [task, run] of plan.runs.entries()) {
      this.#tasks.set(run.run_name, { id: `${job.id}_${task}`, cluster: job.cluster });
      recordQueued(run.config, `${job.id}_${task}`);
    }
  }

  /**
   * A judge ends when the arrays that use it have ended, at once if there are none. `failure` is what ended the submission early, null if nothing did;
   * the RunError raised when ending the judge is refused too mentions it.
   */
  async farewells(failure: unknown): Promise<void> {
    for (const [nodeFile, judge] of this.#judges) {
      try {
        await this.#farewell(nodeFile, judge);
      } catch (error) {
        const why = [failure, error].flatMap((each) => (each === null ? [] : [textOf(each)]));
        throw new RunError(`${why.join('\n')}\nso nothing ends the judge, Slurm job ${judge.id}`, {
          where: this.dir,
          next: `Once no run needs it: scancel ${[...onCluster(judge.cluster), judge.id].join(' ')}`,
          cause: failure ?? error,
        });
      }
    }
  }

  async #farewell(nodeFile: string, judge: UsedJudge): Promise<void> {
    const after = [...this.record.arrays.flatMap(({ job_id }) => job_id ?? []), ...(judge.users ?? [])];
    if (after.length === 0) return cancel(judge);
    const index = this.record.farewells.length;
    const name = `${this.options.name}-judge-end-${this.#id}-${index}`;
    const resources = { time: '00:05:00', gres: null, cpus_per_task: 1, mem: null, extra: [] };
    const script = farewellScript({
      ...this.#common(judge.slurm, name, `judge_end_${index}`),
      signalBeforeS: 60,
      resources,
      dependency: `afterany:${after.join(':')}`,
      cluster: judge.cluster,
      judge: judge.id,
    });
    await this.#enter('farewells', { name, node_file: nodeFile, after }, resources, `judge_end_${index}.sh`, script);
  }

  #common(slurm: SlurmSettings, name: string, output: string) {
    return {
      name,
      cwd: process.cwd(),
      output: `${literalPath(this.dir)}/${output}.log`,
      account: slurm.account,
      partition: slurm.partition,
      signalBeforeS: slurm.signal_before_s,
    };
  }

  /** The jobs that an array waits for, and their cluster. Raises ConfigError if they are on several, or the array asks for another one. */
  #dependency(
    plan: ArrayPlan,
    earlier: ReadonlyMap<string, SlurmJob>,
  ): { readonly dependency: string | null; readonly cluster: string | null } {
    const parents = plan.after.map((parent): JobId => {
      const own = this.#tasks.get(parent);
      if (own !== undefined) return own;
      const { job, cluster } = must(earlier.get(parent), `the job of ${parent}`);
      return { id: must(job, `the job's id of ${parent}`), cluster };
    });
    const judges = plan.runs.flatMap(({ config }) => {
      const judge = judgeOf(config);
      return judge === null ? [] : (this.#judges.get(judge.nodeFile) ?? []);
    });
    const idsOf = (jobs: readonly JobId[]): string => [...new Set(jobs.map(({ id }) => id))].join(':');
    const parts = [
      ...(parents.length === 0 ? [] : [`afterok:${idsOf(parents)}`]),
      // Workers get their devices once the judge has its own; whether it is loaded, they check themselves.
      ...(judges.length === 0 ? [] : [`after:${idsOf(judges)}`]),
    ];
    if (parts.length === 0) return { dependency: null, cluster: null };
    return { dependency: parts.join(','), cluster: commonCluster(plan, [...parents, ...judges]) };
  }

  /** Submits a job, recorded before and after. */
  async #enter<K extends keyof Jobs>(
    kind: K,
    job: Omit<Jobs[K], 'job_id' | 'cluster'>,
    resources: Resources,
    file: string,
    script: string,
  ): Promise<JobId> {
    const before = this.record[kind];
    const write = (job_id: string | null, cluster: string | null): void => {
      this.record = { ...this.record, [kind]: [...before, { ...job, job_id, cluster }] };
      writeSubmission(this.dir, this.record);
    };
    write(null, askedCluster(resources));
    const path = join(this.dir, file);
    writeFileAtomic(path, script);
    const { id, cluster } = await submit(path);
    write(id, cluster);
    return { id, cluster };
  }

  /** Links a task's output, including Slurm's own messages, into its run's directory. */
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

/** A judge that a config wants as a separate job. */
function judgeOf(
  config: LoadedConfig,
): { nodeFile: string; slurm: SlurmSettings; settings: NonNullable<SlurmSettings['judge']> } | null {
  const { settings } = config;
  const { slurm } = settings.launch;
  if (slurm.judge === null) return null;
  const file = nodeFileOf(config);
  if (file === null) {
    throw new ConfigError(
      'launch.slurm.judge starts a judge, but reward.endpoint does not say where its node is read',
      {
        where: config.file,
        next: `Set reward.endpoint to {node_file: '${settings.base_exp_dir}/judge_node.txt', port: 4877}.`,
      },
    );
  }
  return { nodeFile: resolve(file), slurm, settings: slurm.judge };
}

/** Another trainer has no endpoint setting: it finds the judge's node in `judge_node.txt` beside its run. */
function nodeFileOf({ settings }: LoadedConfig): string | null {
  if (!isTrainable(settings)) return join(settings.base_exp_dir, 'judge_node.txt');
  const endpoint = rewardOf(settings)?.endpoint ?? '';
  return typeof endpoint === 'string' || Array.isArray(endpoint) ? null : endpoint.node_file;
}

/** Cells that are not done, and the runs that they need, transitively. */
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
  throw new ConfigError(`runs that are submitted together lie in one folder, but these in ${bases.join(' and ')}`, {
    where: 'base_exp_dir',
    next: 'Give them one base_exp_dir.',
  });
}

/** Raises ConfigError for runs whose directories have other settings or cannot be read: their jobs could only fail. */
function requireSameSettings(runs: readonly SlurmRun[], looks: ReadonlyMap<string, RunFolderState>): void {
  const refused = runs.flatMap(({ run_name }) => {
    const found = looks.get(run_name);
    return found?.kind === 'refused' ? [`${run_name}: ${found.reason}`] : [];
  });
  if (refused.length === 0) return;
  throw new ConfigError(refused.join('\n'), {
    next: 'Nothing was submitted. Do what is said of each run, then give the same command again; or leave these cells out with --only.',
  });
}

/** The cluster, or several, that sbatch flags ask for; null if they leave that to sbatch. */
function askedCluster({ extra }: Resources): string | null {
  const asked = extra.map((flag) => /^(?:-M\s*|--clu\w*[=\s]\s*)(\S+)$/.exec(flag)?.[1] ?? null);
  return asked.findLast((cluster) => cluster !== null) ?? null;
}

/** The cluster of the jobs that an array waits for: ids of jobs count within one cluster. Raises ConfigError if the array cannot be there. */
function commonCluster({ runs, resources }: ArrayPlan, jobs: readonly JobId[]): string | null {
  const [cluster, ...others] = new Set(jobs.map((job) => job.cluster));
  const asked = askedCluster(resources);
  const isAllowed = asked === null || (cluster !== null && asked.split(',').includes(cluster));
  if (others.length === 0 && isAllowed) return cluster;
  const found = [cluster, ...others].map((each) => each ?? 'the default cluster').join(' and ');
  throw new ConfigError(
    `${runs[0].run_name} waits for jobs on ${found}${asked === null ? '' : ` and asks for ${asked}`}`,
    {
      where: `${runs[0].config.file}: launch.slurm.extra`,
      next: 'Give a run, its parents and its judge the same --clusters flag: jobs of one cluster cannot wait for jobs of another.',
    },
  );
}

/** Takes a job out of the queue or ends it. Raises RunError with scancel's message. */
async function cancel({ id, cluster }: JobId): Promise<void> {
  const called = await runSlurm('scancel', [...onCluster(cluster), id]);
  if (called.kind !== 'done') throw new RunError(`scancel refused: ${called.words}`);
}

function textOf(error: unknown): string {
  if (error instanceof EditrlError) return error.toText();
  return error instanceof Error ? error.message : String(error);
}

/** Records that a run is queued before it has ever begun. */
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
