import { cpSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { DataError } from '../../../src/core/errors.js';
import type { RecordedEpisode } from '../../../src/run/episodes.js';
import { wordLabels } from '../../../src/recipes/shared/words/training.js';
import type { TextPrompt, WordsTask } from '../../../src/recipes/shared/words/task.js';
import type { TextAnswersSettings } from '../../../src/recipes/text_answers/settings.js';
import { openTextTask } from '../../../src/recipes/text_answers/task.js';
import { FIXTURES, readFixture, type Chats } from '../../models/python_fixtures.js';
import { testFolders } from '../../support/folder.js';
import { smallSettings } from './small.js';

const newFolder = testFolders('text-task');
const { chats } = readFixture<Chats>('chats.json');
const chatml = chats['chatml'].template;

/** A folder with a tokenizer of Hugging Face's, this template, and several ends of answers. */
function modelOf(template: string | null = chatml): string {
  const folder = newFolder();
  cpSync(join(FIXTURES, 'qwen2'), folder, { recursive: true });
  if (template !== null) writeFileSync(join(folder, 'chat_template.jinja'), template);
  writeFileSync(join(folder, 'generation_config.json'), JSON.stringify({ eos_token_id: [420, 422] }));
  return folder;
}

interface Given {
  readonly rows: readonly object[];
  readonly heldOut?: readonly object[];
  readonly model?: string;
  readonly policy?: Readonly<Record<string, unknown>>;
  readonly [section: string]: unknown;
}

function open({
  rows,
  heldOut = rows,
  model = modelOf(),
  policy = {},
  ...sections
}: Given): Promise<WordsTask<TextAnswersSettings>> {
  const folder = join(newFolder(), 'sums');
  mkdirSync(folder);
  const file = (name: string, of: readonly object[]): { path: string } => {
    const path = join(folder, name);
    writeFileSync(path, of.map((row) => `${JSON.stringify(row)}\n`).join(''));
    return { path };
  };
  const data = { train: [file('train.jsonl', rows)], validation: [file('held_out.jsonl', heldOut)], tiny: null };
  const { columns } = sections as { columns?: object };
  const settings = smallSettings({
    ...Object.fromEntries(Object.entries(sections).filter(([name]) => name !== 'columns')),
    policy: { init: null, model, ...policy },
    data: { ...data, columns: columns ?? {} },
  });
  return openTextTask(settings, () => '');
}

const sums = [1, 2, 3].map((n) => ({ prompt: `What is ${n} + ${n}?`, answer: String(2 * n) }));
const labels = { columns: { expected: 'answer' } };
const idsOf = async (task: WordsTask, text: string): Promise<number[]> => [
  ...(await task.words.tokenizer.encode(text)),
];
const answer = (ids: readonly number[], finished: boolean) => ({
  ids: Int32Array.from(ids),
  logProbs: new Float32Array(ids.length),
  finished,
});
const asked = (task: WordsTask, { tokens }: TextPrompt): string => task.words.tokenizer.decode(tokens.ids);

describe('a prompt', () => {
  it('is written by the model\u2019s template, up to what the answer begins with', async () => {
    const task = await open({
      rows: sums,
      ...labels,
      prompt: { system: 'Be brief.' },
      policy: { assistant_prefill: 'It is' },
    });
    const prompt = await task.validation[0].prompt(1);
    expect(asked(task, prompt)).toBe(
      '<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhat is 2 + 2?<|im_end|>\n<|im_start|>assistant\nIt is',
    );
    expect(prompt).toMatchObject({
      id: 'held_out.jsonl:2',
      instruction: 'What is 2 + 2?',
      sourcePng: null,
      expected: '4',
    });
    expect(prompt.row).toEqual(sums[1]);
    expect(await task.labels(prompt)).toEqual({ truth: null, expected: '4' });
    expect(task.validation[0]).toMatchObject({ name: 'sums', length: 3 });
  });

  it('is bare words without chat, with what the tokenizer puts around them', async () => {
    const task = await open({ rows: sums, model: modelOf(null), prompt: { chat: false } });
    const prompt = await task.validation[0].prompt(0);
    expect(prompt.tokens.ids).toEqual(await task.words.tokenizer.encode('What is 1 + 1?', { addSpecial: true }));
    expect(prompt).not.toHaveProperty('expected');
    expect(await task.labels(prompt)).toEqual({ truth: null });
  });
});

describe('prompts are checked before the first answer', () => {
  const long = { prompt: `What is ${'1 + '.repeat(40)}1?`, answer: '41' };

  it('and are counted where the context is too small, held-out ones that are asked among them', async () => {
    const task = await open({
      rows: [sums[0], long, long],
      heldOut: [sums[0], long, long, long],
      ...labels,
      validation: { prompts: 2 },
    });
    const checking = task.checkPrompts();
    await expect(checking).rejects.toThrow(DataError);
    await expect(checking).rejects.toThrow(
      /^3 of 5 prompts are too long: the first, of \d+ tokens, leaves no room for an answer: model_context_size is 64$/,
    );
    await expect(checking).rejects.toMatchObject({ where: expect.stringMatching(/sums\/train\.jsonl:2$/) as string });
    await expect(task.validation[0].prompt(1)).rejects.toThrow(/^a prompt of \d+ tokens leaves no room for an answer/);
    await expect(task.validation[0].prompt(1)).rejects.toMatchObject({
      where: expect.stringMatching(/held_out\.jsonl:2$/) as string,
    });
  });

  it('to the token', async () => {
    const task = await open({ rows: sums, ...labels });
    const longest = Math.max(
      ...(await Promise.all(sums.map(async (_, i) => (await task.prompt(i)).tokens.ids.length))),
    );
    const within = (model_context_size: number) =>
      openTextTask({ ...task.settings, policy: { ...task.settings.policy, model_context_size } }, () => '');
    await expect((await within(longest + 1)).checkPrompts()).resolves.toBeUndefined();
    await expect((await within(longest)).checkPrompts()).rejects.toThrow(/of 6 prompts are too long/);
  });

  it('and the row is named that lacks a label which the reward compares with', async () => {
    const rows = [sums[0], { prompt: 'a', answer: null }];
    const checking = (await open({ rows, ...labels })).checkPrompts();
    await expect(checking).rejects.toThrow("the row has no labeled answer, and reward 'word_overlap' needs one");
    await expect(checking).rejects.toMatchObject({ where: expect.stringMatching(/train\.jsonl:2$/) as string });
    const terms = [{ name: 'module', weight: 1, module: 'own.js' }];
    const other = await open({ rows, ...labels, reward: { mode: null, terms } });
    await expect(other.checkPrompts()).resolves.toBeUndefined();
  });

  it('with their labels where these are learned', async () => {
    const supervised = { algorithm: { type: 'sft', sft: { batch_size: 4 } }, ...labels };
    const without = await open({ rows: [sums[0], { prompt: 'a', answer: null }], ...supervised });
    await expect(without.checkPrompts()).rejects.toThrow('no labeled answer, and supervised training needs one');
    const task = await open({ rows: [sums[0], { prompt: 'a', answer: 'x y z '.repeat(4) }], ...supervised });
    const [{ prompt, answer: label }] = (await wordLabels(task, { size: 1, prompts: 2 }).heldOutBatch()).slice(1);
    const within = (model_context_size: number) =>
      openTextTask({ ...task.settings, policy: { ...task.settings.policy, model_context_size } }, () => '');
    const tokens = prompt.tokens.ids.length + label.ids.length;
    await expect((await within(tokens)).checkPrompts()).resolves.toBeUndefined();
    await expect((await within(tokens - 1)).checkPrompts()).rejects.toThrow(
      /^2 of 4 prompts with their labeled answers are too long/,
    );
  });
});

describe('an answer', () => {
  const thinking = { thinking: { open: '<think>', close: '</think>' } };

  it('ends at any of the ends, which are no words of it', async () => {
    const task = await open({ rows: sums, ...labels });
    expect([...task.format.ends].sort()).toEqual([420, 422]);
    expect(task.words.end).toBe(422);
    const prompt = await task.prompt(0);
    const four = await idsOf(task, 'four');
    const answers = [answer([...four, 420], true), answer([...four, 422], true), answer(four, false)];
    const [rendered] = await task.render([{ prompt, answers, keys: ['a', 'b', 'c'] }]);
    expect(rendered.map(({ item }) => item.answer)).toEqual(['four', 'four', 'four']);
    expect(rendered.map(({ item }) => item.finished)).toEqual([true, true, false]);
    expect(rendered[0].item).toEqual({
      key: 'a',
      instruction: prompt.instruction,
      source: null,
      edited: null,
      truth: null,
      answer: 'four',
      expected: prompt.expected,
      row: prompt.row,
      finished: true,
    });
    expect(rendered[0].record).toEqual({ text: 'four', expected: prompt.expected, tokens: [...four, 420] });
  });

  it('begins with what it is made to begin with', async () => {
    const task = await open({ rows: sums, policy: { assistant_prefill: 'It is ' } });
    const [[{ item, record }]] = await task.render([
      { prompt: await task.prompt(0), answers: [answer(await idsOf(task, 'four'), false)], keys: ['a'] },
    ]);
    expect([item.answer, record['text']]).toEqual(['It is four', 'It is four']);
  });

  it('is what stands after the thoughts, and both are recorded', async () => {
    const task = await open({ rows: sums, policy: thinking });
    const text = '<think>two twos</think> 4';
    const answers = [answer(await idsOf(task, text), false), answer(await idsOf(task, '<think>two'), false)];
    const [[whole, cut]] = await task.render([{ prompt: await task.prompt(0), answers, keys: ['a', 'b'] }]);
    expect([whole.item.answer, cut.item.answer]).toEqual(['4', '']);
    expect(whole.record).toMatchObject({ text, answer: '4' });
  });

  it('is taken back from its record', async () => {
    const task = await open({ rows: sums, ...labels, policy: thinking });
    const prompt = await task.prompt(0);
    const ids = [...(await idsOf(task, '<think>x</think>4')), 422];
    const [[{ item, record }]] = await task.render([{ prompt, answers: [answer(ids, true)], keys: ['x'] }]);
    const outcome = { kind: 'zero_by_rule', reason: 'unfinished', parts: {} } as const;
    const line = { key: 'x', sample: prompt.id, instruction: prompt.instruction, finished: true, outcome, ...record };
    const reread = task.reread(line);
    expect(reread.ids).toEqual(Int32Array.from(ids));
    const [[again]] = await task.render([{ prompt, answers: [reread], keys: ['x'] }]);
    expect(again.item).toEqual(item);
    const wordless = Object.fromEntries(Object.entries(line).filter(([name]) => name !== 'tokens'));
    expect(() => task.reread(wordless as unknown as RecordedEpisode)).toThrow(/no tokens/);
  });
});

describe('labels', () => {
  it('are the labeled answers with the model\u2019s own end, without what they begin with anyway', async () => {
    const rows = [{ prompt: 'How many?', answer: 'It is four' }];
    const task = await open({ rows, ...labels, policy: { assistant_prefill: 'It is ' } });
    const [{ prompt, answer: label, weights }] = await wordLabels(task, { size: 1, prompts: 0 }).batch(1);
    expect([...label.ids]).toEqual([...(await idsOf(task, 'four')), 422]);
    expect(asked(task, prompt)).toMatch(/It is $/);
    expect([...weights]).toEqual(Array.from(label.ids, () => 1));
  });

  it('come in the order of training, and from the first held-out rows', async () => {
    const task = await open({ rows: sums, ...labels });
    const ids = async (iteration: number) =>
      (await wordLabels(task, { size: 2, prompts: 0 }).batch(iteration)).map(({ prompt }) => prompt.id);
    const expected = await Promise.all([0, 1, 2, 3].map(async (i) => (await task.prompt(i)).id));
    expect([...(await ids(1)), ...(await ids(2))]).toEqual(expected);
    expect((await wordLabels(task, { size: 1, prompts: 2 }).heldOutBatch()).map(({ prompt }) => prompt.id)).toEqual([
      'held_out.jsonl:1',
      'held_out.jsonl:2',
    ]);
    expect(await wordLabels(task, { size: 1, prompts: 99 }).heldOutBatch()).toHaveLength(3);
  });

  it('are needed, and fit into the context', async () => {
    const without = await open({ rows: [{ prompt: 'a', answer: null }], ...labels });
    await expect(wordLabels(without, { size: 1, prompts: 0 }).batch(1)).rejects.toThrow(
      'the row has no labeled answer',
    );
    const long = await open({ rows: [{ prompt: 'a', answer: 'x y z '.repeat(30) }], ...labels });
    await expect(wordLabels(long, { size: 1, prompts: 0 }).batch(1)).rejects.toThrow(
      /prompt and labeled answer have \d+ tokens; model_context_size is 64/,
    );
  });
});
