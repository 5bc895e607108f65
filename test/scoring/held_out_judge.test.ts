import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ImageEditSettings } from '../../src/recipes/image_edit_tokens/settings.js';
import { MemoryJudgementStore } from '../../src/rewards/judge/memory_store.js';
import { openLocalSender } from '../../src/rewards/judge/sender.js';
import type { JudgeItem, Outcome, Reward } from '../../src/rewards/score/types.js';
import { HeldOutJudge, isInShare, openHeldOutJudge } from '../../src/scoring/held_out_judge.js';
import { choosy, startStubJudge, scoresText, stubModel } from '../rewards/judge/stub_judge.js';
import { makeSmallWorld, smallSettings, type SmallWorld } from '../recipes/image_edit_tokens/small_world.js';
import { onRanks } from '../train/groups.js';
import { scored, scorerOf, smallTraining, unscored, zero } from '../train/small_training.js';

const root = mkdtempSync(join(tmpdir(), 'held-out-judge-'));
let world: SmallWorld;
beforeAll(async () => {
  world = await makeSmallWorld(root);
});
afterAll(() => rmSync(root, { recursive: true }));

function settings(second: object = {}): ImageEditSettings {
  const held_out_judge = { endpoint: 'http://127.0.0.1:9', model: stubModel, every_n_iterations: 2, ...second };
  return smallSettings(world, { reward: { endpoint: 'embedded', model: 'editrl-rule-judge', held_out_judge } });
}

const item = (key: string): JudgeItem => ({
  key,
  instruction: 'make it red',
  source: null,
  edited: null,
  truth: null,
  finished: true,
});

/** A judge that scores by the key, and what it was asked. */
function judgeOf(score: (key: string) => Outcome): { judge: HeldOutJudge; asked: string[]; said: string[] } {
  const asked: string[] = [];
  const said: string[] = [];
  const reward: Reward = {
    name: 'second',
    score: async ({ key }) => {
      asked.push(key);
      return score(key);
    },
  };
  const warn = (message: string): number => said.push(message);
  const judge = new HeldOutJudge({ reward, timeoutMs: 60_000, warn, close: async () => {} });
  return { judge, asked, said };
}

describe('the held-out judge', () => {
  it('is asked about an even share of the episodes', () => {
    const chosen = (fraction: number): number[] =>
      Array.from({ length: 12 }, (_, i) => i).filter((i) => isInShare(i, fraction));
    expect(chosen(0.25)).toEqual([3, 7, 11]);
    expect(chosen(1)).toHaveLength(12);
    expect(chosen(0.3)).toHaveLength(3);
  });

  it('gives the mean difference over the episodes that both scored, and keys of its own', async () => {
    const { judge, asked } = judgeOf((key) => (key.endsWith('d') ? unscored : scored(key.endsWith('b') ? 6 : 2)));
    const metrics = await judge.compare(5, [
      { item: item('5/0/a'), outcome: scored(8) },
      { item: item('5/0/b'), outcome: scored(6) },
      { item: item('5/0/c'), outcome: zero },
      { item: item('5/0/d'), outcome: scored(9) },
      { item: item('5/0/e'), outcome: unscored },
    ]);
    expect(asked).toEqual(['held_out_judge/5/0/a', 'held_out_judge/5/0/b', 'held_out_judge/5/0/d']);
    expect(metrics['hack/judge_gap']).toBeCloseTo((0.6 + 0) / 2, 12);
    expect(metrics['hack/held_out_judge']).toBeCloseTo(0.4, 12);
    expect(metrics['hack/held_out_unscored']).toBeCloseTo(1 / 3, 12);
    expect(await judge.compare(6, [{ item: item('x'), outcome: zero }])).toEqual({});
  });

  it('leaves the run alone while it is down, and says so once', async () => {
    let down = true;
    const { judge, said } = judgeOf(() => (down ? unscored : scored(3)));
    const episodes = [{ item: item('a'), outcome: scored(5) }];
    expect(await judge.compare(1, episodes)).toEqual({ 'hack/held_out_unscored': 1 });
    await judge.compare(2, episodes);
    expect(said).toEqual([
      'iteration 1: the held-out judge left 1 of 1 episodes without a score (late); the run goes on without it',
    ]);
    down = false;
    await judge.compare(3, episodes);
    expect(said[1]).toBe('iteration 3: the held-out judge answers again');
  });
});

