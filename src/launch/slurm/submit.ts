/** Submitting runs: files of cells and batch scripts into the folder of runs, sbatch in the order of the parents. */
import { mkdirSync, rmSync, symlinkSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import type { LoadedConfig } from '../../config/load.js';
import type { SlurmSettings } from '../../config/settings.js';
import { ConfigError, must } from '../../core/errors.js';
import { diskError, writeFileAtomic } from '../../core/files.js';
import { RunPaths } from '../../run/paths.js';
import { readState, writeState } from '../../run/state.js';
import { arrayScript, farewellScript, judgeScript, literalPath } from './batch_script.js';
import { submit } from './commands.js';
import { planArrays, resourcesOf, type ArrayPlan, type SlurmRun } from './jobs.js';
import { isUnderWay, liveJudges, reconcile, type SlurmJob } from './queue.js';
import { submissionsDir, writeSubmission, type ArrayRecord, type JudgeRecord, type Submission } from './record.js';

export interface SubmitOptions {
  /** What runs `cell FILE INDEX` on a node: `[node, …/main.js]`; the same paths have to be there on every node. */
  readonly program: readonly string[];
  /** Begins the jobs' names in squeue. */
  readonly name: string;
  /** At most this many tasks of one array at once; null means as many as fit. */
  readonly maxParallel?: number | null;
}

/** What came of a submission. */
export interface Submitted {
  /** The folder that holds its scripts and its record; null where nothing was left to submit. */
  readonly dir: string | null;
  readonly arrays: readonly ArrayRecord[];
  readonly judges: readonly JudgeRecord[];
  /** Names of runs that are finished. */
  readonly finished: readonly string[];
  /** Jobs from an earlier submission that wait or run. */
  readonly underWay: readonly SlurmJob[];
}

/**
 * Submits what is neither finished nor in the queue already: cells, and the parents that these need. Raises ConfigError for
 * settings that cannot be submitted, RunError where Slurm is not here or refuses (its own words); what was accepted until then stays
 * submitted, and is not submitted again by the next call.
 */
export async function submitCells(
  cells: readonly SlurmRun[],
  parents: readonly SlurmRun[],
  options: SubmitOptions,
): Promise<Submitted> {
  const runs = distinct([...parents, ...cells]);
  const base = baseOf(runs);
  const finished = new Set(runs.filter(({ config }) => isFinished(config)).map(({ run_name }) => run_name));
  for (const parent of runs.flatMap((run) => run.parents)) {
    const listed = runs.some(({ run_name }) => run_name === parent);
    if (!listed && readState(new RunPaths(base, parent))?.state === 'finished') finished.add(parent);
  }
  const jobs = await reconcile(base);
  const underWay = runs.flatMap(({ run_name }) => {
    const job = jobs.get(run_name);
    return job !== undefined && isUnderWay(job) && !finished.has(run_name) ? [job] : [];
  });
  const busy = new Set(underWay.map(({ run_name }) => run_name));
  const todo = needed(cells, runs, new Set([...finished, ...busy]));
  const none = { dir: null, arrays: [], judges: [], finished: [...finished], underWay };
  if (todo.length === 0) return none;
  const plans = planArrays(todo, { finished, underWay: busy });
  const submission = new SubmissionUnderWay(base, options);
  await submission.judges(todo.map(({ config }) => config));
  for (const plan of plans) await submission.array(plan, jobs);
  await submission.farewells();
  return { ...none, dir: submission.dir, arrays: submission.record.arrays, judges: submission.record.judges };
}

/** One submission: every step is on record before and after sbatch is called, so that no job is lost and none doubled. */
class SubmissionUnderWay {
  readonly dir: string;
  readonly #id: string;
  readonly #tasks = new Map<string, string>();
  /** Jobs of the judges that this submission started, by node file. */
  readonly #judges = new Map<string, { readonly id: string; readonly slurm: SlurmSettings; readonly own: boolean }>();
  record: Submission;

  constructor(
    private readonly base: string,
    private readonly options: SubmitOptions,
  ) {
    this.#id = `${new Date().toISOString().replace(/[-:.Z]/g, '')}_${process.pid}`;
    this.dir = resolve(submissionsDir(base), this.#id);
    this.record = { format: 1, submitted_at: new Date().toISOString(), arrays: [], judges: [] };
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
      const running = live.get(nodeFile);
      if (running !== undefined) {
        this.#judges.set(nodeFile, { id: running, slurm, own: false });
        continue;
      }
      const index = this.record.judges.length;
      const name = `${this.options.name}-judge-${this.#id}-${index}`;
      const script = judgeScript({
        ...this.#common(slurm, name, `judge_${index}`),
        resources: resourcesOf(settings),
        dependency: null,
        command: settings.command,
        nodeFile,
      });
      const made: JudgeRecord = { name, job_id: null, node_file: nodeFile };
      this.#write({ judges: [...this.record.judges, made] });
      // What an earlier judge left there names a node that serves no more.
      rmSync(nodeFile, { force: true });
      mkdirSync(dirname(nodeFile), { recursive: true });
      const id = await this.#submit(`judge_${index}.sh`, script);
      this.#write({ judges: this.record.judges.map((judge) => (judge === made ? { ...judge, job_id: id } : judge)) });
      this.#judges.set(nodeFile, { id, slurm, own: true });
    }
  }

  /** `earlier`: the jobs of runs from before. */
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
      dependency: this.#dependency(plan, earlier),
      tasks: plan.runs.length,
      maxParallel: this.options.maxParallel ?? null,
      program: [...this.options.program, 'cell'],
      cells,
    });
    const made: ArrayRecord = { name, job_id: null, runs: plan.runs.map(({ run_name }) => run_name) };
    this.#write({ arrays: [...this.record.arrays, made] });
    const id = await this.#submit(`array_${index}.sh`, script);
    this.#write({ arrays: this.record.arrays.map((array) => (array === made ? { ...array, job_id: id } : array)) });
    for (const [task, run] of plan.runs.entries()) {
      this.#tasks.set(run.run_name, `${id}_${task}`);
      sayQueued(run.config, `${id}_${task}`);
    }
  }

  /** A judge that this submission started ends when its last run has ended. */
  async farewells(): Promise<void> {
    const ids = this.record.arrays.flatMap(({ job_id }) => job_id ?? []);
    let index = 0;
    for (const { id, slurm, own } of this.#judges.values()) {
      if (!own) continue;
      const name = `${this.options.name}-judge-end-${this.#id}-${index}`;
      const common = this.#common(slurm, name, `judge_end_${index}`);
      const resources = { time: '00:05:00', gres: null, cpus_per_task: 1, mem: null, extra: [] };
      const dependency = `afterany:${ids.join(':')}`;
      const script = farewellScript({ ...common, signalBeforeS: 60, resources, dependency }, id);
      await this.#submit(`judge_end_${index}.sh`, script);
      index++;
    }
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

  #dependency(plan: ArrayPlan, earlier: ReadonlyMap<string, SlurmJob>): string | null {
    const parents = plan.after.map((parent) =>
      must(this.#tasks.get(parent) ?? earlier.get(parent)?.job, `the job of ${parent}`),
    );
    const judges = plan.runs.flatMap(({ config }) => {
      const judge = judgeOf(config);
      return judge === null ? [] : (this.#judges.get(judge.nodeFile)?.id ?? []);
    });
    const parts = [
      ...(parents.length === 0 ? [] : [`afterok:${parents.join(':')}`]),
      // Workers get their devices when the judge has its own; that it is loaded, they see themselves.
      ...(judges.length === 0 ? [] : [`after:${[...new Set(judges)].join(':')}`]),
    ];
    return parts.length === 0 ? null : parts.join(',');
  }

  async #submit(file: string, script: string): Promise<string> {
    const path = join(this.dir, file);
    writeFileAtomic(path, script);
    return submit(path);
  }

  /** What a task prints, and what Slurm itself says about it, lands in its run's directory. */
  #linkLog(config: LoadedConfig, array: number, task: number): void {
    const logs = pathsOf(config).logsDir;
    const link = join(this.dir, `array_${array}_${task}.log`);
    try {
      mkdirSync(logs, { recursive: true });
      symlinkSync(resolve(logs, 'slurm.log'), link);
    } catch (cause) {
      throw diskError(link, cause);
    }
  }

  #write(change: Partial<Pick<Submission, 'arrays' | 'judges'>>): void {
    this.record = { ...this.record, ...change };
    writeSubmission(this.dir, this.record);
  }
}

/** A judge that a config wants as a job of its own. */
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

/** Another trainer has no endpoint of ours: it finds the judge's node in `judge_node.txt` beside its run. */
function nodeFileOf({ settings }: LoadedConfig): string | null {
  if (settings.task === 'external') return join(settings.base_exp_dir, 'judge_node.txt');
  if (settings.task !== 'image_edit_tokens') return null;
  const { endpoint } = settings.reward;
  return typeof endpoint === 'string' || Array.isArray(endpoint) ? null : endpoint.node_file;
}

/** Cells that are not done, and the runs that these need, transitively. */
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

function pathsOf({ settings }: LoadedConfig): RunPaths {
  return new RunPaths(settings.base_exp_dir, settings.run_name);
}

function isFinished(config: LoadedConfig): boolean {
  const state = readState(pathsOf(config));
  if (state?.state !== 'finished') return false;
  return state.iteration >= config.settings.num_iterations || state.stopped_early;
}

/** So that a run in the queue says so before it has ever begun. */
function sayQueued(config: LoadedConfig, job: string): void {
  const paths = pathsOf(config);
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
