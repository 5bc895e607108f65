import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { DataError } from '../../src/core/errors.js';
import type { EditSample } from '../../src/data/types.js';
import { SPECIAL } from '../../src/train/policies/tokens/emu3.js';
import { ImageEditTask, type EditPrompt } from '../../src/recipes/image_edit_tokens/task.js';
import type { TokenAnswer } from '../../src/train/policies/tokens/batch.js';
import type { TokenSampling } from '../../src/train/policies/tokens/sampling.js';
import { editLabels, labeledAnswer } from '../../src/recipes/image_edit_tokens/open.js';
import { openPolicy } from '../../src/recipes/image_edit_tokens/open.js';
import { soloGroup } from '../../src/core/group/process_group.js';
import { scheduleOf } from '../../src/train/update.js';
import { SupervisedTraining } from '../../src/train/supervised.js';
import { tinyDatalist } from '../../src/data/tiny/dataset.js';
import { learnerOf } from './policies/small_lesson.js';
import { makeSmallWorld, smallSettings, type SmallWorld } from '../recipes/image_edit_tokens/small_world.js';

const root = mkdtempSync(join(tmpdir(), 'supervised-'));
let world: SmallWorld;
beforeAll(async () => {
  world = await makeSmallWorld(root);
});
afterAll(() => rmSync(root, { recursive: true }));

const list = (split: 'train' | 'prompts' | 'validation'): { path: string }[] => [
  { path: tinyDatalist(join(root, 'tiny'), 's', split) },
];

function open(sft: Record<string, unknown>) {
  const settings = smallSettings(
    { config: { ...world.config, algorithm: {} } },
    {
      algorithm: { type: 'sft', sft: { batch_size: 4, ...sft } },
      data: { train: list('train') },
      policy: { assistant_prefill: SPECIAL.imageStart },
    },
  );
  const task = ImageEditTask.open(settings, () => '');
  const policy = openPolicy(settings, task, { group: soloGroup(), resolveRun: () => '' });
  const { algorithm, validation } = settings;
  if (algorithm.type !== 'sft') throw new Error(algorithm.type);
  const training = new SupervisedTraining<EditPrompt, TokenAnswer, TokenSampling>({
    policy,
    schedule: scheduleOf(settings),
    sft: algorithm.sft,
    ...editLabels(task, algorithm.sft, validation.prompts),
    heldOut: null,
    dispose: async () => {
      await policy.dispose();
      await task.dispose();
    },
  });
  return { task, policy, training };
}

/** Weighted mean of -log p over answer tokens, with weights from their meaning. */
async function expectedLoss(
  { task, policy: { model } }: ReturnType<typeof open>,
  samples: readonly EditSample[],
  weigh: (id: number, isChanged: boolean, isText: boolean) => number,
): Promise<number> {
  const learner = learnerOf(model, { microBatch: 1 });
  const groups = await Promise.all(
    samples.map(async (sample) => ({
      prompt: await task.promptOf(sample),
      answers: [{ ids: await labeledAnswer(task, sample) }],
    })),
  );
  const statistics = await learner.statistics(groups, model.weights);
  await learner.dispose();
  let [sum, total] = [0, 0];
  samples.forEach((sample, i) => {
    const { ids } = groups[i].answers[0];
    const codes = sample.source.codes;
    let vision = 0;
    let inImage = groups[i].prompt.tokens.imageOpen;
    ids.forEach((id, t) => {
      inImage ||= id === task.space.special.imageStart;
      const isVision = task.space.isVision(id);
      const isChanged = isVision && codes[vision++] !== id - task.space.visionStart;
      const w = weigh(id, isChanged, !inImage);
      sum -= w * statistics[i][0].logProbs[t];
      total += w;
    });
  });
  return sum / total;
}

describe('supervised training', () => {
  it('takes the mean over tokens, and from the set step on weighs changed vision tokens more', async () => {
    const made = open({ changed_token_weight: 3, changed_token_weight_after_steps: 1 });
    const batch = (first: number): EditSample[] => [0, 1, 2, 3].map((i) => made.task.trainingSample(first + i));
    const plain = await expectedLoss(made, batch(0), () => 1);
    const changed = await expectedLoss(made, batch(0), (_id, isChanged) => (isChanged ? 3 : 1));
    expect(Math.abs(changed - plain)).toBeGreaterThan(1e-3);
    expect((await made.training.step(1))['policy/loss']).toBeCloseTo(plain, 4);
    const weighted = await expectedLoss(made, batch(4), (_id, isChanged) => (isChanged ? 3 : 1));
    expect((await made.training.step(2))['policy/loss']).toBeCloseTo(weighted, 4);
    await made.training.dispose();
  });

  it('measures the held-out loss, and stops when it has been flat for long enough', async () => {
    const made = open({ patience: 2, min_delta: 100 });
    const before = await made.training.evaluate(0, false);
    const held = Array.from({ length: 4 }, (_, i) => made.task.data.validation[0].read(i));
    expect(before['validation/loss']).toBeCloseTo(await expectedLoss(made, held, () => 1), 4);
    for (let iteration = 1; iteration <= 3; iteration++) {
      await made.training.step(iteration);
      const { 'validation/loss': loss } = await made.training.evaluate(iteration, false);
      expect(loss).toBeLessThan(before['validation/loss']);
      expect(made.training.shouldStop() !== null).toBe(iteration === 3);
    }
    await made.training.dispose();
  });

  it('needs labels', async () => {
    const made = open({});
    const prompts = smallSettings(world, { data: { train: list('prompts') } });
    const unlabelled = ImageEditTask.open(prompts, () => '');
    await expect(labeledAnswer(made.task, unlabelled.trainingSample(0))).rejects.toThrow(DataError);
    await made.training.dispose();
  });
});
