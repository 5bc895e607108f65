import { describe, expect, it } from 'vitest';
import type { WeightsOf } from '../../../src/train/policies/policy.js';
import type { HiddenStates, StatesRequest } from '../../../src/train/policies/tokens/hidden_states.js';
import { keepsStart, StatesReader } from '../../../src/recipes/edit_response/drawing.js';
import { smallSettings } from './small.js';

/** A policy that notes what it is asked to read, by the first token of a prompt. */
function policy() {
  const asked: [number, WeightsOf][] = [];
  return {
    asked,
    read: (items: readonly StatesRequest[], of: WeightsOf) => {
      asked.push(...items.map(({ prompt }) => [prompt.ids[0], of] as [number, WeightsOf]));
      return Promise.resolve(
        items.map(({ prompt }): HiddenStates => ({
          width: 1,
          states: Float32Array.of(prompt.ids[0]),
          ids: Int32Array.of(0),
        })),
      );
    },
  };
}

const environmentOf = (environment: object) =>
  smallSettings({ policy: { init: null, model: 'm' }, environment }).environment!;
const reading = (first: number): StatesRequest => ({ prompt: { ids: [first] }, answer: null, from: 0 });

describe('what a policy makes of edits', () => {
  it.each([
    [{}, ['current', 'average']],
    [{ read_by: 'start' }, ['reference', 'reference']],
  ])('is read with the weights that %j says', async (environment, expected) => {
    const by = policy();
    const reader = new StatesReader(environmentOf(environment), by);
    await reader.read([{ read: reading(1), blank: null }], 'current');
    await reader.read([{ read: reading(1), blank: null }], 'average');
    expect(by.asked).toEqual(expected.map((of) => [1, of]));
  });

  it('comes with a blank instruction, read once for each image with the weights of the start', async () => {
    const by = policy();
    const reader = new StatesReader(environmentOf({}), by);
    const blank = (image: string, first: number) => ({ image, read: reading(first) });
    const edits = [
      { read: reading(1), blank: blank('a.png', 8) },
      { read: reading(2), blank: blank('a.png', 8) },
      { read: reading(3), blank: blank('b.png', 9) },
    ];
    const told = await reader.read(edits, 'current');
    expect(told.map((one) => [one.states.states[0], one.blank?.states[0]])).toEqual([
      [1, 8],
      [2, 8],
      [3, 9],
    ]);
    await reader.read(edits.slice(1), 'average');
    expect(by.asked.filter(([, of]) => of === 'reference')).toEqual([
      [8, 'reference'],
      [9, 'reference'],
    ]);
  });

  it.each([
    [{}, false],
    [{ read_by: 'start' }, true],
    [{ guidance_scale: 2 }, true],
    [{ model_type: 'qwen' }, true],
    [{ model_type: 'qwen', guidance_scale: null }, false],
  ])('needs the weights of the start with %j: %j', (environment, expected) => {
    expect(keepsStart(environmentOf(environment))).toBe(expected);
  });
});
