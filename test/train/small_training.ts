/** GRPO on the small world, with a scorer of the test's own. */
import { RandomStream } from '../../src/core/random.js';
import type { ImageEditSettings } from '../../src/config/settings.js';
import { Sampler } from '../../src/policies/tokens/rollout.js';
import type { PolicyModel } from '../../src/policies/tokens/model.js';
import type { JudgeItem, Outcome } from '../../src/rewards/types.js';
import type { ContactSheetRow } from '../../src/run/report/contact_sheet.js';
import { ImageEditTask } from '../../src/recipes/image_edit_tokens/task.js';
import { sessionOptions } from '../../src/engines/onnx/session_options.js';
import { GrpoTraining, type GrpoDeps, type IterationRecord } from '../../src/train/grpo.js';
import { HeldOut, type HeldOutDeps } from '../../src/train/held_out.js';
import { TrainState } from '../../src/engines/onnx/trained_weights.js';
import { scheduleOf } from '../../src/train/schedule.js';
import { soloGroup, type ProcessGroup } from '../../src/group/process_group.js';
import type { Scorer } from '../../src/scoring/scorer.js';

export interface SmallTraining {
  readonly training: GrpoTraining;
  readonly heldOut: HeldOut;
  readonly task: ImageEditTask;
  readonly model: PolicyModel;
  readonly records: IterationRecord[];
  readonly alarms: string[];
  readonly shown: (readonly ContactSheetRow[])[];
}

export interface SmallTrainingMore extends Pick<GrpoDeps, 'hackAlarms' | 'heldOutJudge'> {
  readonly recordHeldOut?: NonNullable<HeldOutDeps['record']>;
}

export function smallTraining(
  settings: ImageEditSettings,
  scorer: Scorer,
  group: ProcessGroup = soloGroup(),
  { recordHeldOut = () => {}, ...more }: SmallTrainingMore = {},
): SmallTraining {
  const task = ImageEditTask.open(settings, (run) => run);
  const model = task.startingPolicy();
  const { policy } = settings;
  const sampler = new Sampler(
    model,
    policy.emu3_use_logit_processor,
    policy.separate_language_and_vision_vocabs,
    sessionOptions(policy.engine),
  );
  const records: IterationRecord[] = [];
  const alarms: string[] = [];
  const shown: (readonly ContactSheetRow[])[] = [];
  const heldOut = new HeldOut({
    settings,
    task,
    sampler,
    scorer,
    group,
    show: async (_iteration, rows) => void shown.push(rows),
    record: recordHeldOut,
  });
  const training = new GrpoTraining({
    settings,
    task,
    policy: new TrainState(model, settings.optimizer, scheduleOf(settings), task.tokenizer.json),
    reference: new Map([...model.weights].map(([name, { shape, data }]) => [name, { shape, data: data.slice() }])),
    sampler,
    scorer,
    heldOut,
    group,
    record: async (record) => void records.push(record),
    alarm: (message) => alarms.push(message),
    ...more,
  });
  return { training, heldOut, task, model, records, alarms, shown };
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
