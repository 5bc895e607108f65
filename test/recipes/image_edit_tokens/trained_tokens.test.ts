import { describe, expect, it } from 'vitest';
import { Emu3Format } from '../../../src/train/policies/tokens/emu3.js';
import { trainedTokens, type TrainedTokensSettings } from '../../../src/recipes/image_edit_tokens/labels.js';
import { algorithm as schema, type TrainTokens } from '../../../src/config/schema/algorithm.js';
import { grid, openPrompt, SAMPLED, smallSpace } from '../../train/policies/small_policy.js';

const space = smallSpace(SAMPLED);
const format = new Emu3Format(space);
const prompt = { tokens: openPrompt(space) };
const answer = { ids: Int32Array.from(space.answer(grid(2, 2), [], true)) };

function settingsOf(algorithm: object, constrained = true): TrainedTokensSettings {
  const parsed = schema.parse({ type: 'grpo', ...algorithm });
  if (parsed.type !== 'grpo') throw new Error(parsed.type);
  return { algorithm: parsed, policy: { emu3_use_logit_processor: constrained } };
}

/** The trained tokens of an iteration, in words. */
function trained(iteration: number, settings: TrainedTokensSettings): string {
  const weights = trainedTokens(iteration, prompt, answer, settings, format);
  expect(weights).toHaveLength(answer.ids.length);
  const kinds = [...answer.ids].map((id) => (space.isVision(id) ? 'vision' : 'text'));
  const of = (kind: string): boolean[] => [...weights].filter((_, t) => kinds[t] === kind).map((w) => w === 1);
  const parts = ['text', 'vision'].filter((kind) => of(kind).every(Boolean));
  expect(['text', 'vision'].every((kind) => of(kind).every(Boolean) || !of(kind).some(Boolean))).toBe(true);
  return parts.join(' and ');
}

describe('the tokens that are trained', () => {
  it.each<[string, Partial<Exclude<TrainTokens, 'all'>>, string[]]>([
    ['text, then vision alone', { tokens: 'text' }, ['text', 'text', 'vision', 'text', 'text', 'vision']],
    [
      'vision, then all',
      { tokens: 'vision' },
      ['vision', 'vision', 'text and vision', 'vision', 'vision', 'text and vision'],
    ],
    ['text, then what is asked for', { tokens: 'text', rest: 'all' }, ['text', 'text', 'text and vision', 'text']],
    ['only text', { tokens: 'text', steps: 3 }, ['text', 'text', 'text', 'text', 'text']],
  ])('are, in a cycle, %s', (_name, cycle, expected) => {
    const settings = settingsOf({ train_tokens: { cycle_steps: 3, steps: 2, ...cycle } });
    expect(expected.map((_, i) => trained(i + 1, settings))).toEqual(expected);
  });

  it('are without the forced ones where these are left out', () => {
    const left = settingsOf({ forced_tokens: 'left_out' });
    const weights = trainedTokens(1, prompt, answer, left, format);
    const { endOfLine, endOfFrame, imageEnd, eos } = space.special;
    const forced = new Set([endOfLine, endOfFrame, imageEnd, eos]);
    expect([...weights]).toEqual([...answer.ids].map((id) => (forced.has(id) ? 0 : 1)));
    const vision = settingsOf({
      forced_tokens: 'left_out',
      train_tokens: { tokens: 'vision', cycle_steps: 1, steps: 1 },
    });
    expect(trained(1, vision)).toBe('vision');
    // Without the processor nothing was forced.
    expect(trained(1, settingsOf({ forced_tokens: 'left_out' }, false))).toBe('text and vision');
  });
});
