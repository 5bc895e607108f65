import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import type { RgbImage } from '../../../src/core/images/image.js';
import { RandomStream } from '../../../src/core/random.js';
import { pixelCodec } from '../../../src/train/environments/image_codec.js';
import { FlowEditor } from '../../../src/train/policies/flow/editor.js';
import { Reader, type StatesRequest } from '../../../src/train/policies/tokens/hidden_states.js';
import type { FlowTransformerConfig } from '../../../src/compute/nets/flow/config.js';
import { partOf } from '../../../src/compute/nets/vision/config.js';
import { TokenPolicy } from '../../../src/train/policies/tokens/policy.js';
import { StatesReader, OwnDrawing, type ResponseAnswer } from '../../../src/recipes/edit_response/drawing.js';
import { checkSources, longestEdit } from '../../../src/recipes/edit_response/open.js';
import { ResponseTask } from '../../../src/recipes/edit_response/task.js';
import type { OwnEditor } from '../../../src/config/schema/editor.js';
import { openEditData, openVisionEditTask } from '../../../src/recipes/shared/images/edits.js';
import { startingVisionModel } from '../../../src/recipes/shared/images/vision.js';
import type { TextPrompt } from '../../../src/recipes/shared/words/task.js';
import { imageEditData } from '../../../src/data/tiny/image_edits.js';
import type { RecordedEpisode } from '../../../src/run/episodes.js';
import { plain } from '../../data/image_files.js';
import { smallFlow } from '../../train/policies/flow/small_flow.js';
import { testFolder } from '../../support/folder.js';
import { drawing as drawingConfig, joining, smallSettings } from './small.js';

const dir = testFolder('response-task');
const list = (split: string) => [{ path: join(dir, 'tiny', 'pictured', `${split}.jsonl`) }];
const { data } = smallSettings();
const base = { data: { ...data, dir, train: list('prompts'), validation: list('validation') } };
const opened: { dispose(): Promise<void> }[] = [];

/** The task with a small model that reads and another that draws, both of random weights, and all that was read. */
async function open(
  changes: Parameters<typeof smallSettings>[0] = {},
  guidance: number | null = null,
  draws: FlowTransformerConfig = drawingConfig,
) {
  const settings = smallSettings({ ...base, ...changes });
  const pictured = await openVisionEditTask(settings, await openEditData(settings), () => '');
  const model = startingVisionModel(settings, pictured.words.format, pictured.seeing, () => '');
  const reader = new Reader(model, { session: { threads: 1 } });
  const items: StatesRequest[] = [];
  const editor = new FlowEditor(
    smallFlow('all', 1, draws),
    pixelCodec,
    { type: 'tiny', steps: 2, guidance, batch: 4, session: { threads: 1 } },
    'here',
  );
  const environment = settings.environment as OwnEditor;
  const drawing = new OwnDrawing({
    editor,
    codec: pixelCodec,
    mostPixels: environment.max_pixels,
    reader: new StatesReader(environment, {
      read: (asked) => {
        items.push(...asked);
        return reader.read(asked, model.weights);
      },
    }),
  });
  const task = new ResponseTask(pictured, environment, drawing);
  opened.push(task, reader);
  return { task, items, pictured, drawing, settings };
}

const answer = (...ids: number[]): ResponseAnswer => ({
  ids: Int32Array.from(ids),
  logProbs: new Float32Array(ids.length),
  finished: false,
});
const ask = (prompt: TextPrompt, ...answers: ResponseAnswer[]) => ({
  prompt,
  answers,
  keys: answers.map((_, i) => `${prompt.id}/${i}`),
});

