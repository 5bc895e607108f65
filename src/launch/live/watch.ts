/** Progress of running runs, read from their folders. */
import { EditrlError } from '../../core/errors.js';
import { MetricsTail, NON_FINITE, speedOf, type Metrics, type MetricsLine } from '../../run/metrics.js';
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

/** The number that a run optimizes: the first of these that it records. */
const OBJECTIVES = [
  { metric: 'reward/mean', label: 'reward', show: showReward },
  { metric: 'policy/loss', label: 'loss', show: showLoss },
  { metric: 'reward', label: 'reward', show: showReward },
  { metric: 'loss', label: 'loss', show: showLoss },
  { metric: 'train/loss', label: 'loss', show: showLoss },
] as const;

export interface ObjectiveCurve {
  readonly metric: string;
  readonly label: string;
  /** Formats a value. */
  readonly show: (value: number) => string;
  /** Oldest first. */
  readonly values: readonly number[];
}

/** Held-out numbers of one kind, oldest first. Never empty. */
export interface HeldOutCurve {
  /** `held-out viescore`, `greedy`, `held-out loss`. */
  readonly label: string;
  /** With the text of each number: `4.02 ± 0.24`, or a loss. */
  readonly points: readonly { readonly iteration: number; readonly shown: string }[];
}

/** One run at one moment. */
export interface RunProgress {
  readonly name: string;
  readonly iteration: number;
  readonly numIterations: number;
  /** The iteration that earlier attempts reached. 0 for none. */
  readonly reached: number;
  /** What the run waits for, such as its judge. Null if it is working. */
  readonly waitsFor: string | null;
  /** Null before its first iteration. */
  readonly objective: ObjectiveCurve | null;
  readonly heldOut: readonly HeldOutCurve[];
  /** Other metrics of its last iteration, such as `KL 0.0123`. */
  readonly figures: readonly string[];
  /** Active hack alarms, and a note if metrics are not finite. */
  readonly alarms: readonly string[];
  /** The last line that a foreign trainer printed. */
  readonly says: string | null;
  readonly elapsedS: number;
  /** Null while there is no estimate. */
  readonly leftS: number | null;
  /** `GPU 0,1` or `CPU, 2 threads`. Empty if it has the machine to itself. */
  readonly where: string;
  /** The log that people read. */
  readonly log: string;
}

/** Follows a run in progress. */
export class RunInProgress {
  /** The last line that a foreign trainer printed. */
  says: string | null = null;
  readonly #settings: RunSettings;
  readonly #paths: RunPaths;
  readonly #reached: number;
  readonly #columns: readonly ProgressColumn[];
  readonly #tail: MetricsTail;
  /** The latest progress that was read, and seconds per iteration between readings. They time a run that records no times. */
  #last: { readonly iteration: number; readonly ms: number } | null = null;
  readonly #seconds: number[] = [];

  /** Raises RunError for an invalid state. */
  constructor(
    { settings }: Pick<LoadedConfig, 'settings'>,
    private readonly where = '',
    readonly startedMs = performance.now(),
  ) {
    this.#settings = settings;
    this.#paths = RunPaths.of(settings);
    this.#reached = readState(this.#paths)?.iteration ?? 0;
    this.#columns = isTrainable(settings) ? recipeOf(settings).columns(settings) : [];
    this.#tail = new MetricsTail(this.#paths.metrics, [...OBJECTIVES.map(({ metric }) => metric), TIME]);
  }

  get name(): string {
    return this.#settings.run_name;
  }

  now(): RunProgress {
    const state = this.#read();
    const tail = this.#tail;
    const { num_iterations: numIterations } = this.#settings;
    const ms = performance.now();
    const metrics = tail.last?.metrics ?? {};
    const iteration = Math.max(state?.iteration ?? 0, tail.last?.iteration ?? 0);
    const optimized = OBJECTIVES.find(({ metric }) => tail.curve(metric).length > 0);
    const objective = optimized === undefined ? null : { ...optimized, values: tail.curve(optimized.metric) };
    return {
      name: this.name,
      iteration,
      numIterations,
      reached: this.#reached,
      waitsFor: state?.state === 'waiting' ? (state.reason ?? 'its judge') : null,
      objective,
      heldOut: heldOutCurves(tail.heldOut, rewardName(this.#settings)),
      figures: this.#figures(metrics, objective),
      alarms: alarmsOf(metrics),
      says: this.says,
      elapsedS: (ms - this.startedMs) / 1000,
      leftS: secondsLeft(this.#iterationTimes(iteration, ms), numIterations - iteration),
      where: this.where,
      log: `${this.#paths.logsDir}/console.log`,
    };
  }

  /** Null for a run that cannot be read right now. The run reports any real problem itself when it ends. */
  #read(): RunState | null {
    try {
      this.#tail.read();
      return readState(this.#paths);
    } catch (error) {
      if (!(error instanceof EditrlError)) throw error;
      return null;
    }
  }

  /** Seconds of the latest iterations. For a trainer that records none, the time between readings is used. */
  #iterationTimes(iteration: number, ms: number): readonly number[] {
    const recorded = this.#tail.curve(TIME);
    if (recorded.length > 0) return recorded;
    if (this.#last === null || iteration !== this.#last.iteration) {
      const { iteration: before, ms: since } = this.#last ?? { iteration, ms };
      const done = iteration - before;
      if (done < 0) this.#seconds.length = 0;
      else this.#seconds.push(...Array.from({ length: done }, () => (ms - since) / 1000 / done));
      this.#last = { iteration, ms };
    }
    return this.#seconds;
  }

  /** The recipe's other columns, unscored episodes, speed and time. */
  #figures(metrics: Metrics, objective: ObjectiveCurve | null): string[] {
    const shown = this.#columns.flatMap(({ label, metric, digits }) => {
      const value = metrics[metric] as number | undefined;
      // Held-out numbers have their own line.
      const hasLine = metric === objective?.metric || metric.startsWith('validation/');
      return value === undefined || hasLine ? [] : [`${label} ${value.toFixed(digits)}`];
    });
    const unscored = Object.entries(metrics).reduce(
      (sum, [name, count]) => (name.startsWith('reward/unscored/') ? sum + count : sum),
      0,
    );
    const speed = speedOf(metrics);
    const seconds = metrics[TIME] as number | undefined;
    return [
      ...(unscored === 0 ? [] : [`${unscored} unscored`]),
      ...shown,
      ...(speed !== null && speed.value > 0 ? [showSpeed(speed)] : []),
      ...(seconds === undefined ? [] : [`${seconds.toFixed(seconds < 100 ? 2 : 0)} s/iteration`]),
    ];
  }
}

