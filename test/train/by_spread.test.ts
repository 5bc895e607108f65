/** Prompts whose last group had no spread are asked less often. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createSampler, type SamplePlace } from '../../src/data/sampler.js';
import type { ProcessGroup } from '../../src/group/process_group.js';
import { saveCheckpoint } from '../../src/run/checkpoints.js';
import type { Metrics } from '../../src/run/metrics.js';
import { RunPaths } from '../../src/run/paths.js';
import { promptKey } from '../../src/scoring/task.js';
import { BySpread, type SpreadWalk } from '../../src/train/by_spread.js';
import type { Spread } from '../../src/train/refill.js';
import { makeSmallWorld, smallSettings, type SmallWorld } from '../recipes/image_edit_tokens/small_world.js';
import { testFolder, testFolders } from '../support/folder.js';
import { onRanks } from './groups.js';
import { untimed } from './on_ranks.js';
import { rewardByName, scored, scorerOf, smallTraining, unscored, type SmallTraining } from './small_training.js';

const SPREAD: Spread = { dropped: false, zeroSpread: false };
const NONE: Spread = { dropped: false, zeroSpread: true };
const FEW: Spread = { dropped: true, zeroSpread: false };

/** Two datasets, the second taken twice in an epoch of 12. */
function makeOrder() {
  const sampler = createSampler(
    [
      { name: 'a', length: 8 },
      { name: 'b', length: 2 },
    ],
    { seed: 3, coefficients: [1, 2] },
  );
  return { ordinary: (n: number) => sampler.at(n), epochLength: sampler.epochLength };
}
const order = makeOrder();
const nameOf = ({ source, index }: SamplePlace): string => `${source}/${index}`;
const take = (walk: SpreadWalk, count: number): string[] => Array.from({ length: count }, () => nameOf(walk.take()));
const ordinary = (from: number, count: number): string[] =>
  Array.from({ length: count }, (_, i) => nameOf(order.ordinary(from + i)));

/** Asks `iterations` times `count` prompts, whose groups have the spread that their names say. */
function ask(prompts: BySpread, iterations: number, count: number, spreadOf: (name: string) => Spread): string[][] {
  return Array.from({ length: iterations }, () => {
    const walk = prompts.walk();
    const names = take(walk, count);
    prompts.learn(walk, names.map(spreadOf));
    return names;
  });
}

describe('the way through the prompts', () => {
  it('is the ordinary order where all groups have spread, from iteration to iteration', () => {
    const prompts = new BySpread(order, 1);
    expect(ask(prompts, 4, 5, () => SPREAD).flat()).toEqual(ordinary(0, 20));
    expect(prompts.state).toMatchObject({ next: 20, lacking: [[], []] });
  });

  it.each([
    ['no spread', NONE],
    ['fewer than two scores', FEW],
  ])('comes to a prompt of %s in a quarter of its turns, and to every other in each', (_, lacking) => {
    const prompts = new BySpread(order, 1);
    ask(prompts, 1, 12, (name) => (name.startsWith('0') ? lacking : SPREAD));
    const seen = new Map<string, number>();
    const { next: from } = prompts.state;
    // The prompts of one iteration: what is without spread stays so.
    let turns = 0;
    for (let i = 0; i < 200; i++) {
      const walk = prompts.walk();
      for (const name of take(walk, 3)) seen.set(name, (seen.get(name) ?? 0) + 1);
      prompts.learn({ next: walk.next, taken: [] }, []);
      turns = walk.next - from;
    }
    const epochs = turns / 12;
    const flat = Array.from({ length: 8 }, (_one, i) => (seen.get(`0/${i}`) ?? 0) / epochs);
    // 200 iterations of 3 are some 100 epochs: eight times 100 draws of 1/4 have a standard error of 0.015.
    expect(flat.reduce((a, b) => a + b, 0) / 8).toBeCloseTo(0.25, 1);
    for (const share of flat) expect(share).toBeGreaterThan(0.1);
    for (const i of [0, 1]) expect((seen.get(`1/${i}`) ?? 0) / epochs).toBeCloseTo(2, 1);
  });

  it('goes by the last group of a prompt, in one iteration too', () => {
    const prompts = new BySpread(order, 1);
    const [at, other] = [
      { source: 0, index: 3 },
      { source: 1, index: 1 },
    ];
    prompts.learn({ next: 3, taken: [at, other, at] }, [SPREAD, NONE, NONE]);
    expect(prompts.state).toEqual({ next: 3, lacking: [[3], [1]] });
    prompts.learn({ next: 5, taken: [at, at] }, [NONE, SPREAD]);
    expect(prompts.state).toEqual({ next: 5, lacking: [[], [1]] });
  });

  it('passes over no more prompts in an iteration than an epoch has', () => {
    const prompts = new BySpread(order, 1);
    ask(prompts, 1, 24, () => NONE);
    const walk = prompts.walk();
    const names = take(walk, 40);
    expect(walk.passedOver).toBe(12);
    // The last of them in the order as it is.
    expect(names.slice(-20)).toEqual(ordinary(walk.next - 20, 20));
    expect(walk.next).toBe(24 + 40 + 12);
  });

  it('follows from the seed and the position', () => {
    const at = (seed: number) => {
      const prompts = new BySpread(order, seed);
      return ask(prompts, 8, 6, () => NONE);
    };
    expect(at(1)).toEqual(at(1));
    expect(at(1)).not.toEqual(at(2));
  });

  it('goes on from its state, and is not moved by a way that nothing was learnt from', () => {
    const spreadOf = (name: string): Spread => (name < '0/5' ? NONE : SPREAD);
    const [whole, first, second] = [1, 1, 1].map((seed) => new BySpread(order, seed));
    const expected = ask(whole, 9, 5, spreadOf);
    ask(first, 4, 5, spreadOf);
    take(first.walk(), 7);
    second.restore(JSON.parse(JSON.stringify(first.state)) as typeof first.state);
    expect(second.state).toEqual(first.state);
    expect(ask(second, 5, 5, spreadOf)).toEqual(expected.slice(4));
    expect(second.state).toEqual(whole.state);
  });
});

