/**
 * Plans Slurm jobs for runs: which runs share a job array, and the resources and dependencies of each array. Submits
 * nothing.
 */
import type { LoadedConfig } from '../../config/load.js';
import type { LaunchSettings, SlurmSettings } from '../../config/schema/launch.js';
import { ConfigError, InternalError } from '../../core/errors.js';

/** A run to submit: a cell of a matrix, or a parent of cells. */
export interface SlurmRun {
  readonly run_name: string;
  readonly config: LoadedConfig;
  /** Names of the runs that have to finish first. */
  readonly parents: readonly string[];
}

/** The resources of one job. */
export interface Resources {
  readonly time: string;
  readonly gres: string | null;
  readonly cpus_per_task: number | null;
  readonly mem: string | null;
  readonly extra: readonly string[];
}

/** Runs with equal resources and dependencies. They are the tasks of one array, in order. */
export interface ArrayPlan {
  readonly runs: readonly SlurmRun[];
  readonly resources: Resources;
  readonly account: string | null;
  readonly partition: string | null;
  readonly signalBeforeS: number;
  /** Names of unfinished runs that have to finish before any task may start. */
  readonly after: readonly string[];
}

/** Slurm's default MaxArraySize is 1001, and a task's index has to be below it. */
const MAX_TASKS = 1000;

/**
 * Groups runs into arrays, parents first, in the order of the runs. Nothing waits for runs in `finished`.
 * Raises ConfigError for a parent that is neither finished, nor `underWay`, nor among the runs, and when the warning
 * signal would come before the job has begun.
 */
export function planArrays(
  runs: readonly SlurmRun[],
  known: { readonly finished: ReadonlySet<string>; readonly underWay: ReadonlySet<string> },
): ArrayPlan[] {
  const depths = depthsOf(runs);
  const groups = new Map<string, { depth: number; plan: Omit<ArrayPlan, 'runs'>; runs: SlurmRun[] }>();
  for (const run of runs) {
    const after = run.parents.filter((parent) => !known.finished.has(parent));
    const missing = after.find((parent) => !known.underWay.has(parent) && !depths.has(parent));
    if (missing !== undefined) {
      throw new ConfigError(`'${run.run_name}' starts from '${missing}', which is neither finished nor submitted`, {
        where: run.config.file,
        next: `Run ${missing} first, then submit this again.`,
      });
    }
    const plan = { ...resourceRequest(run.config), after: [...after].sort() };
    const depth = depths.get(run.run_name) ?? 0;
    const key = JSON.stringify([depth, plan]);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, { depth, plan, runs: [run] });
    else group.runs.push(run);
  }
  return [...groups.values()]
    .sort((a, b) => a.depth - b.depth)
    .flatMap(({ plan, runs: members }) => chunks(members, MAX_TASKS).map((part) => ({ ...plan, runs: part })));
}

/** Number of generations of unfinished parents before each run. */
function depthsOf(runs: readonly SlurmRun[]): Map<string, number> {
  const byName = new Map(runs.map((run) => [run.run_name, run]));
  const depths = new Map<string, number>();
  const depthOf = (run: SlurmRun, ancestry: readonly string[]): number => {
    const known = depths.get(run.run_name);
    if (known !== undefined) return known;
    if (ancestry.includes(run.run_name)) {
      throw new InternalError(`runs start from each other: ${[...ancestry, run.run_name].join(' -> ')}`);
    }
    const parents = run.parents.flatMap((name) => byName.get(name) ?? []);
    const depth = Math.max(-1, ...parents.map((parent) => depthOf(parent, [...ancestry, run.run_name]))) + 1;
    depths.set(run.run_name, depth);
    return depth;
  };
  for (const run of runs) depthOf(run, []);
  return depths;
}

function resourceRequest(config: LoadedConfig): Omit<ArrayPlan, 'runs' | 'after'> {
  const { launch } = config.settings;
  const { slurm } = launch;
  const { time, gres, mem, extra } = slurm;
  checkSignal(time, slurm.signal_before_s, config.file);
  refuseClusters(extra, config.file);
  return {
    resources: { time, gres, mem, extra, cpus_per_task: slurm.cpus_per_task ?? coresOf(launch) },
    account: slurm.account,
    partition: slurm.partition,
    signalBeforeS: slurm.signal_before_s,
  };
}

function coresOf(launch: LaunchSettings): number {
  return launch.processes === 'auto' ? 1 : launch.processes;
}

/** Raises ConfigError when a job would be asked to stop before it could do anything. */
function checkSignal(time: string, signalBeforeS: SlurmSettings['signal_before_s'], where: string): void {
  const limit = parseTime(time);
  if (limit === null) {
    throw new ConfigError(
      `launch.slurm.time: found '${time}'; allowed: minutes, [D-]HH:MM:SS, MM:SS, D-HH, D-HH:MM or UNLIMITED`,
      { where },
    );
  }
  if (limit > signalBeforeS) return;
  throw new ConfigError(
    `launch.slurm.signal_before_s: found ${signalBeforeS}; allowed: less than the time limit, ${limit} s (launch.slurm.time '${time}')`,
    { where, next: 'Ask for more time, or let the signal come later.' },
  );
}

/** Raises ConfigError for a flag that sends the job to another cluster, which editrl never queries. */
function refuseClusters(extra: readonly string[], where: string): void {
  const flag = extra.find((each) => /^(-M|--clu)/.test(each));
  if (flag === undefined) return;
  throw new ConfigError(`launch.slurm.extra: found '${flag}'; allowed: jobs of the default cluster`, {
    where,
    next: 'Leave it out, and submit on a login node of that cluster.',
  });
}

/** Seconds of a time limit in Slurm's notation. Infinity for no limit, null for any other text. */
export function parseTime(text: string): number | null {
  if (/^(unlimited|infinite)$/i.test(text)) return Infinity;
  const parts = /^(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?$/.exec(text);
  if (parts === null) return null;
  const days = parts[1] as string | undefined;
  const [a, b, c] = parts.slice(2).map((part) => Number((part as string | undefined) ?? 0));
  // Hours follow days. Three numbers are hours, minutes and seconds. Otherwise, the first number is minutes.
  if (days !== undefined) return Number(days) * 86_400 + a * 3600 + b * 60 + c;
  const three = (parts[4] as string | undefined) !== undefined;
  return three ? a * 3600 + b * 60 + c : a * 60 + b;
}

function chunks<T>(items: readonly T[], size: number): T[][] {
  const parts: T[][] = [];
  for (let at = 0; at < items.length; at += size) parts.push(items.slice(at, at + size));
  return parts;
}
