import { describe, expect, it } from 'vitest';
import { CheckpointError } from '../../../../src/core/errors.js';
import { jointVocabularyJson, SPECIAL, TokenSpace, visualToken } from '../../../../src/train/policies/tokens/emu3.js';
import { WordTokenizer, wordTokenizerJson } from '../../../../src/models/tokenizer/words.js';
import { FORCED, grid, SAMPLED, smallSpace, smallTokenizer } from '../small_policy.js';

const space = smallSpace();
const spell = (ids: Iterable<number>): string => space.tokenizer.decode(ids);
const code = (n: number): string => `<|visual token 00000${n}|>`;
const block = [
  '<|image start|> 2 * 3 <|image token|>',
  `${code(0)} ${code(1)} ${code(2)} <|extra_200|>`,
  `${code(3)} ${code(4)} ${code(5)} <|extra_200|>`,
  '<|extra_201|> <|image end|>',
].join(' ');

describe('the joint vocabulary', () => {
  it('spells an image as its size, its rows and its ends', () => {
    expect(spell(space.image(grid(2, 3)))).toBe(block);
    expect(spell(space.header(12, 3))).toBe('1 2 * 3');
  });

  it('spells prompts with an opened image, and with thinking', async () => {
    const open = space.prompt(grid(2, 3), await space.words('remove the circle', '<|image start|>'));
    expect(spell(open)).toBe(`<|extra_203|> USER: ${block} remove the circle ASSISTANT: <|image start|>`);
    expect(space.opensImage(open)).toBe(true);
    const think = space.prompt(grid(2, 3), await space.words('remove the circle', " Let's think <|start thinking|>"));
    expect(spell(think).endsWith("ASSISTANT: Let's think <|start thinking|>")).toBe(true);
    expect(space.opensImage(think)).toBe(false);
  });

  it('spells prompts without words around their parts, which its vocabulary then need not have', async () => {
    const plain = smallSpace(SAMPLED);
    expect(spell(plain.prompt(grid(2, 3), await plain.words('remove the circle', '<|image start|>')))).toBe(
      `<|extra_203|> ${block} remove the circle <|image start|>`,
    );
    const other = wordTokenizerJson(Object.values(SPECIAL), [...'0123456789*'], [visualToken(0)]);
    const without = new TokenSpace(new WordTokenizer(other, 'x'), SAMPLED);
    const source = { height: 1, width: 1, codes: Int32Array.of(0) };
    expect(without.opensImage(without.prompt(source, await without.words('', '<|image start|>')))).toBe(true);
  });

  it('needs vision tokens at its end', () => {
    const json = JSON.parse(jointVocabularyJson([], 2)) as {
      model: { vocab: Record<string, number> };
    };
    json.model.vocab.late = Object.keys(json.model.vocab).length;
    expect(() => new TokenSpace(new WordTokenizer(JSON.stringify(json), 'x'), FORCED)).toThrow(CheckpointError);
  });
});

describe('parsing answers', () => {
  const whole = space.answer(grid(2, 3, 2), [], true);

  it('reads back what it spells: with the image opened, and after a thought', async () => {
    expect(space.parse(Int32Array.from(whole), true)).toMatchObject({ text: '', grid: grid(2, 3, 2) });
    const thought = Int32Array.from(space.answer(grid(2, 3, 2), await space.thought('the red circle'), false));
    expect(space.parse(thought, false)).toMatchObject({
      text: 'the red circle <|end thinking|>',
      grid: grid(2, 3, 2),
    });
    expect(space.parse(thought, false).grid?.codes).toEqual(grid(2, 3, 2).codes);
  });

  it('finds no image in any truncation that lacks a part of it', () => {
    // the end token alone may be missing
    for (let length = 0; length < whole.length - 1; length++) {
      expect(space.parse(Int32Array.from(whole.slice(0, length)), true).grid, `${length} tokens`).toBeNull();
    }
    expect(space.parse(Int32Array.from(whole.slice(0, -1)), true).grid).not.toBeNull();
  });

  const spoil = (change: (ids: number[]) => void): Int32Array => {
    const ids = [...whole];
    change(ids);
    return Int32Array.from(ids);
  };
  const { endOfLine, endOfFrame, imageStart } = space.special;
  const row = 4;
  it.each<[string, Int32Array]>([
    ['a row that is too short', spoil((ids) => ids.splice(row, 1))],
    ['a row that is too long', spoil((ids) => ids.splice(row, 0, ids[row]))],
    ['a word among the codes', spoil((ids) => (ids[row] = space.tokenizer.id('red')))],
    ['an end of line in the wrong place', spoil((ids) => ([ids[row], ids[row + 3]] = [endOfLine, ids[row]]))],
    ['a code for an end of line', spoil((ids) => (ids[row + 3] = ids[row]))],
    ['no end of frame', spoil((ids) => ids.splice(ids.indexOf(endOfFrame), 1))],
    ['a header of another size', spoil((ids) => (ids[0] = space.tokenizer.id('3')))],
    ['a header that is no size', spoil((ids) => (ids[1] = space.tokenizer.id('2')))],
    ['no header', spoil((ids) => ids.splice(0, 3))],
    ['an image of no rows', Int32Array.from(space.image(grid(0, 3)).slice(1))],
    ['an image of no columns', Int32Array.from(space.image(grid(2, 0)).slice(1))],
  ])('rejects %s', (_name, ids) => {
    expect(space.parse(ids, true).grid).toBeNull();
  });

  it('keeps the words of an answer without an image', () => {
    const words = Int32Array.from(smallTokenizer().encode('the red circle'));
    expect(space.parse(words, false)).toMatchObject({ text: 'the red circle', grid: null });
    expect(space.parse(Int32Array.of(...words, imageStart), false)).toMatchObject({
      text: 'the red circle',
      grid: null,
    });
  });

  describe('whose header was sampled', () => {
    const sampled = smallSpace(SAMPLED);
    const parse = (text: string, imageOpen = true) =>
      sampled.parse(Int32Array.from(smallTokenizer().encode(text)), imageOpen);
    const rows = `<|image token|> ${code(2)} ${code(3)} <|extra_200|> ${code(4)} ${code(5)} <|extra_200|>`;
    const ends = '<|extra_201|> <|image end|>';
    const found = grid(2, 2, 2);

    it.each(['2 * 2', '3 * 7', '', 'red <|extra_200|> circle <|image end|>'])(
      'takes the size from the rows: after %j',
      (header) => {
        expect(parse(`${header} ${rows} ${ends}`)).toMatchObject({ text: '', grid: found });
        expect(parse(`the red <|image start|> ${header} ${rows} ${ends}`, false)).toMatchObject({
          text: 'the red',
          grid: found,
        });
      },
    );

    it('needs no image start, and says what stands before the image', () => {
      expect(parse(`the red ${rows} ${ends}`, false)).toMatchObject({ text: 'the red', grid: found });
      expect(parse('the red', false)).toMatchObject({ text: 'the red', grid: null });
    });

    it.each([
      ['rows of different lengths', `${rows} ${code(1)} <|extra_200|> ${ends}`],
      ['a word in a row', `${rows} red ${code(1)} <|extra_200|> ${ends}`],
      ['no rows', `<|image token|> ${ends}`],
      ['an empty row', `<|image token|> <|extra_200|> ${ends}`],
      ['no end of the last row', `${rows} ${code(1)} ${code(1)} ${ends}`],
      ['no end of the image', `${rows} <|extra_201|>`],
    ])('rejects %s', (_name, text) => {
      expect(parse(text).grid).toBeNull();
    });
  });
});