describe('opening it', () => {
  const services = {
    store: new MemoryJudgementStore(),
    resolveRun: () => '',
    openSender: openLocalSender,
    warn: () => {},
  };

  it('asks the same questions of the other model, and keeps its answers', async () => {
    const stub = await startStubJudge(() => scoresText(4, 9));
    try {
      const store = new MemoryJudgementStore();
      const judge = await openHeldOutJudge(settings({ endpoint: stub.url, fraction: 0.5 }).reward, {
        ...services,
        store,
      });
      const scorer = scorerOf(() => scored(9));
      const { training } = smallTraining(settings({ endpoint: stub.url, fraction: 0.5 }), scorer, undefined, {
        heldOutJudge: judge,
      });
      expect(await training.step(1)).not.toHaveProperty('hack/judge_gap');
      const metrics = await training.step(2);
      await training.dispose();
      // VIEScore of 4 and 9 twice: sqrt(4 * 4) of 10.
      expect(metrics['hack/held_out_judge']).toBeCloseTo(0.4, 9);
      expect(metrics['hack/judge_gap']).toBeCloseTo(0.5, 9);
      expect(metrics['reward/mean']).toBe(9);
      const kept = store.all();
      expect(kept.length).toBe(stub.requests.length);
      expect(kept.every(({ key, model }) => key.startsWith('held_out_judge/2/') && model === stubModel)).toBe(true);
    } finally {
      await stub.close();
    }
  });

  it('is known by its other name where that is allowed', async () => {
    const stub = await startStubJudge(choosy([], scoresText(4, 9), 'deployment-7'));
    const said: string[] = [];
    const warn = (message: string): unknown => said.push(message);
    try {
      const second = settings({ endpoint: stub.url, fraction: 0.5, model_alias: ['deployment-7'] });
      const own = { ...services, store: new MemoryJudgementStore(), warn };
      const judge = await openHeldOutJudge(second.reward, own);
      const { training } = smallTraining(
        second,
        scorerOf(() => scored(9)),
        undefined,
        { heldOutJudge: judge },
      );
      const metrics = await training.step(2);
      await training.dispose();
      expect(metrics['hack/held_out_judge']).toBeCloseTo(0.4, 9);
      expect(metrics['hack/held_out_unscored']).toBe(0);
      expect(said).toEqual([]);
    } finally {
      await stub.close();
    }
  });

  it('does not wait for one that is not there', async () => {
    const said: string[] = [];
    const judge = await openHeldOutJudge(settings().reward, { ...services, warn: (message) => said.push(message) });
    const { training } = smallTraining(
      settings(),
      scorerOf(() => scored(9)),
      undefined,
      { heldOutJudge: judge },
    );
    const metrics = await training.step(2);
    await training.dispose();
    expect(metrics['hack/held_out_unscored']).toBe(1);
    expect(metrics['reward/mean']).toBe(9);
    expect(said).toHaveLength(1);
  });

  it('is of no use to a reward that asks no judge, unless it is told what to ask', async () => {
    const ofSize = (second: object): ImageEditSettings => {
      const made = settings(second);
      return { ...made, reward: { ...made.reward, mode: 'jpeg_size' } };
    };
    await expect(openHeldOutJudge(ofSize({}).reward, services)).rejects.toThrow(/asks no judge/);
    const judge = await openHeldOutJudge(ofSize({ mode: 'viescore' }).reward, services);
    await judge?.close();
    const none = settings();
    expect(await openHeldOutJudge({ ...none.reward, held_out_judge: null }, services)).toBeNull();
  });
});

it('is asked about the same episodes on one rank and on three', async () => {
  const keysOf = async (size: number): Promise<string[]> => {
    const { judge, asked } = judgeOf(() => scored(1));
    await onRanks(size, async (group) => {
      const more = group.rank === 0 ? { heldOutJudge: judge } : {};
      const scorer = scorerOf(() => scored(2));
      const { training } = smallTraining(settings({ every_n_iterations: 1, fraction: 0.3 }), scorer, group, more);
      await training.step(1);
      await training.dispose();
    });
    return asked;
  };
  const alone = await keysOf(1);
  expect(alone).toEqual([3, 6, 9].map((i) => `held_out_judge/1/${Math.floor(i / 4)}/${i % 4}`));
  expect(await keysOf(3)).toEqual(alone);
});
