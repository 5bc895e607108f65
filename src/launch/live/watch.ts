/** Progress of the runs under way, gathered from their folders and from `LiveProgress`. */
import { EditrlError } from '../../core/errors.js';
import { MetricsTail, NON_FINITE, speedOf, type MetricsLine } from '../../run/metrics.js';
import { secondsLeft, type ProgressColumn } from '../../run/progress.js';
import { heldOutMeans } from '../../run/metric_names.js';
import { activeAlarms } from '../../run/report/alarms.js';
import { showLoss, showSpeed, UNSCORED } from '../../run/report/numbers.js';
import { readState, type RunState } from '../../run/state.js';
import type { Phase } from '../sweep/schedule.js';
import type { LoadedConfig } from '../../config/load.js';
import { isTrainable } from '../../config/recipes.js';
import { recipeOf } from '../../recipes/settings.js';
import { RunPaths } from '../../run/paths.js';
import { rewardScale } from '../../rewards/score/identity.js';
import { getPath } from '../../core/schema/walk.js';
import type { RunSettings } from '../../config/schema/run.js';

const showReward = (value: number): string => (Number.isNaN(value) ? UNSCORED : value.toFixed(2));

/** The metric with the seconds of an iteration. */
const TIME = 'time/total';

/** The number that a run optimizes: the first of these that it has. */
const LEARNS_BY = [
  { metric: 'reward/mean', label: 'reward', show: showReward },
  { metric: 'policy/loss', label: 'loss', show: showLoss },
  { metric: 'reward', label: 'reward', show: showReward },
  { metric: 'loss', label: 'loss', show: showLoss },
  { metric: 'train/loss', label: 'loss', show: showLoss },
] as const;

export interface TrainingCurve {
  readonly label: string;
  /** Formats a value. */
  readonly show: (value: number) => string;
  /** Oldest first. */
  readonly values: readonly number[];
}

export interface HeldOutPoint {
  readonly iteration: number;
  /** Its text: `4.02 ± 0.24` or a loss. */
  readonly shown: string;
}

/** Held-out numbers of one kind, oldest first; never empty. */
export interface HeldOutCurve {
  /** `held-out viescore`, `greedy`, `held-out loss`. */
  readonly label: string;
  readonly points: readonly HeldOutPoint[];
}

export interface RunningRow {
  readonly name: string;
  readonly iteration: number;
  readonly numIterations: number;
  /** The iteration that earlier attempts reached; 0 for none. */
  readonly reached: number;
  /** What the run waits for, such as its judge; null if it is working. */
  readonly waitsFor: string | null;
  /** Null before its first iteration. */
  readonly learning: TrainingCurve | null;
  readonly heldOut: readonly HeldOutCurve[];
  /** Other metrics of its last iteration, such as `KL 0.0123`. */
  readonly figures: readonly string[];
  /** Active hack alarms, and a note if metrics are not finite. */
  readonly alarms: readonly string[];
  /** Episodes of the last iteration that no judge scored; null if scoring does not apply. */
  readonly unscored: number | null;
  /** The last line that another trainer printed. */
  readonly says: string | null;
  readonly elapsedS: number;
  /** Null while there is no estimate. */
  readonly leftS: number | null;
  /** `GPU 0,1` or `CPU, 2 threads`. */
  readonly where: string;
  /** The log that people read. */
  readonly log: string;
}

export interface LiveSnapshot {
  readonly title: string;
  readonly total: number;
  readonly names: Readonly<Record<Phase, readonly string[]>>;
  readonly running: readonly RunningRow[];
  readonly elapsedS: number;
  readonly leftS: number | null;
}

export const PHASES: readonly Phase[] = [
  'finished',
  'running',
  'elsewhere',
  'queued',
  'interrupted',
  'blocked',
  'failed',
];

/** What is read of a run at one moment. */
export interface RunSnapshot {
  readonly state: Pick<RunState, 'state' | 'iteration' | 'reason'> | null;
  readonly last: MetricsLine | null;
  readonly heldOut: readonly MetricsLine[];
  curve(metric: string): readonly number[];
}

