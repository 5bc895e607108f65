/**
 * What prevents runs, as far as this machine's files tell, found before anything starts: otherwise it would only come up after their parents were
 * trained. Writes nothing and uses no network.
 */
import { loadingOnce, type LoadedConfig, type loadReferenced } from '../../config/load.js';
import { ConfigError, DataError, EditrlError, printable } from '../../core/errors.js';
import { checkChanges } from '../../run/claim/claim.js';
import { isTrainable } from '../../config/recipes.js';
import { rewardOf } from '../../recipes/settings.js';
import { changedFrom } from '../../run/claim/claim_request.js';
import { RunPaths } from '../../run/paths.js';
import { readRecord } from '../../run/record.js';
import { isDone, readState } from '../../run/state.js';
import { chainOf } from '../chain.js';
import { detectDevices, gibibytes, type Devices } from '../machine/devices.js';
import { checkpointSpace, type FreeSpace } from '../machine/disk.js';
import { memoryOf, shapesOf } from '../machine/memory.js';
import type { AskJudge, RewardTrials } from '../reward/trial.js';
import { checksFor, takesMemoryHere } from './checks.js';
import { lazy, type Obstacle } from './obstacle.js';
import { examsOf } from '../../run/exams.js';
import { summaryOf } from '../../run/report/exam.js';
import { openView } from '../live/view.js';
import { HubModels } from '../models/hub.js';
import { wantedModels } from '../models/wanted.js';
import { AnswerRoomChecks } from './answer_room.js';

/** Maximum number of problems reported at once. */
const MOST_SHOWN = 12;

export interface PreflightOptions {
  /** Runs that start over, though they may be finished. */
  readonly anew?: ReadonlySet<LoadedConfig>;
  /** Results of earlier checks, which are not repeated; it grows. */
  readonly seen?: Map<string, EditrlError | null>;
  /** This machine's devices; queried only if a run is not finished, and then its memory is checked too. */
  readonly devices?: () => Devices;
  /** How much can be written where; default: what the disk says. */
  readonly freeSpace?: FreeSpace;
}

/**
 * What prevents some runs, each of which may start from others of them; empty if they can start. What several runs need is checked once and reported
 * for the first of them. A finished run needs nothing, unless it is one of `anew`. Does not check whether folders belong to these runs: see
 * `changedRuns`.
 */
export async function fileObstacles(
  runs: readonly LoadedConfig[],
  { anew = new Set(), seen = new Map(), devices, freeSpace }: PreflightOptions = {},
): Promise<Obstacle[]> {
  const { openRecipeOf: recipe } = await import('../../recipes/open.js');
  const made = new Map(runs.map(({ settings }) => [settings.run_name, settings]));
  const told = new Set<string>();
  const memory = lazy(() => (devices === undefined ? null : memoryOf(made, devices())));
  const left = unfinished(runs, anew);
  const ahead = left.map((config) => ({ settings: config.settings, from: anew.has(config) ? 0 : reached(config) }));
  const shapeOf = shapesOf(made);
  const space = checkpointSpace(ahead, shapeOf);
  return left.flatMap((config) => {
    const { run_name } = config.settings;
    const startsOver = anew.has(config);
    const looks = checksFor({ config, startsOver, made, shapeOf, recipe, space, freeSpace, devices, memory });
    return looks.flatMap(([what, look]): Obstacle[] => {
      if (told.has(what)) return [];
      told.add(what);
      const error = seen.has(what) ? seen.get(what) : errorOf(look);
      seen.set(what, error ?? null);
      if (!error) return [];
      // Several checks of one file may find the same problem.
      const text = `${run_name} ${error.toText()}`;
      if (told.has(text)) return [];
      told.add(text);
      return [{ run: run_name, error }];
    });
  });
}

/** Further checks of `findObstacles` besides the permanent ones. */
export interface PreflightCheckOptions extends PreflightOptions {
  /** The runs whose folders have to be their own; default: all. */
  readonly claimed?: readonly LoadedConfig[];
  /** Results of earlier reward trials, for checking runs one after another. */
  readonly trials?: RewardTrials;
  /** Where judges are asked; absent: rewards that ask anybody are not tried. */
  readonly askJudge?: AskJudge;
}

/**
 * Everything that prevents some runs on this machine: what `check`, `plan`, `run` and `sweep` report before anything starts. A finished run
 * whose folder was made with other settings is checked like one that has to be trained.
 */
