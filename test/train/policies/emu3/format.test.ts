import { describe, expect, it } from 'vitest';
import { RandomStream } from '../../../../src/core/random.js';
import { Emu3Format, type Emu3Prompt } from '../../../../src/train/policies/tokens/emu3.js';
import { type AllowedTokens } from '../../../../src/models/tokenizer/format.js';
import { FORCED, grid, openPrompt, SAMPLED, smallSpace, textPrompt } from '../small_policy.js';

const space = smallSpace();
const { eos, imageStart, imageToken } = space.special;
const format = new Emu3Format(space);
const sampled = new Emu3Format(smallSpace(SAMPLED));

/** What may follow, as ids. */
function waysOf(allowed: AllowedTokens): number[] {
  if ('forced' in allowed) return [allowed.forced];
  return Array.from({ length: space.size }, (_, id) => id).filter((id) => allowed.mask?.[id] !== 0);
}

/** Follows a format to the end token, choosing uniformly among what is allowed. */
function walk(prompt: Emu3Prompt, stream: RandomStream, by = format, most = 200): number[] {
  const state = by.start(prompt);
  const ids: number[] = [];
  while (ids.length < most && ids.at(-1) !== eos) {
    const ways = waysOf(state.next());
    const token = stream.pick(ways);
    state.accept(token);
    ids.push(token);
  }
  return ids;
}

describe("the format of Emu3's answers", () => {
  it('makes an image of the asked size on every path that opened one', () => {
    let images = 0;
    for (let seed = 0; seed < 300; seed++) {
      const stream = new RandomStream(seed, 'walk');
      const [height, width] = [1 + stream.integer(3), 1 + stream.integer(3)];
      const base = seed % 2 === 0 ? openPrompt(space) : textPrompt(space);
      const ids = walk({ ...base, height, width }, stream);
      if (!base.imageOpen && !ids.includes(imageStart)) continue;
      const { grid: found } = space.parse(Int32Array.from(ids), base.imageOpen);
      expect(found).toMatchObject({ height, width });
      expect(ids.slice(ids.indexOf(space.special.imageEnd)).some((id) => space.isVision(id))).toBe(false);
      images++;
    }
    expect(images).toBeGreaterThan(150);
  });

  it('forces everything of an image but its codes', () => {
    const state = format.start(openPrompt(space));
    const expected = space.image(grid(2, 2)).slice(1);
    for (const token of expected) {
      const allowed = state.next();
      if (space.isVision(token)) {
        expect(waysOf(allowed)).toEqual(Array.from({ length: space.visionCount }, (_, i) => space.visionStart + i));
      } else expect(allowed).toEqual({ forced: token });
      state.accept(token);
    }
    const after = waysOf(state.next());
    expect([eos, imageStart, space.visionStart].map((id) => after.includes(id))).toEqual([true, false, false]);
  });

  it('allows words, the end and one image start before an image, and no part of an image', () => {
    const ways = waysOf(format.start(textPrompt(space)).next());
    const { imageToken, endOfLine, endOfFrame, imageEnd, bos, pad } = space.special;
    for (const id of [eos, imageStart, space.tokenizer.id('red')]) expect(ways).toContain(id);
    for (const id of [imageToken, endOfLine, endOfFrame, imageEnd, bos, pad, space.visionStart]) {
      expect(ways).not.toContain(id);
    }
  });

  it("lets a header be sampled as EARL's processor does: any text until the image token, then forced rows and the end", () => {
    let images = 0;
    for (let seed = 0; seed < 200; seed++) {
      const stream = new RandomStream(seed, 'walk');
      const prompt = { ...(seed % 2 === 0 ? openPrompt(space) : textPrompt(space)), height: 3, width: 2 };
      const text = waysOf(sampled.start(prompt).next());
      expect(text).toEqual(Array.from({ length: space.visionStart }, (_, id) => id));
      const ids = walk(prompt, stream, sampled);
      const open = ids.indexOf(imageToken);
      if (open < 0) continue;
      images++;
      const { grid: found } = sampled.space.parse(Int32Array.from(ids), prompt.imageOpen);
      expect(found).toMatchObject({ height: 3, width: 2 });
      const rows = space.image(found!).slice(space.image(found!).indexOf(imageToken));
      expect(ids.slice(open)).toEqual([...rows, eos]);
    }
    expect(images).toBeGreaterThan(50);
  });

  it('ends an answer after its image if the settings request it', () => {
    const ends = new Emu3Format(smallSpace({ ...FORCED, endAfterImage: true }));
    for (const seed of [1, 2, 3]) {
      const ids = walk(openPrompt(space), new RandomStream(seed, 'ends'), ends);
      expect(ids.indexOf(space.special.imageEnd)).toBe(ids.length - 2);
      expect(ids.at(-1)).toBe(eos);
    }
  });
});