/** A run being followed, with state from one look to the next. */
interface WatchedRun {
  readonly run: RunInProgress;
  readonly tail: MetricsTail;
  /** The latest progress seen, and seconds per iteration between looks, which time a run that does not record them. */
  last: { readonly iteration: number; readonly ms: number } | null;
  readonly seconds: number[];
  says: string | null;
}

/** Follows runs, and keeps the state that it needs to estimate the remaining time. */
export class RunWatcher {
  readonly #startedMs = performance.now();
  readonly #watched = new Map<string, WatchedRun>();
  #doneSeconds = 0;
  #done = 0;

  constructor(
    private readonly progress: LiveProgress,
    private readonly look: (run: RunInProgress, tail: MetricsTail) => RunSnapshot | null = readSnapshot,
  ) {}

  /** Counts a finished run for the estimate of later ones. */
  finished(seconds: number): void {
    this.#done++;
    this.#doneSeconds += seconds;
  }

  /** Another trainer printed a line. */
  trainerLine(name: string, line: string): void {
    const run = this.progress.running.get(name);
    if (run !== undefined && line.trim() !== '') this.#of(run).says = line;
  }

  /** A run that was followed, even one that has ended; null if it was never seen. */
  row(name: string): RunningRow | null {
    const watched = this.#watched.get(name);
    return watched === undefined ? null : this.#row(watched.run);
  }

  now(): LiveSnapshot {
    const running = [...this.progress.running.values()].map((run) => this.#row(run));
    const names = Object.fromEntries(
      PHASES.map((phase) => [phase, this.progress.names(phase)]),
    ) as LiveSnapshot['names'];
    return {
      title: this.progress.title,
      total: PHASES.reduce((sum, phase) => sum + names[phase].length, 0),
      names,
      running,
      elapsedS: (performance.now() - this.#startedMs) / 1000,
      leftS: this.#left(running, names.queued.length),
    };
  }

  #of(run: RunInProgress): WatchedRun {
    const known = this.#watched.get(run.name);
    if (known?.run === run) return known;
    const tail = new MetricsTail(run.paths.metrics, [...LEARNS_BY.map(({ metric }) => metric), TIME]);
    const watched = { run, tail, last: null, seconds: [], says: null };
    this.#watched.set(run.name, watched);
    return watched;
  }

  #row(run: RunInProgress): RunningRow {
    const watched = this.#of(run);
    const seen = this.look(run, watched.tail);
    const now = performance.now();
    const metrics = seen?.last?.metrics ?? {};
    const iteration = Math.max(seen?.state?.iteration ?? 0, seen?.last?.iteration ?? 0);
    const kind = LEARNS_BY.find(({ metric }) => (seen?.curve(metric).length ?? 0) > 0);
    return {
      name: run.name,
      iteration,
      numIterations: run.numIterations,
      reached: run.reached,
      waitsFor: seen?.state?.state === 'waiting' ? (seen.state.reason ?? 'its judge') : null,
      learning:
        kind === undefined ? null : { label: kind.label, show: kind.show, values: seen?.curve(kind.metric) ?? [] },
      heldOut: heldOutCurves(seen?.heldOut ?? [], run.rewardName),
      figures: figuresOf(run, metrics, kind?.metric ?? null),
      alarms: alarmsOf(metrics),
      unscored: unscoredOf(metrics),
      says: watched.says,
      elapsedS: (now - run.startedMs) / 1000,
      leftS: secondsLeft(iterationTimes(watched, seen, iteration, now), run.numIterations - iteration),
      where: run.where,
      log: `${run.paths.logsDir}/console.log`,
    };
  }

  /** Assumes that queued runs take as long as finished ones, or, without any, as those in progress. */
  #left(running: readonly RunningRow[], queued: number): number | null {
    const whole = running.flatMap((row) => (row.leftS === null ? [] : [row.elapsedS + row.leftS]));
    const mean =
      this.#done > 0
        ? this.#doneSeconds / this.#done
        : whole.length > 0
          ? whole.reduce((sum, seconds) => sum + seconds, 0) / whole.length
          : null;
    if (mean === null) return null;
    const underWay = running.reduce((sum, row) => sum + (row.leftS ?? Math.max(0, mean - row.elapsedS)), 0);
    return (underWay + mean * queued) / Math.max(1, running.length);
  }
}