export async function findObstacles(
  runs: readonly LoadedConfig[],
  { claimed = runs, trials, askJudge, ...looking }: PreflightCheckOptions = {},
): Promise<Obstacle[]> {
  const claims = changedRuns(claimed);
  const changed = runs.filter(({ settings }) => claims.some(({ run }) => run === settings.run_name));
  const anew = new Set([...(looking.anew ?? []), ...changed]);
  const found = [...claims, ...(await fileObstacles(runs, { ...looking, anew }))];
  const { RewardTrials: Trials } = await import('../reward/trial.js');
  const tried = await (trials ?? new Trials(askJudge)).of(unfinished(runs, anew));
  const told = new Set(found.map(({ error }) => error.toText()));
  for (const one of tried) {
    // A dataset with broken rows would be reported once more, in other words.
    const again =
      one.error instanceof DataError && found.some(({ run, error }) => run === one.run && error instanceof DataError);
    if (again || told.has(one.error.toText())) continue;
    told.add(one.error.toText());
    found.push(one);
  }
  return found;
}

/** Which runs may not fit into the memory that is free now, though they are not refused; one sentence for all that lack the same. */
export function memoryWarnings(
  runs: readonly LoadedConfig[],
  { anew = new Set(), devices }: PreflightOptions,
): string[] {
  const left = unfinished(runs, anew).filter(({ settings }) => takesMemoryHere(settings));
  if (devices === undefined || left.length === 0) return [];
  const memory = memoryOf(new Map(runs.map(({ settings }) => [settings.run_name, settings])), devices());
  const tight = new Map<string, string[]>();
  for (const { settings } of left) {
    const { verdict } = memory(settings);
    if (verdict === null || verdict.fits) continue;
    const { neededBytes, freeBytes, advice } = verdict;
    const text = `estimated to need ${gibibytes(neededBytes)} of memory, and ${gibibytes(freeBytes)} are free: ${advice ?? ''}`;
    tight.set(text, [...(tight.get(text) ?? []), settings.run_name]);
  }
  return [...tight].map(([text, [first, ...others]]) =>
    others.length === 0 ? `${first} is ${text}` : `${first} and ${others.length} more are each ${text}`,
  );
}

/** Warnings about the models that runs start from, one sentence each, once every check has passed. */
export async function modelWarnings(runs: readonly LoadedConfig[]): Promise<string[]> {
  const { openRecipeOf } = await import('../../recipes/open.js');
  const shapeOf = shapesOf(new Map(runs.map(({ settings }) => [settings.run_name, settings])));
  const remarks = runs.flatMap(({ settings }) =>
    isTrainable(settings) && settings.launch.command === null
      ? openRecipeOf(settings)
          .checks(settings, shapeOf)
          .flatMap(({ remark }) => remark?.() ?? [])
      : [],
  );
  return [...new Set(remarks)];
}

/** The given runs that still have to be trained. */
export function unfinished(runs: readonly LoadedConfig[], anew: ReadonlySet<LoadedConfig> = new Set()): LoadedConfig[] {
  return runs.filter((config) => {
    const { settings } = config;
    return anew.has(config) || !isDone(readState(RunPaths.of(settings)), settings.num_iterations);
  });
}

/** The iteration that a run has reached. */
function reached({ settings }: Pick<LoadedConfig, 'settings'>): number {
  return readState(RunPaths.of(settings))?.iteration ?? 0;
}

/** The runs whose folders contain runs with other settings. */
export function changedRuns(runs: readonly LoadedConfig[]): Obstacle[] {
  return runs.flatMap((config) => {
    const error = errorOf(() => checkClaim(config));
    return error === null ? [] : [{ run: config.settings.run_name, error }];
  });
}

/** Checks configs one after another: what they share, including parents, is evaluated and checked once. */
export class Preflight {
  readonly #looking: PreflightOptions = { seen: new Map(), devices: lazy(() => detectDevices()) };

  #trials: RewardTrials | undefined;

  /** `load` loads the configs that others start from; `askJudge`: where judges are asked, as in `findObstacles`. */
  constructor(
    private readonly load: typeof loadReferenced = loadingOnce(),
    private readonly askJudge?: AskJudge,
  ) {}

