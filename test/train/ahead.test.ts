/** An iteration whose answers are sampled while the one before it trains. */
import { EventEmitter, once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { EndpointError } from '../../src/core/errors.js';
import type { Emu3Prompt } from '../../src/train/policies/tokens/emu3.js';
import type { LanguagePolicy } from '../../src/train/policies/tokens/language_policy.js';
import { makeSmallWorld, smallSettings, type SmallWorld } from '../recipes/image_edit_tokens/small_world.js';
import { rewardByName, scored, scorerOf, smallTraining, type SmallTraining } from './small_training.js';

const root = mkdtempSync(join(tmpdir(), 'ahead-'));
let world: SmallWorld;
beforeAll(async () => {
  world = await makeSmallWorld(root);
});
const open: SmallTraining[] = [];
afterAll(async () => {
  await Promise.all(open.map(({ training }) => training.dispose()));
  rmSync(root, { recursive: true });
});

/** A policy that samples an iteration only once the one before has taken its step: it waits for ever where they take turns. */
function watched(policy: LanguagePolicy<Emu3Prompt>, events: string[], fails: boolean): LanguagePolicy<Emu3Prompt> {
  const steps = new EventEmitter();
  const taken = [1, 2].map(async (step) => once(steps, `step ${step}`));
  const own: Partial<LanguagePolicy<Emu3Prompt>> = {
    sample: async (request) => {
      const name = request.key?.(0, 0).split('/', 1)[0] ?? '';
      const iteration = Number(name);
      events.push(`samples ${name}`);
      if (iteration > 1) await taken[iteration - 2];
      if (iteration > 1 && fails) throw new EndpointError('the server is away', { where: 'there', next: 'Wait.' });
      const answers = await policy.sample(request);
      events.push(`has sampled ${name}`);
      return answers;
    },
    step: async (rate) => {
      const report = await policy.step(rate);
      events.push(`step ${policy.steps}`);
      steps.emit(`step ${policy.steps}`);
      return report;
    },
  };
  return new Proxy(policy, {
    get: (target, name) => {
      const found: unknown = Reflect.get(own, name) ?? Reflect.get(target, name, target);
      return typeof found === 'function' ? (found.bind(target) as unknown) : found;
    },
  });
}

function make(aheadUntil: number | undefined, events: string[], fails = false): SmallTraining {
  const made = smallTraining(
    smallSettings(world),
    scorerOf((key) => scored(rewardByName(key))),
    undefined,
    {
      ...(aheadUntil === undefined ? {} : { aheadUntil }),
      through: (policy) => watched(policy, events, fails),
    },
  );
  open.push(made);
  return made;
}

describe('an iteration that is sampled ahead', () => {
  it('is begun before the step, and learned from next; none follows the last', async () => {
    const events: string[] = [];
    const { training, records } = make(2, events);
    const first = await training.step(1);
    const second = await training.step(2);
    expect(events).toEqual(['samples 1', 'has sampled 1', 'samples 2', 'step 1', 'has sampled 2', 'step 2']);
    expect(records.map(({ iteration }) => iteration)).toEqual([1, 2]);
    expect(first).not.toHaveProperty(['policy/steps_behind']);
    expect(second['policy/steps_behind']).toBe(1);
  });

  it('is sampled before held-out prompts are', async () => {
    const events: string[] = [];
    const { training } = make(2, events);
    await training.step(1);
    await training.evaluate(1);
    const heldOut = events.findIndex((event) => /^samples \D/.test(event));
    expect(events.slice(0, heldOut).slice(-1)).toEqual(['has sampled 2']);
  });

  it('fails in the step that needs it, not in the one before', async () => {
    const { training } = make(2, [], true);
    expect(await training.step(1)).toHaveProperty(['reward/mean']);
    await expect(training.step(2)).rejects.toThrow('the server is away');
  });

  it('is begun after the step by default', async () => {
    const events: string[] = [];
    const { training } = make(undefined, events);
    await training.step(1);
    await training.step(2);
    expect(events).toEqual(['samples 1', 'has sampled 1', 'step 1', 'samples 2', 'has sampled 2', 'step 2']);
  });
});
