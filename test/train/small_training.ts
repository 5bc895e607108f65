/** GRPO on the small world, with a scorer of the test's own. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll } from 'vitest';
import { makeSmallWorld, smallSettings, type SmallWorld } from '../recipes/image_edit_tokens/small_world.js';
import type { ImageEditSettings } from '../../src/recipes/image_edit_tokens/settings.js';
import { InternalError } from '../../src/core/errors.js';
import { RandomStream } from '../../src/core/random.js';
import { soloGroup, type ProcessGroup } from '../../src/core/group/process_group.js';
import type { TokenAnswer } from '../../src/train/policies/tokens/batch.js';
import type { Emu3Prompt } from '../../src/train/policies/tokens/emu3.js';
import { heldOutSampling, samplingOf, type TokenSampling } from '../../src/train/policies/tokens/sampling.js';
import type { LanguagePolicy } from '../../src/train/policies/tokens/language_policy.js';
import type { TokenPolicy } from '../../src/train/policies/tokens/policy.js';
import { openPolicy } from '../../src/recipes/image_edit_tokens/open.js';
import { ImageEditTask, type EditPrompt } from '../../src/recipes/image_edit_tokens/task.js';
import { trainedTokens } from '../../src/recipes/image_edit_tokens/open.js';
import type { JudgeItem, Outcome } from '../../src/rewards/score/types.js';
import type { ContactSheetRow } from '../../src/run/report/contact_sheet.js';
import type { Scorer } from '../../src/train/scoring/scorer.js';
import { chunkOf } from '../../src/config/schema/training.js';
import type { Collector, TrainBatch } from '../../src/train/batch.js';
import type { GroupAdvantages } from '../../src/train/advantages.js';
import { hackObserver, type HackAlarms } from '../../src/train/observers/hack_alarms.js';
import { GrpoTraining, type GrpoDeps } from '../../src/train/grpo.js';
import { HeldOut, type HeldOutDeps } from '../../src/train/held_out.js';
import { scheduleOf } from '../../src/train/update.js';

type Deps = GrpoDeps<EditPrompt, TokenAnswer, TokenSampling>;

/** What rank 0 is given to record. */
export type IterationRecord<P, A> = TrainBatch<P, A> & { readonly advantages: readonly GroupAdvantages[] };

export interface SmallTraining {
  readonly training: GrpoTraining<EditPrompt, TokenAnswer, TokenSampling>;
  readonly heldOut: HeldOut<EditPrompt, TokenAnswer, TokenSampling>;
  readonly task: ImageEditTask;
  readonly policy: TokenPolicy<Emu3Prompt>;
  readonly records: IterationRecord<EditPrompt, TokenAnswer>[];
  readonly alarms: string[];
  readonly shown: (readonly ContactSheetRow[])[];
}

export interface SmallTrainingMore extends Partial<Pick<Deps, 'aheadUntil'>> {
  readonly hackAlarms?: HackAlarms;
  /** What trains in place of the policy, which it may be given to. */
  readonly through?: (policy: TokenPolicy<Emu3Prompt>) => LanguagePolicy<Emu3Prompt>;
  readonly recordHeldOut?: HeldOutDeps<EditPrompt, TokenAnswer, TokenSampling>['record'];
}

export function smallTraining(
  settings: ImageEditSettings,
  scorer: Scorer,
  group: ProcessGroup = soloGroup(),
  { recordHeldOut = () => {}, through = (policy) => policy, hackAlarms, ...more }: SmallTrainingMore = {},
): SmallTraining {
  const { algorithm, rollout, seed, validation, track } = settings;
  if (algorithm.type !== 'grpo') throw new InternalError('GRPO of a supervised config');
  const task = ImageEditTask.open(settings, () => '');
  const policy = openPolicy(settings, task, { group, resolveRun: () => '' });
  const records: IterationRecord<EditPrompt, TokenAnswer>[] = [];
  const alarms: string[] = [];
  const shown: (readonly ContactSheetRow[])[] = [];
  const collector: Collector<EditPrompt, TokenAnswer, TokenSampling> = { task, policy: through(policy), scorer, group };
  const heldOut = new HeldOut({
    ...collector,
    validation,
    samplings: heldOutSampling(settings),
    weights: 'current',
    longestAnswer: rollout.max_response_tokens,
    chunk: chunkOf(rollout),
    show: async (_iteration, rows) => void shown.push(rows),
    record: recordHeldOut,
  });
  const training = new GrpoTraining({
    ...collector,
    heldOut,
    algorithm,
    rollout,
    seed,
    how: () => samplingOf(settings),
    longestAnswer: rollout.max_response_tokens,
    schedule: scheduleOf(settings),
    trained: (iteration, _prompt, answer) => trainedTokens(iteration, answer, algorithm.train_tokens, task.space),
    mismatchAlarm: 1e-3,
    keepsImages: (iteration) => iteration % track.log_episodes_every_n_iterations === 0,
    record: async (batch, advantages) => void records.push({ ...batch, advantages }),
    alarm: (message) => alarms.push(message),
    observers: [hackObserver({ most: 10, besides: [] }, hackAlarms ?? null)],
    ...more,
  });
  return { training, heldOut, task, policy, records, alarms, shown };
}

export const scored = (value: number): Outcome => ({
  kind: 'scored',
  value,
  normalised: value / 10,
  parts: { a: value },
});
export const unscored: Outcome = { kind: 'unscored', reason: 'timeout', detail: 'late', parts: {} };
export const zero: Outcome = { kind: 'zero_by_rule', reason: 'undecodable', parts: {} };

/** Scores each item by its key alone, and settles for that. */
export function scorerOf(score: (key: string) => Outcome): Scorer {
  return {
    begin: async (items: readonly JudgeItem[]) => items.map(({ key }) => score(key)),
    settle: async (_items, outcomes) => [...outcomes],
    close: async () => {},
  };
}

/** A reward in [0, 10) that depends on the episode's name alone. */
export function rewardByName(key: string): number {
  return 10 * new RandomStream('reward', key).uniform();
}

/** Makes trainings on a small world, and disposes of them after the tests of the file. */
export function smallTrainings(prefix: string) {
  const root = mkdtempSync(join(tmpdir(), prefix));
  let world: SmallWorld;
  const open: SmallTraining[] = [];
  beforeAll(async () => {
    world = await makeSmallWorld(root);
  });
  afterAll(async () => {
    await Promise.all(open.map(({ training }) => training.dispose()));
    rmSync(root, { recursive: true });
  });
  return (
    scorer: Scorer,
    changes: Record<string, Record<string, unknown>> = {},
    more: SmallTrainingMore = {},
  ): SmallTraining => {
    const made = smallTraining(smallSettings(world, changes), scorer, soloGroup(), more);
    open.push(made);
    return made;
  };
}
