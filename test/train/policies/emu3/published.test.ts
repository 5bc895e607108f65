/** Emu3's published vocabulary and weights, against what Python makes of them. */
import { describe, expect, it } from 'vitest';
import { CheckpointError } from '../../../../src/core/errors.js';
import { Session } from '../../../../src/compute/onnx/session.js';
import { Graph } from '../../../../src/compute/graph/ir.js';
import { sequenceLogits } from '../../../../src/compute/nets/decoder/decoder.js';
import { sequenceInputs } from '../../../../src/compute/nets/decoder/inputs.js';
import { openTokenizer } from '../../../../src/models/tokenizer/open.js';
import { WordTokenizer, wordTokenizerJson } from '../../../../src/models/tokenizer/words.js';
import { Emu3Format, SPECIAL, TokenSpace, visualToken } from '../../../../src/train/policies/tokens/emu3.js';
import { loadPolicy } from '../../../../src/train/policies/tokens/load.js';
import { emu3Folder, expectedOfEmu3, gridOf } from '../../../recipes/image_edit_tokens/emu3_fixture.js';
import { SAMPLED } from '../small_policy.js';

describe.each([
  ['as transformers converts it', 'model', 'ids'],
  ["as BAAI publishes it, with Emu3's own splitting", 'tiktoken', 'original'],
] as const)("Emu3's vocabulary %s", (_form, folder, key) => {
  const space = new TokenSpace(openTokenizer(emu3Folder(folder)), SAMPLED);

  it('has the ids that the model maps codes to', () => {
    const { mapped, prompts } = expectedOfEmu3;
    const { height, width, codes } = gridOf(prompts[0].codes);
    // The model gives every row its end of line.
    const rows = mapped.flatMap((row) => row.slice(0, width));
    expect(rows).toEqual([...codes].map((code) => space.visionStart + code));
    expect(mapped.map((row) => row[width])).toEqual(new Array(height).fill(space.special.endOfLine));
    expect(space.visionCount).toBe(40);
  });

  it.each(expectedOfEmu3.prompts)("spells EARL's prompt of $instruction and $prefill", async (one) => {
    const words = await space.words(one.instruction, one.prefill);
    expect(space.prompt(gridOf(one.codes), words)).toEqual(one[key]);
  });

  it('spells a labeled answer that thinks, and reads it back', async () => {
    const { codes, rationale, ...both } = expectedOfEmu3.answer;
    const answer = space.answer(gridOf(codes), await space.thought(rationale), false);
    expect(answer).toEqual(both[key]);
    expect(space.parse(Int32Array.from(answer), false)).toMatchObject({
      text: ` ${rationale}<|end thinking|>`,
      grid: gridOf(codes),
    });
  });
});

describe("Emu3's model", () => {
  it('gives the logits of transformers after a prompt', async () => {
    const space = new TokenSpace(openTokenizer(emu3Folder('model')), SAMPLED);
    const { config, weights } = loadPolicy(emu3Folder('model'), new Emu3Format(space));
    const { ids } = expectedOfEmu3.prompts[0];
    const shape = { prompts: 1, answersPerPrompt: 1, promptColumns: ids.length - 1, answerColumns: 1 };
    const graph = new Graph('sequence');
    const session = await Session.compile(graph, {
      logits: sequenceLogits(config, shape, sequenceInputs(graph, shape)),
    });
    const feeds = {
      prompt_ids: BigInt64Array.from(ids.slice(0, -1), BigInt),
      prompt_padding: new Float32Array(ids.length - 1),
      answer_ids: BigInt64Array.of(BigInt(ids.at(-1)!)),
    };
    const found = (await session.run(feeds, weights))['logits'] as Float32Array;
    await session.dispose();
    const wanted = expectedOfEmu3.logits;
    const largest = Math.max(...wanted.map(Math.abs));
    expect(found).toHaveLength(space.size);
    expect(Math.max(...wanted.map((x, i) => Math.abs(x - found[i]) / largest))).toBeLessThan(1e-4);
  });
});

describe('a tokenizer that is none of text and images', () => {
  it.each([
    [
      'a special token',
      [SPECIAL.bos],
      [visualToken(0)],
      /no token "<\|endoftext\|>", which a vocabulary of text and images needs/,
    ],
    ['vision tokens', Object.values(SPECIAL), [], /no token "<\|visual token 000000\|>"/],
    [
      'the order of vision tokens',
      Object.values(SPECIAL),
      [visualToken(0), visualToken(2), visualToken(1)],
      /not in order: <\|visual token 000001\|> has id 11/,
    ],
  ])('is rejected where it lacks %s', (_what, special, last, message) => {
    const tokenizer = new WordTokenizer(wordTokenizerJson(special, [], last), 'x');
    expect(() => new TokenSpace(tokenizer, SAMPLED)).toThrow(CheckpointError);
    expect(() => new TokenSpace(tokenizer, SAMPLED)).toThrow(message);
  });
});
