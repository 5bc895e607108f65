/** The terms that ask in their own words, at the rule judge of the tiny world. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { JudgeClient } from '../../../src/rewards/judge/client.js';
import { MemoryJudgementStore } from '../judge/memory_store.js';
import { alignQuality } from '../../../src/rewards/terms/align_quality.js';
import { logitExpectation } from '../../../src/rewards/terms/logit_expectation.js';
import { pairwise } from '../../../src/rewards/terms/pairwise.js';
import { scoreChunk } from '../../../src/rewards/score/iteration.js';
import type { JudgeItem } from '../../../src/rewards/score/types.js';
import { instructionOf } from '../../../src/data/tiny/edits.js';
import { JUDGE_MODEL, startJudge, type RunningJudge } from '../../../src/rewards/rule_judge/server.js';
import { DEFAULT_SIGN, drawSignScene, drawStyledSign } from '../../../src/data/tiny/sign_scenes.js';
import { DEFAULT_GEOMETRY } from '../../../src/data/tiny/world.js';
import { blank, example, sourceOf, truthOf } from '../../data/tiny/scene_pictures.js';
import { testServices } from './term_services.js';

let running: RunningJudge;
let client: JudgeClient;
beforeAll(async () => {
  running = await startJudge({ port: 0, host: '127.0.0.1' });
  client = new JudgeClient({ endpoints: [running.url], model: JUDGE_MODEL, store: new MemoryJudgementStore() });
});
afterAll(async () => {
  await client.close();
  await running.close();
});

const plan = example(3);
function item(edited: JudgeItem['edited'], key: string): JudgeItem {
  const instruction = instructionOf(plan.edit, DEFAULT_GEOMETRY);
  return { key, instruction, source: sourceOf(plan), edited, truth: null, finished: true };
}

describe('the rule judge', () => {
  it('answers logit_expectation with the probabilities of its digit', async () => {
    const settings = z.strictObject(logitExpectation.fields).parse({});
    const term = await logitExpectation.create(settings, testServices(client));
    const right = await term.score(item(truthOf(plan), '0/0/0'));
    expect(right).toMatchObject({ kind: 'scored' });
    expect(right.parts['logit_expectation/expected_digit']).toBeCloseTo(5, 6);
    expect(right.parts['logit_expectation/coverage']).toBeCloseTo(0.98, 6);
    const copied = await term.score(item(sourceOf(plan), '0/0/1'));
    expect(copied).toMatchObject({ kind: 'scored', value: 0 });
  });

  it('answers align_quality with alignment and quality', async () => {
    const settings = z.strictObject(alignQuality.fields).parse({});
    const term = await alignQuality.create(settings, testServices(client));
    const right = await term.score(item(truthOf(plan), '0/0/0'));
    expect(right).toMatchObject({ kind: 'scored', value: 10 });
    const copied = await term.score(item(sourceOf(plan), '0/0/1'));
    expect(copied.parts).toMatchObject({ 'align_quality/alignment': 0, 'align_quality/quality': 10 });
  });

  it('finds the better one of two edits, in whichever order, and neither of equals', async () => {
    const settings = z.strictObject(pairwise.fields).parse({ rounds: 'all' });
    const term = await pairwise.create(settings, testServices(client));
    const [right, copied] = [truthOf(plan), sourceOf(plan)];
    const found = await scoreChunk(term, [item(copied, '1/0/0'), item(right, '1/0/1'), item(blank(128), '1/0/2')]);
    expect(found.map(({ parts }) => parts['pairwise/contradicted'])).toEqual([0, 0, 0]);
    const [ofCopy, ofRight, ofBlank] = found.map((outcome) => (outcome.kind === 'scored' ? outcome.value : NaN));
    expect(ofRight).toBeGreaterThan(ofCopy);
    // A copy and a gray image are worth 0 alike.
    expect(ofCopy).toBeCloseTo(ofBlank, 12);
  });

  it('answers align_quality on signs, with their source and without', async () => {
    const sizes = { labelled: 1, train: 1, validation: 1 };
    const scene = drawSignScene(
      { seed: 3, geometry: DEFAULT_SIGN, letters: 3, labelledInk: [1, 1], sizes },
      'train',
      0,
    );
    const { source, ref } = scene.images;
    const blank = drawStyledSign('', scene, DEFAULT_SIGN);
    const settings = z.strictObject(alignQuality.fields).parse({});
    const term = await alignQuality.create(settings, testServices(client));
    const scored = (edited: JudgeItem['edited'], before: JudgeItem['source'], key: string) =>
      term.score({ ...item(edited, key), instruction: scene.prompt, source: before });
    expect(await scored(ref, null, '0/1/0')).toMatchObject({ kind: 'scored', value: 10 });
    expect(await scored(ref, source, '0/1/1')).toMatchObject({ kind: 'scored', value: 10 });
    expect(await scored(blank, null, '0/1/2')).toMatchObject({ kind: 'scored', value: 0 });
  });

  it.each([
    [{ top_logprobs: 5 }, /must be set to true/],
    [{ logprobs: true, top_logprobs: 21 }, /max allowed: 20/],
  ])('rejects %j as vLLM does', async (fields, message) => {
    const messages = [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'data:image/png;base64,' } }] }];
    const body = JSON.stringify({ model: JUDGE_MODEL, messages, ...fields });
    const response = await fetch(`${running.url}/chat/completions`, { method: 'POST', body });
    expect(response.status).toBe(400);
    expect(await response.text()).toMatch(message);
  });
});