/**
 * Sorted by their latest measurement, newest first. A supervised run measures its reward only at the start and end, but
 * its loss throughout.
 */
function heldOutCurves(lines: readonly MetricsLine[], reward: string | null): HeldOutCurve[] {
  const curveOf = (label: string, prefix: string, show: (value: number) => string, mean = '/mean'): HeldOutCurve => {
    const points = lines.flatMap(({ iteration, metrics }) => {
      const value = metrics[`${prefix}${mean}`] as number | undefined;
      const stderr = metrics[`${prefix}/stderr`] as number | undefined;
      if (value === undefined) return [];
      const spread = stderr === undefined || Number.isNaN(stderr) || Number.isNaN(value) ? '' : ` ± ${show(stderr)}`;
      return [{ iteration, shown: `${show(value)}${spread}` }];
    });
    return { label, points };
  };
  const means = heldOutMeans(lines.flatMap(({ metrics }) => Object.keys(metrics)));
  const scored = means.flatMap(({ set, manner, by }) => {
    if (set !== null) return [];
    if (by !== null) {
      return [curveOf(manner === 'sampled' ? by : `${by} greedy`, `validation/${manner}/measure/${by}`, showReward)];
    }
    const label = manner === 'sampled' ? ['held-out', reward ?? ''].join(' ').trimEnd() : 'greedy';
    return [curveOf(label, `validation/${manner}`, showReward)];
  });
  const latest = ({ points }: HeldOutCurve): number => points[points.length - 1].iteration;
  return [...scored, curveOf('held-out loss', 'validation/loss', showLoss, '')]
    .filter(({ points }) => points.length > 0)
    .sort((a, b) => latest(b) - latest(a));
}

/** Active hack alarms, and numbers that are not finite. */
function alarmsOf(metrics: Metrics): string[] {
  const bad = metrics[NON_FINITE] as number | undefined;
  return [
    ...activeAlarms(metrics),
    ...(bad === undefined ? [] : [`${bad} metric${bad === 1 ? ' is' : 's are'} not finite`]),
  ];
}

/**
 * The single term that decides the reward. Null for several terms, whose names are too long for a line, and without a
 * reward.
 */
function rewardName(settings: RunSettings): string | null {
  const scale = rewardScale((path) => getPath(settings, path));
  if (scale === null) return null;
  return scale.terms === 1 ? scale.label : 'weighted sum';
}

/** Live progress. Each frame reads it again. */
export interface LiveProgress {
  /** The experiment's name, or the run's. */
  readonly title: string;
  /** A sentence about the work ahead. Null if the counts of its runs are enough. */
  readonly opening: string | null;
  /** The runs in a phase, in the order in which they will run. */
  names(phase: Phase): readonly string[];
  /** By name. */
  readonly running: ReadonlyMap<string, RunInProgress>;
}

const WHILE_IT_RUNS =
  'Watch them in a browser: editrl dashboard. Ctrl-C saves a checkpoint. The same command continues.';

/** Progress of a run and its parents, which run one after another. */
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
    return names.length < 2 ? null : `${names.length} runs, one after another: ${names.join(', ')}\n${WHILE_IT_RUNS}`;
  }

  names(phase: Phase): readonly string[] {
    return [...this.#phases].flatMap(([name, is]) => (is === phase ? [name] : []));
  }

  begin(config: LoadedConfig): RunInProgress {
    const run = new RunInProgress(config);
    this.#phases.set(run.name, 'running');
    this.running.set(run.name, run);
    return run;
  }

  end(name: string, phase: Phase): void {
    this.#phases.set(name, phase);
    this.running.delete(name);
  }
}