/** Seconds of the latest iterations, as recorded by the run; a trainer that records none is timed from look to look. */
function iterationTimes(
  watched: WatchedRun,
  seen: RunSnapshot | null,
  iteration: number,
  now: number,
): readonly number[] {
  const recorded = seen?.curve(TIME) ?? [];
  if (recorded.length > 0) return recorded;
  const { last, seconds } = watched;
  if (last === null || iteration !== last.iteration) {
    const done = last === null ? 0 : iteration - last.iteration;
    for (let each = 0; each < done; each++) seconds.push((now - (last?.ms ?? now)) / 1000 / done);
    if (done < 0) seconds.length = 0;
    watched.last = { iteration, ms: now };
  }
  return seconds;
}

/** A run that cannot be read at this moment shows nothing; it reports any real problem itself when it ends. */
function readSnapshot({ paths }: RunInProgress, tail: MetricsTail): RunSnapshot | null {
  try {
    tail.read();
    return { state: readState(paths), last: tail.last, heldOut: tail.heldOut, curve: (metric) => tail.curve(metric) };
  } catch (error) {
    if (!(error instanceof EditrlError)) throw error;
    return null;
  }
}

/** Label of the sampled answers' reward, beside the reward's own name. */
const HELD_OUT_REWARD = 'held-out';

const HELD_OUT: readonly HeldOutNumber[] = [
  { label: HELD_OUT_REWARD, metric: 'validation/sampled/mean', error: 'validation/sampled/stderr', show: showReward },
  { label: 'greedy', metric: 'validation/greedy/mean', error: 'validation/greedy/stderr', show: showReward },
  { label: 'held-out loss', metric: 'validation/loss', error: '', show: showLoss },
];

/** The further measures of held-out answers, from `validation.measure`. */
function measuresAmong(names: ReadonlySet<string>): HeldOutNumber[] {
  return heldOutMeans(names).flatMap(({ set, manner, by }): HeldOutNumber[] => {
    if (set !== null || by === null) return [];
    const [label, prefix] = [manner === 'sampled' ? by : `${by} greedy`, `validation/${manner}/measure/${by}`];
    return [{ label, metric: `${prefix}/mean`, error: `${prefix}/stderr`, show: showReward }];
  });
}

interface HeldOutNumber {
  readonly label: string;
  readonly metric: string;
  readonly error: string;
  readonly show: (value: number) => string;
}

/** Curves measured most recently come first: a supervised run measures its reward only at the start and end, but its loss all along. */
function heldOutCurves(lines: readonly MetricsLine[], rewardName: string | null): HeldOutCurve[] {
  const names = new Set(lines.flatMap(({ metrics }) => Object.keys(metrics)));
  const curves = [...HELD_OUT, ...measuresAmong(names)].flatMap(({ label, metric, error, show }): HeldOutCurve[] => {
    const points = lines.flatMap(({ iteration, metrics }) => {
      const mean = metrics[metric] as number | undefined;
      const stderr = metrics[error] as number | undefined;
      if (mean === undefined) return [];
      const spread = stderr === undefined || Number.isNaN(stderr) || Number.isNaN(mean) ? '' : ` ± ${show(stderr)}`;
      return [{ iteration, shown: `${show(mean)}${spread}` }];
    });
    const named = label === HELD_OUT_REWARD && rewardName !== null ? `${label} ${rewardName}` : label;
    return points.length === 0 ? [] : [{ label: named, points }];
  });
  const latest = ({ points }: HeldOutCurve): number => points[points.length - 1].iteration;
  return curves.sort((a, b) => latest(b) - latest(a));
}

/** The recipe's other columns, speed and time. */
function figuresOf({ columns }: RunInProgress, metrics: MetricsLine['metrics'], learning: string | null): string[] {
  const shown = columns.flatMap(({ label, metric, digits }) => {
    const value = metrics[metric] as number | undefined;
    // Held-out numbers have their own line.
    const apart = metric === learning || metric.startsWith('validation/');
    return value === undefined || apart ? [] : [`${label} ${value.toFixed(digits)}`];
  });
  const speed = speedOf(metrics);
  const seconds = metrics['time/total'] as number | undefined;
  return [
    ...shown,
    ...(speed !== null && speed.value > 0 ? [showSpeed(speed)] : []),
    ...(seconds === undefined ? [] : [`${seconds.toFixed(seconds < 100 ? 2 : 0)} s an iteration`]),
  ];
}

