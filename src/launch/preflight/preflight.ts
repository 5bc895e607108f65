/**
 * Checks runs before anything starts, using the files and devices of this machine. Otherwise, some problems would show
 * only after the parents were trained. The checks write nothing and use no network.
 */
import { basename } from 'node:path';
import { getPath, isObject } from '../../core/schema/walk.js';
import { measuredReward } from '../../rewards/schema/reward.js';
import { chosenTerms } from '../../rewards/score/choice.js';
import type { LoadedConfig } from '../../config/load.js';
import { ConfigError, DataError, RunError, type EditrlError } from '../../core/errors.js';
import { checkChanges } from '../../run/claim/claim.js';
import { isTrainable } from '../../config/recipes.js';
import { openRecipeOf } from '../../recipes/open.js';
import { rewardOf } from '../../recipes/settings.js';
import { changedFrom } from '../../run/claim/claim_request.js';
import { RunPaths } from '../../run/paths.js';
import { readRecord } from '../../run/record.js';
import { isDone, readState } from '../../run/state.js';
import { gibibytes, takesMemoryHere, type Devices } from '../machine/devices.js';
import { checkpointSpace, type FreeSpace } from '../machine/disk.js';
import type { Memory } from '../machine/memory.js';
import { memoryOf, type MemoryModel } from '../machine/estimate.js';
import { shapesOf } from '../machine/shapes.js';
import { RewardTrials, type AskJudge } from '../reward/trial.js';
import { checksFor, type NamedCheck } from './checks.js';
import { exitCodeOf, failureOf, lazy, type Obstacle } from './obstacle.js';
import { answeringModel, examsOf } from '../../run/exams.js';
import { summaryOf } from '../../run/report/exam.js';
import type { HubModels } from '../models/hub.js';
import { wantedModels } from '../models/wanted.js';
import { AnswerRoomChecks } from './answer_room.js';

/** Maximum number of problems reported at once. */
const MAX_SHOWN = 12;

export interface CheckOptions {
  /** Runs that start over, though they may be finished. */
  readonly startOver?: ReadonlySet<LoadedConfig>;
  /** The runs whose folders must have the same settings. Default: all. */
  readonly claimed?: readonly LoadedConfig[];
  /** This machine's devices. Without them, devices and memory are not checked. */
  readonly devices?: () => Devices;
  /** This machine's memory. Default: the system's report. */
  readonly machine?: Memory;
  /** The free space of a folder. Default: the disk's report. */
  readonly freeSpace?: FreeSpace;
}

/** The result of a check. */
export interface Findings {
  readonly obstacles: readonly Obstacle[];
  /** The runs that still have to be trained. */
  readonly left: readonly LoadedConfig[];
  /** The memory that runs need. Null without devices. */
  readonly memory: () => MemoryModel | null;
  /** Warnings about runs without obstacles, one sentence each. Reads the weights of models. */
  readonly warnings: () => string[];
}

/** Checks runs. A check that several runs share is made once, over all calls. */
export class Preflight {
  readonly #results = new Map<string, EditrlError | null>();
  readonly #trials: RewardTrials;
  readonly #rooms = new AnswerRoomChecks();

  /** `askJudge`: how judges are queried. Without it, terms that query a judge or a server are not tried. */
  constructor(askJudge?: AskJudge) {
    this.#trials = new RewardTrials(askJudge);
  }

  /** Checks runs, each of which may start from others of them. A finished run needs nothing, unless it starts over or its settings changed. */
  async check(runs: readonly LoadedConfig[], options: CheckOptions = {}): Promise<Findings> {
    const { claimed = runs, startOver = new Set(), devices, machine, freeSpace } = options;
    const changed = await changedRuns(claimed);
    const isChanged = ({ settings }: LoadedConfig): boolean => changed.some(({ run }) => run === settings.run_name);
    const again = new Set([...startOver, ...runs.filter(isChanged)]);
    const left = unfinished(runs, again);
    const made = new Map(runs.map(({ settings }) => [settings.run_name, settings]));
    const shapeOf = shapesOf(made);
    const memory = lazy(() => (devices === undefined ? null : memoryOf(shapeOf, devices(), machine)));
    const space = checkpointSpace(
      left.map((config) => ({ settings: config.settings, from: again.has(config) ? 0 : reached(config) })),
      shapeOf,
    );
    const facts = { made, shapeOf, space, freeSpace, devices, memory };
    const found = [...changed];
    const add = (obstacle: Obstacle): void => {
      // Several checks of one file may find the same problem.
      if (!found.some(({ error }) => error.toText() === obstacle.error.toText())) found.push(obstacle);
    };
    const checked = new Set<string>();
    for (const config of left) {
      for (const check of checksFor({ ...facts, config, startsOver: again.has(config) })) {
        if (checked.has(check[0])) continue;
        checked.add(check[0]);
        const error = await this.#resultOf(check);
        if (error !== null) add({ run: config.settings.run_name, error });
      }
    }
    for (const obstacle of await this.#trials.of(left)) {
      // Broken rows would be reported twice.
      const isRepeated = found.some(({ run, error }) => run === obstacle.run && error instanceof DataError);
      if (!(isRepeated && obstacle.error instanceof DataError)) add(obstacle);
    }
    const room = await this.#rooms.of(
      left.filter(({ settings }) => !found.some(({ run }) => run === settings.run_name)),
    );
    room.obstacles.forEach(add);
    const warnings = (): string[] => [
      ...room.warnings,
      ...(found.length > 0
        ? []
        : [
            ...modelWarnings(left, shapeOf),
            ...memoryWarnings(left, memory()),
            ...examWarnings(runs),
            ...selfJudgedWarnings(runs),
          ]),
    ];
    return { obstacles: found, left, memory, warnings };
  }

  /**
   * Checks runs, downloads their Hub models, and warns. Raises problems before any weights are downloaded. `models`: null for a dry run, which downloads
   * nothing.
   */
  async prepare(runs: readonly LoadedConfig[], { models, warn, ...options }: PrepareOptions): Promise<Findings> {
    let findings = await this.check(runs, options);
    throwObstacles(findings.obstacles);
    const { left } = findings;
    if (models !== null && left.some(({ settings }) => wantedModels(settings).length > 0)) {
      throwObstacles(await models.obstacles(left, options.startOver));
      // The files that describe the models are in the cache now.
      this.#results.clear();
      findings = await this.check(runs, options);
      throwObstacles(findings.obstacles);
      await models.fetch(left, options.startOver);
    }
    findings.warnings().forEach(warn);
    return findings;
  }

  async #resultOf([name, run]: NamedCheck): Promise<EditrlError | null> {
    const known = this.#results.get(name);
    if (known !== undefined) return known;
    const error = await failureOf(async () => run());
    this.#results.set(name, error);
    return error;
  }
}

