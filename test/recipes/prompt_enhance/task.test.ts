import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { ImageModel, MadeImage, ImageRequest } from '../../../src/train/environments/image_model.js';
import type { TokenAnswer } from '../../../src/train/policies/tokens/batch.js';
import { END } from '../../../src/recipes/shared/words/vocabulary.js';
import { openTextTask } from '../../../src/recipes/text_answers/task.js';
import { checkPrompts, EnhanceTask } from '../../../src/recipes/prompt_enhance/task.js';
import { testFolders } from '../../support/folder.js';
import type { Sections } from '../small_config.js';
import { smallSettings } from './small.js';

const newFolder = testFolders('enhance-task');

/** Notes what is asked, and paints each request's place. */
class Painter implements ImageModel {
  readonly asked: ImageRequest[] = [];
  closed = 0;

  constructor(private readonly refuses: (request: ImageRequest) => boolean = () => false) {}

  generate(requests: readonly ImageRequest[]): Promise<MadeImage[]> {
    this.asked.push(...requests);
    return Promise.resolve(
      requests.map((request, i): MadeImage =>
        this.refuses(request)
          ? { kind: 'unavailable', reason: 'refused', detail: 'no crosses here' }
          : { kind: 'made', image: { width: 1, height: 1, data: Uint8Array.of(i, i, i) } },
      ),
    );
  }

  close(): Promise<void> {
    this.closed += 1;
    return Promise.resolve();
  }
}

const rows = [
  { prompt: 'a crimson crux', expected: 'a red cross', level: 3 },
  { prompt: 'a cobalt tile', expected: 'a blue square' },
];

