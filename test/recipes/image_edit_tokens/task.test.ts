import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { DataError } from '../../../src/core/errors.js';
import { openDatalist } from '../../../src/data/datalist.js';
import { jointVocabularyJson } from '../../../src/train/policies/tokens/emu3.js';
import { ImageEditTask } from '../../../src/recipes/image_edit_tokens/task.js';
import { makeSmallWorld, smallSettings, type SmallWorld } from './small_world.js';

const root = mkdtempSync(join(tmpdir(), 'task-'));
let world: SmallWorld;
let task: ImageEditTask;
beforeAll(async () => {
  world = await makeSmallWorld(root);
  task = ImageEditTask.open(smallSettings(world), () => '');
});
afterAll(async () => {
  await task.dispose();
  rmSync(root, { recursive: true });
});

const answer = (ids: readonly number[]) => ({
  ids: Int32Array.from(ids),
  logProbs: new Float32Array(ids.length),
  finished: true,
});

describe('the image edit task', () => {
  it('renders every answer in its place, those without an image too', async () => {
    const prompt = await task.prompt(0);
    const whole = (code: number): number[] =>
      task.space.answer({ height: 3, width: 3, codes: new Int32Array(9).fill(code) }, [], true);
    const answers = [answer(whole(1)), answer(whole(2).slice(0, 5)), answer(whole(3))];
    const [rendered] = await task.render([{ prompt, answers, keys: ['a', 'b', 'c'] }]);
    expect(rendered.map(({ item }) => item.key)).toEqual(['a', 'b', 'c']);
    const codes = rendered.map(({ record }) => (record['grid'] as { codes: number[] } | null)?.codes[0] ?? null);
    expect(codes).toEqual([1, null, 3]);
    expect(rendered[1].item.edited).toBeNull();
    const grid = (code: number) => ({ height: 3, width: 3, codes: new Int32Array(9).fill(code) });
    const [one, three] = await task.environment.decode([grid(1), grid(3)]);
    expect(rendered[0].item.edited).toEqual(one);
    expect(rendered[2].item.edited).toEqual(three);
    expect(rendered[0].item).toMatchObject({ instruction: prompt.instruction, truth: null, finished: true });
    expect(rendered[0].item.source).toMatchObject({ width: 30, height: 30 });
  });

  it('gives held-out samples their truth', async () => {
    const prompt = await task.validation[0].prompt(0);
    const [[{ item }]] = await task.render([{ prompt, answers: [answer([])], keys: ['x'] }]);
    expect(await task.labels(prompt)).toEqual({ truth: item.truth });
    expect(item.truth).toMatchObject({ width: 30, height: 30 });
    expect(task.validation[0].name).toBe('s');
  });

  it('takes recorded answers back', async () => {
    const prompt = await task.prompt(0);
    const ids = task.space.answer({ height: 3, width: 3, codes: new Int32Array(9).fill(4) }, [], true);
    const [[{ item, record }]] = await task.render([{ prompt, answers: [answer(ids)], keys: ['x'] }]);
    const outcome = { kind: 'zero_by_rule', reason: 'undecodable', parts: {} } as const;
    const line = { key: 'x', sample: prompt.id, instruction: prompt.instruction, finished: true, outcome, ...record };
    const [[again]] = await task.render([{ prompt, answers: [task.reread(line)], keys: ['x'] }]);
    expect(again.item).toEqual(item);
    const wordless = Object.fromEntries(Object.entries(line).filter(([name]) => name !== 'tokens'));
    expect(() => task.reread(wordless as typeof line)).toThrow(/no tokens/);
  });

  it('rejects prompts after which the context has no room for an image, and no others', async () => {
    const policy = world.config['policy'];
    const { length } = (await task.promptOf(task.trainingSample(0))).tokens.ids;
    const asked = async (room: number): Promise<number> => {
      const model_context_size = length + room;
      const tight = ImageEditTask.open(
        smallSettings(world, { policy: { ...policy, model_context_size }, rollout: { max_response_tokens: 999 } }),
        () => '',
      );
      return (await tight.promptOf(tight.trainingSample(0))).tokens.ids.length;
    };
    // A header, the image token, three rows of three codes, and the ends of the frame, the image and the answer.
    const image = 3 + 1 + 3 * 4 + 3;
    expect(await asked(image)).toBe(length);
    await expect(asked(image - 1)).rejects.toThrow(DataError);
    await expect(asked(image - 1)).rejects.toThrow(/an image of 19 exceed model_context_size/);
  });

  it("spells prompts in the config's forms", async () => {
    const spelt = async (changes: Record<string, unknown>): Promise<string> => {
      const other = ImageEditTask.open(smallSettings(world, { policy: changes }), () => '');
      return other.tokenizer.decode((await other.promptOf(other.trainingSample(0))).tokens.ids);
    };
    expect(await spelt({})).toMatch(/^<\|extra_203\|> USER: <\|image start\|> .* ASSISTANT: <\|image start\|>$/);
    expect(await spelt({ chat_words: false })).toBe((await spelt({})).replace('USER: ', '').replace('ASSISTANT: ', ''));
  });

  it("rejects a dataset in another image tokenizer's codes", () => {
    const list = openDatalist(smallSettings(world, {}).data.train[0].path);
    const opened = (tokenizer: string): ImageEditTask => {
      const path = join(root, 'coded.json');
      const path_list = list.ids.map((_, i) => list.file(i));
      writeFileSync(path, JSON.stringify({ path_list, tokenizer }));
      return ImageEditTask.open(smallSettings(world, { data: { train: [{ path }] } }), () => '');
    };
    expect(opened(task.environment.id).trainingSample(0).instruction).not.toBe('');
    expect(() => opened('0'.repeat(64))).toThrow('the samples are written in the codes of another image tokenizer');
  });

  it('rejects an image tokenizer with other codes than the vocabulary', () => {
    const other = join(root, 'other');
    mkdirSync(other, { recursive: true });
    writeFileSync(join(other, 'tokenizer.json'), jointVocabularyJson([], 7));
    const settings = smallSettings(world, { policy: { tokenizer: other } });
    expect(() => ImageEditTask.open(settings, () => '')).toThrow(/16 codes, but the policy's vocabulary has 7/);
  });
});
