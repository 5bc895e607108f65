import { describe, expect, it } from 'vitest';
import { RandomStream } from '../../src/core/random.js';
import type { TokenPrompt } from '../../src/policies/tokens/batch.js';
import { Grammar } from '../../src/policies/tokens/grammar.js';
import { grid, openPrompt, smallSpace, textPrompt } from './small_policy.js';

const space = smallSpace();
const { eos, imageStart } = space.special;

/** Follows the grammar, choosing uniformly among what is allowed; `until` ends it before the end token. */
function walk(grammar: Grammar, prompt: TokenPrompt, stream: RandomStream, most = 200): number[] {
  const state = grammar.start(prompt);
  const ids: number[] = [];
  while (ids.length < most && ids.at(-1) !== eos) {
    const allowed = state.next();
    const ways =
      'forced' in allowed ? [allowed.forced] : [...allowed.mask.keys()].filter((id) => allowed.mask[id] === 1);
    const token = stream.pick(ways);
    state.accept(token);
    ids.push(token);
  }
  return ids;
}

describe('the grammar of answers', () => {
  const grammar = new Grammar(space, true);

  it('makes an image of the asked size on every path that opened one', () => {
    let images = 0;
    for (let seed = 0; seed < 300; seed++) {
      const stream = new RandomStream(seed, 'walk');
      const [height, width] = [1 + stream.integer(3), 1 + stream.integer(3)];
      const base = seed % 2 === 0 ? openPrompt(space) : textPrompt(space);
      const ids = walk(grammar, { ...base, height, width }, stream);
      if (!base.imageOpen && !ids.includes(imageStart)) continue;
      const { grid: found } = space.parse(Int32Array.from(ids), base.imageOpen);
      expect(found).toMatchObject({ height, width });
      expect(ids.slice(ids.indexOf(space.special.imageEnd)).some((id) => space.isVision(id))).toBe(false);
      images++;
    }
    expect(images).toBeGreaterThan(150);
  });

  it('forces everything of an image but its codes', () => {
    const state = grammar.start(openPrompt(space));
    const expected = space.image(grid(2, 2)).slice(1);
    for (const token of expected) {
      const allowed = state.next();
      if (space.isVision(token)) {
        expect('mask' in allowed && [...allowed.mask]).toEqual([...space.modality].map(Number));
      } else expect(allowed).toEqual({ forced: token });
      state.accept(token);
    }
    const after = state.next();
    expect('mask' in after && [after.mask[eos], after.mask[imageStart], after.mask[space.visionStart]]).toEqual([
      1, 0, 0,
    ]);
  });

  it('allows words, the end and one image start before an image, and no part of an image', () => {
    const allowed = grammar.start(textPrompt(space)).next();
    const { imageToken, endOfLine, endOfFrame, imageEnd, bos, pad } = space.special;
    const mask = 'mask' in allowed ? allowed.mask : new Uint8Array();
    expect([eos, imageStart, space.tokenizer.id('red')].map((id) => mask[id])).toEqual([1, 1, 1]);
    for (const id of [imageToken, endOfLine, endOfFrame, imageEnd, bos, pad, space.visionStart]) {
      expect(mask[id]).toBe(0);
    }
  });

  it('restricts nothing where it is switched off', () => {
    const free = new Grammar(space, false);
    for (const prompt of [openPrompt(space), textPrompt(space)]) {
      const state = free.start(prompt);
      for (const token of [imageStart, space.visionStart, eos]) {
        const allowed = state.next();
        expect('mask' in allowed && allowed.mask.every((one) => one === 1)).toBe(true);
        state.accept(token);
      }
    }
  });
});