/** Active hack alarms, and numbers that are not finite. */
function alarmsOf(metrics: MetricsLine['metrics']): string[] {
  const names = activeAlarms(metrics);
  const bad = metrics[NON_FINITE] as number | undefined;
  return bad === undefined ? names : [...names, `${bad} metric${bad === 1 ? ' is' : 's are'} not finite`];
}

/** Null if the iteration was not scored at all. */
function unscoredOf(metrics: MetricsLine['metrics']): number | null {
  if (metrics['reward/mean'] === undefined) return null;
  return Object.entries(metrics).reduce(
    (sum, [name, count]) => (name.startsWith('reward/unscored/') ? sum + count : sum),
    0,
  );
}

/** A run in progress. */
export interface RunInProgress {
  readonly name: string;
  readonly paths: RunPaths;
  readonly numIterations: number;
  /** The iteration that earlier attempts reached; 0 for none. */
  readonly reached: number;
  readonly startedMs: number;
  /** `GPU 0,1` or `2 CPU threads`; empty if it has the machine to itself. */
  readonly where: string;
  /** The columns of its recipe's progress line. */
  readonly columns: readonly ProgressColumn[];
  /** The name of its held-out reward, such as `viescore`; null if it has none or the name is unknown. */
  readonly rewardName: string | null;
}

/** Stays live: it is queried for every frame. */
export interface LiveProgress {
  /** The experiment's name, or the run's. */
  readonly title: string;
  /** What is to be done, in a sentence; null if the counts of its runs are enough. */
  readonly opening: string | null;
  /** The runs in a phase, in the order in which they will run. */
  names(phase: Phase): readonly string[];
  /** By name. */
  readonly running: ReadonlyMap<string, RunInProgress>;
}

/** A run to follow from now on. Raises RunError for an invalid state. */
export function runInProgress({ settings }: Pick<LoadedConfig, 'settings'>, where = ''): RunInProgress {
  const { run_name, num_iterations } = settings;
  const paths = RunPaths.of(settings);
  return {
    name: run_name,
    paths,
    numIterations: num_iterations,
    reached: readState(paths)?.iteration ?? 0,
    startedMs: performance.now(),
    where,
    columns: isTrainable(settings) ? recipeOf(settings).columns(settings) : [],
    rewardName: rewardName(settings),
  };
}

/** The only term that decides; for several, whose names are too long for a line, that they are weighted. Null without a reward. */
function rewardName(settings: RunSettings): string | null {
  const scale = rewardScale((path) => getPath(settings, path));
  if (scale === null) return null;
  return scale.terms === 1 ? scale.label : 'weighted sum';
}

/** A run after those that it starts from, one after the other. */
export class ChainProgress implements LiveProgress {
  readonly title: string;
  readonly running = new Map<string, RunInProgress>();
  readonly #phases: Map<string, Phase>;

  /** `configs`: the run's own is the last. */
  constructor(configs: readonly LoadedConfig[]) {
    this.#phases = new Map(configs.map(({ settings }) => [settings.run_name, 'queued']));
    this.title = configs.at(-1)?.settings.run_name ?? '';
  }

  get opening(): string | null {
    const names = [...this.#phases.keys()];
    return names.length < 2 ? null : `${names.length} runs, one after another: ${names.join(', ')}`;
  }

  names(phase: Phase): readonly string[] {
    return [...this.#phases].flatMap(([name, is]) => (is === phase ? [name] : []));
  }

  begin(config: LoadedConfig): RunInProgress {
    const run = runInProgress(config);
    this.#phases.set(run.name, 'running');
    this.running.set(run.name, run);
    return run;
  }

  end(name: string, phase: Phase): void {
    this.#phases.set(name, phase);
    this.running.delete(name);
  }
}