describe('training by spread', () => {
  const root = testFolder('by-spread');
  const folder = testFolders('by-spread-run');
  let world: SmallWorld;
  beforeAll(async () => {
    world = await makeSmallWorld(root);
  });
  const open: SmallTraining[] = [];
  afterAll(() => Promise.all(open.map(({ training }) => training.dispose())));

  /** In the small world's order of 12 prompts, with 3 in an iteration; groups of these names, `iteration/group`, have no spread. */
  const lacking = (isFlat: (iteration: number, group: number) => boolean) =>
    scorerOf((key) => {
      const [iteration, group] = key.split('/').map(Number);
      return scored(isFlat(iteration, group) ? 3 : rewardByName(key));
    });

  function make(
    scorer: Parameters<typeof smallTraining>[1],
    changes: Record<string, Record<string, unknown>> = {},
    group?: ProcessGroup,
  ): SmallTraining {
    const data = { ...world.config['data'], sampling: 'by_spread', ...changes['data'] };
    const made = smallTraining(smallSettings(world, { ...changes, data }), scorer, group);
    open.push(made);
    return made;
  }

  const steps = async ({ training }: SmallTraining, from: number, to: number): Promise<Metrics[]> => {
    const out: Metrics[] = [];
    for (let i = from; i <= to; i++) out.push(untimed(await training.step(i)));
    return out;
  };
  const told = ({ groups, outcomes, advantages, kept, places }: SmallTraining['records'][number]) => [
    groups.map(({ prompt, answers }) => [promptKey(prompt), answers]),
    [outcomes, advantages, kept, places],
  ];
  const keysOf = (record: SmallTraining['records'][number]): string[] =>
    record.groups.map(({ prompt }) => promptKey(prompt));

  it('asks fewer of the prompts that had no spread, says how many it passed over, and records what it asked', async () => {
    const made = make(lacking((_, group) => group !== 1));
    const metrics = await steps(made, 1, 8);
    const first = made.records.slice(0, 4);
    expect(new Set(first.flatMap(keysOf)).size).toBe(12);
    expect(metrics.slice(0, 4).map((one) => one['group/passed_over'])).toEqual([0, 0, 0, 0]);
    const passed = metrics.slice(4).map((one) => one['group/passed_over']);
    expect(passed.reduce((a, b) => Number(a) + Number(b), 0)).toBeGreaterThan(0);
    for (const { groups, places } of made.records) {
      for (const [g, place] of places.entries()) {
        expect(promptKey(await made.task.prompt(place ?? never()))).toBe(promptKey(groups[g].prompt));
      }
    }
    // In each of the first four iterations one group of three had spread: a prompt of these is asked in its turn.
    const taught = new Set(first.map((record) => keysOf(record)[1]));
    expect(made.records.slice(4, 8).flatMap(keysOf)).toEqual(expect.arrayContaining([...taught]));
  });

  it('is the training that it is without, where all groups have spread', async () => {
    const [plain, by] = [
      make(
        lacking(() => false),
        { data: { sampling: 'uniform' } },
      ),
      make(lacking(() => false)),
    ];
    const [a, b] = [await steps(plain, 1, 5), await steps(by, 1, 5)];
    expect(b).toEqual(a.map((one) => ({ ...one, 'group/passed_over': 0 })));
    expect(await by.training.checksum()).toBe(await plain.training.checksum());
    expect(by.records.map(keysOf)).toEqual(plain.records.map(keysOf));
  });

  it('refills from where the round before has ended, and never asks a prompt twice in an epoch', async () => {
    const made = make(
      lacking((iteration, group) => iteration === 1 && [0, 2, 3].includes(group)),
      { rollout: { refill: { rounds: 2 } } },
    );
    const metrics = await steps(made, 1, 2);
    expect(metrics[0]).toMatchObject({ 'group/sampled': 6, 'group/refilled': 3, 'group/passed_over': 0 });
    const names = made.records.map(keysOf);
    expect(new Set(names.flat()).size).toBe(9);
    const plain = Array.from({ length: 9 }, (_, n) => made.task.prompt(n));
    expect(names.flat()).toEqual((await Promise.all(plain)).map(promptKey));
  });

  it.each([
    ['', {}],
    [', with refill', { rollout: { refill: { rounds: 2 } } }],
  ])('goes on from a checkpoint as it would have gone%s', async (_, changes) => {
    const scorer = lacking((iteration, group) => (iteration + group) % 3 !== 0);
    const whole = make(scorer, changes);
    const metrics = await steps(whole, 1, 8);
    expect(metrics.slice(5).some((one) => Number(one['group/passed_over']) > 0)).toBe(true);
    const [first, second] = [make(scorer, changes), make(scorer, changes)];
    await steps(first, 1, 5);
    const paths = new RunPaths(folder(), 'run');
    saveCheckpoint(paths, 5, await first.training.files(5));
    await second.training.restore(paths.checkpoint(5));
    expect(await steps(second, 6, 8)).toEqual(metrics.slice(5));
    expect(second.records.map(told)).toEqual(whole.records.slice(5).map(told));
    // Weights, optimizer and the state that the next checkpoint is made of.
    expect(await second.training.files(8)).toEqual(await whole.training.files(8));
  });

  it('goes on where a run that took its prompts as they come has stopped', async () => {
    const plain = make(
      lacking(() => false),
      { data: { sampling: 'uniform' } },
    );
    await steps(plain, 1, 2);
    const paths = new RunPaths(folder(), 'run');
    saveCheckpoint(paths, 2, await plain.training.files(2));
    const by = make(lacking(() => false));
    await by.training.restore(paths.checkpoint(2));
    await steps(by, 3, 3);
    await steps(plain, 3, 3);
    expect(keysOf(by.records[0])).toEqual(keysOf(plain.records[2]));
  });

  it('is the same on two ranks', async () => {
    const scorer = scorerOf((key) => {
      const [, group, answer] = key.split('/').map(Number);
      if (group === 2 && answer > 0) return unscored;
      return scored(group === 0 ? 3 : rewardByName(key));
    });
    const on = (size: number) =>
      onRanks(size, async (group) => {
        const made = make(scorer, {}, group);
        const metrics = await steps(made, 1, 6);
        return { passed: metrics.map((one) => one['group/passed_over']), records: made.records, made };
      });
    const [[one], [leader, follower]] = [await on(1), await on(2)];
    expect(leader.records.map(keysOf)).toEqual(one.records.map(keysOf));
    expect([leader.passed, follower.passed]).toEqual([one.passed, one.passed]);
    expect(one.passed.some((count) => Number(count) > 0)).toBe(true);
    expect(await follower.made.training.checksum()).toBe(await leader.made.training.checksum());
  });
});

function never(): never {
  throw new Error('every place is recorded');
}
