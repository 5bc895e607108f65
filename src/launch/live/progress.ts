/** What the view follows: the runs of a sweep, or a run after those that it starts from. */
import type { LoadedConfig } from '../../config/load.js';
import type { ProgressColumn } from '../../run/progress.js';
import { isTrainable } from '../../config/recipes.js';
import { recipeOf } from '../../recipes/settings.js';
import { RunPaths } from '../../run/paths.js';
import { rewardScale } from '../../rewards/score/identity.js';
import { readState } from '../../run/state.js';
import { getPath } from '../../schema/walk.js';
import type { RunSettings } from '../../schema/run.js';
import type { Phase } from '../sweep/schedule.js';

/** A run in progress. */
export interface RunInProgress {
  readonly name: string;
  readonly paths: RunPaths;
  /** The iteration at which it ends, or waits for others. */
  readonly untilIteration: number;
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
export function runInProgress({ settings }: Pick<LoadedConfig, 'settings'>, where = '', until?: number): RunInProgress {
  const { run_name, num_iterations } = settings;
  const paths = RunPaths.of(settings);
  return {
    name: run_name,
    paths,
    untilIteration: until ?? num_iterations,
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
