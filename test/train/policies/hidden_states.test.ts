import { afterAll, describe, expect, it } from 'vitest';
import { Reader, type StatesRequest } from '../../../src/train/policies/tokens/hidden_states.js';
import type { TokenPrompt } from '../../../src/models/tokenizer/format.js';
import { expectedOf, families, floatsOf, givenOf, modelOf, prompts } from '../../compute/nets/vision/fixture.js';

const session = { threads: 1 };

function far(a: Float32Array, b: Float32Array): number {
  expect(a).toHaveLength(b.length);
  return Math.max(...a.map((x, i) => Math.abs(x - b[i])));
}

describe.each(families)('hidden states of %s', (family) => {
  const model = modelOf(family, { mm_vision: false, mm_mlp: true, mm_llm: true });
  const reader = new Reader(model, { session });
  afterAll(() => reader.dispose());
  const seen = prompts(family);
  const items = seen.flatMap((prompt, p) =>
    givenOf(family).prompts[p].answers.map((ids): StatesRequest => ({ prompt, answer: Int32Array.from(ids), from: 0 })),
  );
  const width = model.config.hidden_size;

  it('are those of transformers, of exactly the tokens that were written', async () => {
    const found = await reader.read(items, model.weights);
    expectedOf(family).hidden.forEach((text, i) => {
      const { prompt, answer } = items[i];
      expect([...found[i].ids]).toEqual([...prompt.ids, ...answer!]);
      expect(far(found[i].states, floatsOf(text))).toBeLessThan(1e-4);
    });
  });

  it('leave out what comes first, which was read all the same', async () => {
    const [whole, part] = await reader.read([items[0], { ...items[0], from: 3 }], model.weights);
    expect(part.ids).toEqual(whole.ids.slice(3));
    expect(part.states).toEqual(whole.states.slice(3 * width));
  });

  it('have the same bits whatever is read beside them', async () => {
    const [alone] = await reader.read([items[0]], model.weights);
    const words: TokenPrompt = { ids: Array.from({ length: 50 }, (_, i) => 3 + i) };
    const longer = { prompt: words, answer: new Int32Array(30).fill(4), from: 0 };
    const [beside] = await reader.read([...items, longer], model.weights);
    expect(beside).toEqual(alone);
  });

  it('of a prompt alone are those that it has before an answer', async () => {
    const { prompt } = items[0];
    const [whole, alone, cut] = await reader.read(
      [items[0], { prompt, answer: null, from: 2 }, { prompt, answer: null, from: 2, to: prompt.ids.length - 2 }],
      model.weights,
    );
    expect(alone.ids).toEqual(Int32Array.from(prompt.ids.slice(2)));
    expect(far(alone.states, whole.states.slice(2 * width, prompt.ids.length * width))).toBeLessThan(1e-6);
    expect(cut.states).toEqual(alone.states.slice(0, -2 * width));
  });
});