  /** What prevents a config's run and its parents. Raises what makes the chain invalid: see `chainOf`. */
  async of(config: LoadedConfig): Promise<Obstacle[]> {
    const { RewardTrials: Trials } = await import('../reward/trial.js');
    this.#trials ??= new Trials(this.askJudge);
    return findObstacles(await this.#chain(config), { ...this.#looking, trials: this.#trials });
  }

  /** The runs of this config's chain that still have to be trained. */
  async toTrain(config: LoadedConfig): Promise<LoadedConfig[]> {
    return unfinished(await this.#chain(config), new Set());
  }

  async #chain(config: LoadedConfig): Promise<LoadedConfig[]> {
    return (await chainOf(config, new Set(), this.load)).map((link) => link.config);
  }
}

/** Raises what prevents runs: the only error, or a ConfigError with all of them. */
export function throwObstacles(all: readonly Obstacle[]): void {
  if (all.length === 0) return;
  if (all.length === 1) throw all[0].error;
  const lines = all.slice(0, MOST_SHOWN).map(({ run, error }) => `${run}: ${error.toText()}`);
  const more = all.length > MOST_SHOWN ? `\nand ${all.length - MOST_SHOWN} more` : '';
  throw new ConfigError(`nothing was started: ${all.length} things are in the way\n${lines.join('\n')}${more}`);
}

function errorOf(look: () => void): EditrlError | null {
  try {
    look();
    return null;
  } catch (error) {
    if (error instanceof EditrlError) return error;
    throw error;
  }
}

function checkClaim(config: LoadedConfig): void {
  const { settings } = config;
  const record = readRecord(RunPaths.of(settings));
  const changes = record === null ? [] : changedFrom(record, config);
  if (changes.length > 0) checkChanges(settings.run_name, changes, config.allowChanges, record?.attempts);
}

/** One sentence for each reward whose latest exam found a fault, or that GRPO would learn little from it. */
export function examWarnings(runs: readonly LoadedConfig[]): string[] {
  const found = new Set<string>();
  for (const { settings } of runs) {
    const reward = rewardOf(settings);
    const exam = reward === null ? undefined : examsOf(settings.base_exp_dir, reward).at(-1);
    if (reward === null || exam === undefined) continue;
    const { teaches, faults, sentences, folder } = summaryOf(exam);
    if ((teaches === 'yes' || teaches === 'unknown') && faults.length === 0) continue;
    found.add(`the exam of the judge '${exam.record.reward.model}' says: ${sentences.join(' ')} (${folder})`);
  }
  return [...found];
}

export interface ReadyOptions extends PreflightCheckOptions {
  /** What fetches models; null for a rehearsal, which fetches nothing. */
  readonly models: Pick<HubModels, 'obstacles' | 'fetch'> | null;
  /** Results of earlier checks of prompts, which are not repeated. */
  readonly rooms?: AnswerRoomChecks;
  /** Receives each warning as one sentence. */
  readonly warn: (warning: string) => void;
}

/**
 * Looks for what prevents runs, fetches the models that they need, checks the prompts by these models, and warns of memory that may be too little.
 * Raises what prevents a run, before any weights are fetched unless only the models tell.
 */
export async function makeReady(
  runs: readonly LoadedConfig[],
  { models, rooms = new AnswerRoomChecks(), warn, ...looking }: ReadyOptions,
): Promise<void> {
  throwObstacles(await findObstacles(runs, looking));
  const left = unfinished(runs, looking.anew);
  if (models !== null) {
    throwObstacles(await models.obstacles(left, looking.anew));
    // The shapes of models of the Hub are known by now, and with them memory and disk space.
    if (left.some(({ settings }) => wantedModels(settings).length > 0)) {
      throwObstacles(await fileObstacles(runs, looking));
    }
    await models.fetch(left, looking.anew);
  }
  const room = await rooms.of(left);
  throwObstacles(room.obstacles);
  const warnings = [
    ...room.warnings,
    ...(await modelWarnings(left)),
    ...memoryWarnings(runs, looking),
    ...examWarnings(runs),
  ];
  for (const warning of warnings) warn(warning);
}

/** The same before jobs are submitted: compute nodes may have no network, but share the cache. Warnings are left to the workers' logs. */
export async function makeReadyToSubmit(runs: readonly LoadedConfig[], looks: PreflightCheckOptions): Promise<void> {
  const view = openView(process.stderr);
  const models = new HubModels({ say: (line) => view.say(printable(line)), busy: (what) => view.busy(what) });
  try {
    await makeReady(runs, { ...looks, models, warn: () => {} });
  } finally {
    view.end();
    await models.close();
  }
}