export interface PrepareOptions extends CheckOptions {
  readonly models: Pick<HubModels, 'obstacles' | 'fetch'> | null;
  /** Receives each warning as one sentence. */
  readonly warn: (warning: string) => void;
}

/** Runs that may not fit into the memory that is free now, though they are not rejected. One sentence for all with the same need. */
function memoryWarnings(left: readonly LoadedConfig[], memory: MemoryModel | null): string[] {
  const tight = new Map<string, string[]>();
  for (const { settings } of left.filter((config) => takesMemoryHere(config.settings))) {
    const verdict = memory?.(settings).verdict() ?? null;
    if (verdict === null || verdict.fits) continue;
    const { neededBytes, freeBytes, advice } = verdict;
    const text = `estimated to need ${gibibytes(neededBytes)} of memory, and ${gibibytes(freeBytes)} are free: ${advice ?? ''}`;
    tight.set(text, [...(tight.get(text) ?? []), settings.run_name]);
  }
  return [...tight].map(([text, [first, ...others]]) =>
    others.length === 0 ? `${first} is ${text}` : `${first} and ${others.length} more are each ${text}`,
  );
}

/** Warnings about the models that runs start from. */
function modelWarnings(left: readonly LoadedConfig[], shapeOf: ReturnType<typeof shapesOf>): string[] {
  const remarks = left.flatMap(({ settings }) =>
    isTrainable(settings) && settings.launch.command === null
      ? openRecipeOf(settings)
          .checks(settings, shapeOf)
          .flatMap(({ remark }) => remark?.() ?? [])
      : [],
  );
  return [...new Set(remarks)];
}

/** The given runs that still have to be trained. */
function unfinished(runs: readonly LoadedConfig[], again: ReadonlySet<LoadedConfig>): LoadedConfig[] {
  return runs.filter((config) => {
    const { settings } = config;
    return again.has(config) || !isDone(readState(RunPaths.of(settings)), settings.num_iterations);
  });
}

/** The iteration that a run has reached. */
function reached({ settings }: LoadedConfig): number {
  return readState(RunPaths.of(settings))?.iteration ?? 0;
}

/** The runs whose folders contain runs with other settings. */
async function changedRuns(runs: readonly LoadedConfig[]): Promise<Obstacle[]> {
  const found: Obstacle[] = [];
  for (const config of runs) {
    const { run_name: run } = config.settings;
    const record = readRecord(RunPaths.of(config.settings));
    const changes = record === null ? [] : changedFrom(record, config);
    if (changes.length === 0) continue;
    const error = await failureOf(async () => checkChanges(run, changes, config.allowChanges, record?.attempts));
    if (error !== null) found.push({ run, error });
  }
  return found;
}

/** Raises the problems of runs: a single error, or one error for all of them, which is a ConfigError if a config must change. */
export function throwObstacles(all: readonly Obstacle[]): void {
  if (all.length === 0) return;
  if (all.length === 1) throw all[0].error;
  const lines = all.slice(0, MAX_SHOWN).map(({ run, error }) => `${run}: ${error.toText()}`);
  const more = all.length > MAX_SHOWN ? `\nand ${all.length - MAX_SHOWN} more` : '';
  const message = `${all.length} problems found; nothing was started\n${lines.join('\n')}${more}`;
  throw exitCodeOf(all) === 2 ? new ConfigError(message) : new RunError(message);
}

/** One sentence for each reward whose latest exam failed, or that would give GRPO little to learn from. */
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

/** One sentence for each judge that grades a policy which starts from the same model. */
export function selfJudgedWarnings(runs: readonly LoadedConfig[]): string[] {
  const found = new Set<string>();
  for (const { settings } of runs) {
    const reward = rewardOf(settings);
    if (reward === null) continue;
    const policy = shortName(getPath(settings, 'policy.model'));
    const asking = chosenTerms(measuredReward({ validation: {}, ...settings, reward })).filter(
      ({ kind }) => kind.needs.judge,
    );
    const models = asking.map(({ fields: { model } }) => (typeof model === 'string' ? model : answeringModel(reward)));
    for (const model of new Set(models)) {
      if (policy === null || policy !== shortName(model)) continue;
      found.add(
        `the judge '${model}' is the model that the policy starts from: a model prefers its own answers, so measure with another judge, too`,
      );
    }
  }
  return [...found];
}

/** The last part of a model's name or path, in lower case. Null for anything else. */
function shortName(model: unknown): string | null {
  const name = isObject(model) ? model['hub'] : model;
  return typeof name === 'string' ? basename(name).toLowerCase() : null;
}