async function open(painter: Painter, changes: Sections = {}): Promise<EnhanceTask> {
  const folder = join(newFolder(), 'odd');
  mkdirSync(folder);
  const path = join(folder, 'train.jsonl');
  writeFileSync(path, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
  const data = { train: [{ path }], validation: [{ path }] };
  const settings = smallSettings({ data, prompt: { template: '{prompt} means' }, ...changes });
  return new EnhanceTask(settings, await openTextTask(settings, () => ''), painter);
}

async function answerOf(task: EnhanceTask, text: string): Promise<TokenAnswer> {
  const { tokenizer } = task.words.words;
  const ids = [
    ...(await tokenizer.encode(text, { addSpecial: false })),
    (tokenizer as never as { id: (t: string) => number }).id(END),
  ];
  return { ids: Int32Array.from(ids), logProbs: new Float32Array(ids.length), finished: true };
}

const keys = ['1/0/0', '1/0/1'];

describe('answers as prompts of an image model', () => {
  it('are painted, and compared with the words that the user wrote', async () => {
    const painter = new Painter();
    const task = await open(painter);
    const prompt = await task.validation[0].prompt(0);
    expect(prompt.instruction).toBe('a crimson crux');
    const answers = await Promise.all(['a red cross', 'a blue square'].map((text) => answerOf(task, text)));
    const [[first, second]] = await task.render([{ prompt, answers, keys }]);
    expect(painter.asked.map(({ key, prompt: asked }) => [key, asked])).toEqual([
      ['1/0/0', 'a red cross'],
      ['1/0/1', 'a blue square'],
    ]);
    expect(first.item).toMatchObject({
      key: '1/0/0',
      instruction: 'a crimson crux',
      answer: 'a red cross',
      source: null,
      edited: { data: Uint8Array.of(0, 0, 0) },
      row: { level: 3 },
    });
    expect(second.item.edited?.data).toEqual(Uint8Array.of(1, 1, 1));
    expect(first.record).toMatchObject({ text: 'a red cross', answer: 'a red cross', stripped: [] });
    expect(first.caption).toBe('a crimson crux → a red cross');
    await task.dispose();
    expect(painter.closed).toBe(1);
  });

  it('begin with one noise for a prompt, or each with its own', async () => {
    const seeds = async (changes: Sections): Promise<number[]> => {
      const painter = new Painter();
      const task = await open(painter, changes);
      const [one, other] = await Promise.all([task.validation[0].prompt(0), task.validation[0].prompt(1)]);
      const answers = await Promise.all(['a red cross', 'a red cross'].map((text) => answerOf(task, text)));
      await task.render([
        { prompt: one, answers, keys },
        { prompt: other, answers, keys: ['1/1/0', '1/1/1'] },
      ]);
      return painter.asked.map(({ seed }) => seed);
    };
    const same = await seeds({});
    expect(same[1]).toBe(same[0]);
    expect(same[2]).not.toBe(same[0]);
    expect(await seeds({})).toEqual(same);
    const own = await seeds({ rollout: { same_latent: false } });
    expect(new Set(own).size).toBe(4);
    expect(await seeds({ seed: 6 })).not.toEqual(same);
  });

  it('are of prompts in which the user says something', async () => {
    const task = await open(new Painter());
    expect(() => checkPrompts(task.settings, task.words.rowsUsed)).not.toThrow();
    const folder = newFolder();
    const path = join(folder, 'blank.jsonl');
    const trained = join(folder, 'trained.jsonl');
    writeFileSync(path, `${JSON.stringify(rows[0])}\n${JSON.stringify({ prompt: ' ' })}\n`);
    writeFileSync(trained, `${JSON.stringify(rows[0])}\n`);
    const blank = await open(new Painter(), { data: { train: [{ path }], validation: [] } });
    expect(() => checkPrompts(blank.settings, blank.words.rowsUsed)).toThrow(
      expect.objectContaining({ message: 'the prompt is empty', where: `${path}:2` }),
    );
    // Only the held-out rows that are evaluated.
    const heldOut = { data: { train: [{ path: trained }], validation: [{ path }] } };
    const few = await open(new Painter(), { ...heldOut, validation: { prompts: 1 } });
    expect(() => checkPrompts(few.settings, few.words.rowsUsed)).not.toThrow();
    const all = await open(new Painter(), { ...heldOut, validation: { prompts: 2 } });
    expect(() => checkPrompts(all.settings, all.words.rowsUsed)).toThrow('the prompt is empty');
  });

  it("are of rows that have the user's own words, whatever else a template puts in", async () => {
    const folder = newFolder();
    const path = join(folder, 'other.jsonl');
    const conversation = [{ role: 'user', content: 'a cobalt tile' }];
    const lines = [
      { words: 'a crux', prompt: conversation },
      { words: 'a tile', kind: 1 },
    ];
    writeFileSync(path, lines.map((row) => `${JSON.stringify(row)}\n`).join(''));
    const task = await open(new Painter(), {
      data: { train: [{ path }], validation: [{ path }] },
      prompt: { chat: false, system: null, template: '{words} means' },
    });
    expect((await task.validation[0].prompt(0)).instruction).toBe('a cobalt tile');
    const missing = "the row has no column 'prompt'; found: words, kind";
    expect(() => checkPrompts(task.settings, task.words.rowsUsed)).toThrow(
      expect.objectContaining({ message: missing, where: `${path}:2` }),
    );
    await expect(task.validation[0].prompt(1)).rejects.toThrow(missing);
  });

  it('without an image say why, and an empty one is painted as it is', async () => {
    const painter = new Painter(({ prompt }) => prompt.includes('cross'));
    const task = await open(painter);
    const prompt = await task.prompt(0);
    const answers = await Promise.all(['a red cross', ''].map((text) => answerOf(task, text)));
    const [[refused, empty]] = await task.render([{ prompt, answers, keys }]);
    expect(refused.item).toMatchObject({ edited: null, unavailable: { reason: 'refused', detail: 'no crosses here' } });
    expect(empty.item.unavailable).toBeUndefined();
    expect(empty.item.edited).not.toBeNull();
    expect(painter.asked[1].prompt).toBe('');
  });
});
