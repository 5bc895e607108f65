import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { loadConfig } from '../../src/config/load.js';
import { testFolder } from '../support/folder.js';
import { judgeQuestions, type JudgeQuestions } from '../../src/launch/judge_questions.js';

async function asked(sets: readonly string[] = [], done = 0, file = 'sft_s__rl_s'): Promise<JudgeQuestions | null> {
  const overlays = ['configs/lib/tiny.libsonnet'];
  const { settings } = await loadConfig({ file: `configs/${file}.jsonnet`, overlays, sets });
  return judgeQuestions(settings, done);
}

describe('the questions that a run asks judges', () => {
  it('are two for an answer with VIEScore, in iterations and in sampled and greedy evaluations', async () => {
    // 256 answers; 256 held-out prompts twice; 80 iterations, evaluated before, at 40 and at 80.
    expect(await asked()).toEqual({
      iteration: 512,
      evaluation: 1024,
      left: 80 * 512 + 3 * 1024,
      forecast: 80 * 512 + 3 * 1024,
    });
    expect(await asked([], 60)).toMatchObject({ left: 20 * 512 + 1024 });
    // At 40, at 80, and at 100.
    expect(await asked(['num_iterations=100'], 30)).toMatchObject({ left: 70 * 512 + 3 * 1024 });
    expect(await asked([], 80)).toMatchObject({ left: 0 });
    expect(await asked(['validation.greedy=false'])).toMatchObject({ evaluation: 512 });
  });

  it('are more where a further term is recorded or measured', async () => {
    expect(await asked(['reward.also_compute=["ground_score"]'])).toMatchObject({ iteration: 768, evaluation: 1536 });
    expect(await asked(['validation.measure=ground_score'])).toMatchObject({ iteration: 512, evaluation: 1536 });
  });

  it('are those of a tournament for each group', async () => {
    // 32 groups of 8: three rounds of four meetings in both orders; a held-out answer meets one picture.
    expect(await asked(['reward.mode=pairwise'])).toMatchObject({ iteration: 32 * 24, evaluation: 1024 });
  });

  it('are as many more as groups may be refilled, and held-out sets are there', async () => {
    expect(await asked(['rollout.refill={"rounds": 2}'])).toMatchObject({
      iteration: 3 * 512,
      left: 80 * 3 * 512 + 3 * 1024,
      forecast: 80 * 512 + 3 * 1024,
    });
    const twice = 'data.validation=[{"path": "a"}, {"path": "b"}]';
    expect(await asked([twice])).toMatchObject({ iteration: 512, evaluation: 2048 });
  });

  it('are of no more held-out prompts than a list has', async () => {
    const folder = testFolder('held_out');
    const file = join(folder, 'three.jsonl');
    writeFileSync(file, '{"prompt": "a"}\n\n{"prompt": "b"}\n{"prompt": "c"}');
    const sets = (...paths: readonly string[]): string =>
      `data.validation=${JSON.stringify(paths.map((path) => ({ path })))}`;
    // Three prompts, sampled and greedy, two questions each; a list that is not there counts as long enough.
    expect(await asked([sets(file)])).toMatchObject({ evaluation: 12, left: 80 * 512 + 3 * 12 });
    expect(await asked([sets(file, join(folder, 'none.jsonl'))])).toMatchObject({ evaluation: 12 + 1024 });
    expect(await asked([sets(file), 'validation.prompts=2'])).toMatchObject({ evaluation: 8 });
  });

  it('are none in the iterations of a run that learns from labels, and none at all without a judge', async () => {
    expect(await asked([], 0, 'sft_s')).toMatchObject({ iteration: 0, evaluation: 1024 });
    const { settings } = await loadConfig({
      file: 'configs/text_plain.jsonnet',
      overlays: ['configs/lib/text_tiny.libsonnet'],
      sets: [],
    });
    expect(judgeQuestions(settings, 0)).toBeNull();
  });
});