describe('the task of edit_response', () => {
  beforeAll(() => imageEditData.make(smallSettings(base), null, () => {}));
  afterAll(() => Promise.all(opened.map((one) => one.dispose())));

  it('judges an image of exactly the sampled tokens, with states from the image on', async () => {
    const { task, items } = await open();
    const prompt = await task.prompt(0);
    const [[first, second, again]] = await task.render(
      [ask(prompt, answer(9, 10, 11), answer(12, 7), answer(9, 10, 11))],
      'current',
    );
    expect(items.map(({ answer: ids, prompt: { ids: asked }, from }) => [[...(ids ?? [])], asked, from])).toEqual(
      [
        [9, 10, 11],
        [12, 7],
        [9, 10, 11],
      ].map((ids) => [ids, prompt.tokens.ids, 0]),
    );
    expect(first.item.edited).toMatchObject({ width: 32, height: 32 });
    expect(first.item.source).toMatchObject({ width: 32, height: 32 });
    expect(first.item.edited!.data).not.toEqual(second.item.edited!.data);
    // The same words are the same image: all of a prompt's begin with the same noise.
    expect(again.item.edited!.data).toEqual(first.item.edited!.data);
    expect(first.caption).toBe(`${prompt.instruction} → ${first.item.answer}`);
  });

  it('is guided by a blank instruction with the same image, read from the image on', async () => {
    const { task, items, pictured } = await open({}, 3);
    const prompt = await task.prompt(0);
    const [[guided]] = await task.render([ask(prompt, answer(9, 10), answer(7))], 'current');
    expect(items).toHaveLength(3);
    const { prompt: asked, answer: said, from } = items[2];
    expect([said, from]).toEqual([null, 0]);
    expect(asked.images).toEqual(prompt.tokens.images);
    const { image_token_id, vision_start_token_id, vision_end_token_id } = pictured.seeing.tokens;
    const shown = prompt.tokens.ids.filter((id) => id === image_token_id).length;
    expect(asked.ids).toEqual([
      vision_start_token_id,
      ...Array<number>(shown).fill(image_token_id),
      vision_end_token_id,
    ]);
    const { task: plain } = await open();
    const [[unguided]] = await plain.render([ask(prompt, answer(9, 10))], 'current');
    expect(guided.item.edited!.data).not.toEqual(unguided.item.edited!.data);
  });

  it('counts the tokens of its longest edit, with the longest answer, and of its blank instruction', async () => {
    const settings = smallSettings({ ...base, policy: { model_context_size: 40 } });
    const pictured = await openVisionEditTask(settings, await openEditData(settings), () => '');
    const prompts = await Promise.all(
      [...pictured.words.rowsUsed].flatMap(([source, rows]) =>
        Array.from({ length: rows }, (_, index) => pictured.words.promptOf(source, index)),
      ),
    );
    const most = Math.max(...prompts.map(({ tokens }) => tokens.ids.length));
    const least = Math.min(...prompts.map(({ tokens }) => tokens.ids.length));
    expect(most).toBeGreaterThan(least);
    const shown = prompts[0].tokens.ids.filter((id) => id === pictured.seeing.tokens.image_token_id).length;
    expect(shown).toBe(pictured.seeing.processor.tokensOf({ width: 32, height: 32 }));
    expect(await longestEdit(pictured, settings)).toEqual({ edit: most + 8, blank: shown + 2 });
    // What is not told is not counted.
    const instructed = { ...settings, environment: { ...settings.environment!, told: 'instruction' as const } };
    expect(await longestEdit(pictured, instructed)).toEqual({ edit: most, blank: shown + 2 });
    // Prompt and answer fill the context together.
    const tight = smallSettings({ ...base, policy: { model_context_size: most + 3 } });
    expect(await longestEdit(pictured, tight)).toEqual({ edit: most + 3, blank: shown + 2 });
  });

  it('gives the same image whatever else is drawn with it, and however long the others are', async () => {
    const { task } = await open();
    const [one, other] = [await task.prompt(0), await task.prompt(1)];
    const long = answer(...Array.from({ length: 20 }, (_, i) => 6 + i));
    const [[alone]] = await task.render([ask(one, answer(9, 10))], 'current');
    const [, [beside]] = await task.render([ask(other, long), ask(one, answer(9, 10))], 'current');
    expect(beside.item.edited!.data).toEqual(alone.item.edited!.data);
  });

  it('learns in the decoder and the connector alone: what sees and what draws stay as they are, to the bit', async () => {
    const { pictured } = await open();
    const settings = smallSettings(base);
    const model = startingVisionModel(settings, pictured.words.format, pictured.seeing, () => '');
    const policy = new TokenPolicy({
      model,
      optimizer: settings.optimizer,
      contextSize: settings.policy.model_context_size,
      constrained: false,
      separateVocabularies: false,
      learner: { temperature: 1, microBatch: 4, gradientCheckpointing: false },
      sessions: { sampling: { threads: 1 }, learning: { threads: 1 } },
      keepReference: true,
    });
    const draws = smallFlow('all', 1, drawingConfig);
    const editor = new FlowEditor(
      draws,
      pixelCodec,
      { type: 'tiny', steps: 2, guidance: null, batch: 4, session: { threads: 1 } },
      '',
    );
    const bitsOf = (weights: typeof model.weights) =>
      [...weights].map(([name, { data }]) => [name, data.slice()] as const);
    const [weights, drawn] = [bitsOf(model.weights), bitsOf(draws.weights)];
    const environment = settings.environment as OwnEditor;
    const prompt = await pictured.words.prompt(0);
    const written = answer(9, 10, 11);
    const imageOf = async (read_by: 'policy' | 'start') => {
      const reader = new StatesReader({ ...environment, read_by }, policy);
      const drawing = new OwnDrawing({ editor, codec: pixelCodec, mostPixels: null, reader });
      const [[rendered]] = await new ResponseTask(pictured, environment, drawing).render(
        [ask(prompt, written)],
        'current',
      );
      return rendered.item.edited!.data;
    };
    const before = await imageOf('start');
    expect(await imageOf('policy')).toEqual(before);

    const target = { weights: new Float32Array(3).fill(1 / 3), advantages: 1, reference: null, old: null };
    await policy.learn([{ prompt, answers: [written], targets: [target] }], { policy: 'reinforce', kl: null });
    await policy.step(0.05);
    for (const [name, data] of weights) {
      const now = model.weights.get(name)!.data;
      if (partOf(name) === 'mm_vision') expect(now, name).toEqual(data);
    }
    expect(model.weights.get('lm_head.weight')!.data).not.toEqual(new Map(weights).get('lm_head.weight'));
    expect(await imageOf('start')).toEqual(before);
    expect(await imageOf('policy')).not.toEqual(before);
    expect(bitsOf(draws.weights)).toEqual(drawn);
    await Promise.all([policy.dispose(), editor.dispose()]);
  });

  it('gets only the instruction if the settings choose that, so that no word has any effect', async () => {
    const { task, items } = await open({
      algorithm: { type: 'sft' },
      environment: { told: 'instruction' },
    });
    const prompt = await task.prompt(0);
    const [[first, second]] = await task.render([ask(prompt, answer(9, 10, 11), answer(12))], 'current');
    expect(items.map(({ answer: ids }) => ids)).toEqual([null, null]);
    expect(second.item.edited!.data).toEqual(first.item.edited!.data);
  });

  it('records what is judged, so that it is judged again without the policy', async () => {
    const { task, items, pictured } = await open();
    const prompt = await task.prompt(2);
    const [[rendered]] = await task.render([ask(prompt, answer(9, 10, 11))], 'current');
    const record = { key: 'k', finished: false, ...rendered.record } as unknown as RecordedEpisode;
    const read = items.length;
    const [[again]] = await task.render([ask(prompt, task.reread(record))], 'current');
    expect(again.item.edited).toEqual(rendered.item.edited);
    expect(again.item.answer).toBe(rendered.item.answer);
    expect(items).toHaveLength(read);
    expect(() => pictured.words.reread({ ...record, tokens: undefined } as never)).toThrow(/has no tokens/);
    expect(() => task.reread({ ...record, latents: undefined } as never)).toThrow(/has no latents/);
  });

  it('rejects an image of odd sides, or fits it if it may', async () => {
    const rows = join(dir, 'odd.jsonl');
    writeFileSync(join(dir, 'odd.png'), plain(45, 30, [200, 10, 10]));
    writeFileSync(rows, JSON.stringify({ source: 'odd.png', instruction: 'remove it' }));
    const odd = { data: { ...base.data, train: [{ path: rows }] } };
    const { task } = await open(odd);
    const prompt = await task.prompt(0);
    await expect(task.render([ask(prompt, answer(9))], 'current')).rejects.toMatchObject({
      message: expect.stringMatching(/odd\.png: found 45x30 pixels; allowed: multiples of 4$/) as string,
      next: expect.stringMatching(/environment\.max_pixels/) as string,
    });
    const { task: fitting } = await open({ ...odd, environment: { max_pixels: 1000 } });
    const [[{ item }]] = await fitting.render([ask(await fitting.prompt(0), answer(9))], 'current');
    expect([item.source, item.edited].map((image) => [image!.width, image!.height])).toEqual([
      [36, 24],
      [36, 24],
    ]);
  });

  describe('where a row has several images', () => {
    const rows = join(dir, 'several.jsonl');
    const several = { data: { ...base.data, train: [{ path: rows }] } };
    const list = (...sources: unknown[]) =>
      writeFileSync(rows, sources.map((source) => JSON.stringify({ source, instruction: 'remove it' })).join('\n'));
    beforeAll(() => {
      writeFileSync(join(dir, 'one.png'), plain(32, 32, [200, 10, 10]));
      writeFileSync(join(dir, 'wide.png'), plain(64, 16, [10, 200, 10]));
      writeFileSync(join(dir, 'tall.png'), plain(16, 64, [10, 10, 200]));
    });

    it('shows all of them to what reads and what draws, and judges the edited first one beside them', async () => {
      list(['one.png', 'wide.png', 'tall.png'], ['one.png', 'tall.png', 'wide.png'], 'one.png', ['one.png']);
      const { task, items, pictured, drawing } = await open(
        { ...several, policy: { model_context_size: 96 } },
        3,
        joining,
      );
      const asked = vi.spyOn(drawing, 'draw');
      const prompts = await Promise.all(
        [0, 1, 2, 3].map((at) => pictured.words.promptOf(pictured.words.data.train[0], at)),
      );
      const { image_token_id: image, vision_start_token_id: start, vision_end_token_id: end } = pictured.seeing.tokens;
      const tokens = prompts[0].tokens.images!.map(({ grid }) => (grid.rows * grid.columns) / 4);
      expect(tokens).toEqual([16, 16, 16]);
      const place = [start, ...Array<number>(16).fill(image), end];
      expect(prompts[0].tokens.ids.slice(0, 54)).toEqual([...place, ...place, ...place]);
      const drawn = await task.render(
        prompts.map((prompt) => ask(prompt, answer(9, 10))),
        'current',
      );
      const [[whole], [turned], [alone], [listed]] = drawn;
      expect(whole.item.edited).toMatchObject({ width: 32, height: 32 });
      expect(whole.item.beside!.map(({ width, height }) => [width, height])).toEqual([
        [64, 16],
        [16, 64],
      ]);
      expect(whole.item.row!['source']).toEqual(['one.png', 'wide.png', 'tall.png']);
      // Records say how many there were, and scoring again finds them in the data.
      expect(drawn.map(([{ record }]) => record['beside'])).toEqual([2, 2, undefined, undefined]);
      expect((await task.labels(prompts[0])).beside).toEqual(whole.item.beside);
      expect(task.sources).toBe(3);
      expect(await task.labels(prompts[2])).not.toHaveProperty('beside');
      const [[edits]] = asked.mock.calls;
      expect(edits.map(({ further }) => further)).toEqual(drawn.map(([{ item }]) => item.beside ?? []));
      // The same states and noise draw another image from other images.
      const drawnFrom = (further: RgbImage[]) =>
        drawing.draw([{ ...edits[0], further, random: new RandomStream('again') }], 'current');
      const [first, second] = whole.item.beside!;
      const from = await Promise.all([[first, second], [first, second], [second, first], [first], []].map(drawnFrom));
      const [both, same, ...others] = from.map(([{ image }]) => image);
      expect(same).toEqual(both);
      for (const other of others) expect(other).not.toEqual(both);
      expect(turned.item.beside!.map(({ width }) => width)).toEqual([16, 64]);
      for (const { item } of [alone, listed]) expect(item).not.toHaveProperty('beside');
      expect(turned.item.edited!.data).not.toEqual(whole.item.edited!.data);
      expect(alone.item.edited!.data).not.toEqual(whole.item.edited!.data);
      // Blank instructions are read with the images of their own rows, once for each list of images.
      const blanks = items.filter(({ answer: said }) => said === null);
      expect(blanks.map(({ prompt }) => prompt.images!.length)).toEqual([3, 3, 1]);
      // A row of one image is drawn as without the others.
      list('one.png');
      const { task: single, pictured: bare } = await open(
        { ...several, policy: { model_context_size: 96 } },
        3,
        joining,
      );
      const prompt = { ...(await bare.words.promptOf(bare.words.data.train[0], 0)), id: prompts[2].id };
      const [[again]] = await single.render([ask(prompt, answer(9, 10))], 'current');
      expect(again.item.edited!.data).toEqual(alone.item.edited!.data);
    });

    const named = { endpoint: 'http://127.0.0.1:1', model: 'm' };
    it.each<readonly [string, Parameters<typeof smallSettings>[0], FlowTransformerConfig, RegExp | null]>([
      ['what draws is shown one', { reward: named }, drawingConfig, /; the model of environment\.model is shown one$/],
      ['the judge is the rule judge', {}, joining, /; reward 'align_quality' shows the judge only one$/],
      [
        'a question shows one',
        { reward: { ...named, terms: [{ name: 'viescore', weight: 1 }] } },
        joining,
        /; reward 'viescore' shows the judge only one$/,
      ],
      ['nothing takes one', { reward: named }, joining, null],
      ['nobody is asked', { reward: { terms: [{ name: 'jpeg_size', weight: 1 }] } }, joining, null],
    ])('is rejected by the first of them where %s', async (_, changes, draws, message) => {
      list('one.png', ['one.png', 'wide.png', 'tall.png'], ['one.png', 'one.png']);
      const { pictured, settings, drawing } = await open({ ...several, ...changes }, null, draws);
      const check = () => checkSources(pictured, settings, drawing);
      if (message === null) check();
      else {
        expect(check).toThrow(message);
        expect(check).toThrow('2 of 6 rows have several source images (this one has 3);');
        expect(check).toThrow(expect.objectContaining({ where: `${rows}:2` }));
      }
      list('one.png', ['tall.png']);
      const { pictured: plainly } = await open({ ...several, ...changes }, null, draws);
      checkSources(plainly, settings, drawing);
    });
  });
});
