import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { validate } from '../../../src/config/validate.js';
import { toImage } from '../../../src/core/images/planes.js';
import { pixelCodec } from '../../../src/train/environments/image_codec.js';
import { sourceInputOf } from '../../../src/train/policies/flow/editor.js';
import { unpack } from '../../../src/train/policies/flow/batch.js';
import { Reader } from '../../../src/train/policies/tokens/hidden_states.js';
import { StatesOfReader } from '../../../src/recipes/image_editor/instructions.js';
import type { ImageEditorSettings } from '../../../src/recipes/image_editor/settings.js';
import { EditorTask } from '../../../src/recipes/image_editor/task.js';
import { openEditData, openVisionEditTask } from '../../../src/recipes/shared/images/edits.js';
import { startingVisionModel } from '../../../src/recipes/shared/images/vision.js';
import { imageEditData } from '../../../src/data/tiny/image_edits.js';
import type { RecordedEpisode } from '../../../src/run/episodes.js';
import { plain } from '../../data/image_files.js';
import { testFolder } from '../../support/folder.js';
import { drawing, PATCH, smallSettings } from '../edit_response/small.js';

const dir = testFolder('editor-task');
const list = (split: string) => [{ path: join(dir, 'tiny', 'pictured', `${split}.jsonl`) }];
// Its data are those of edit_response but for their sampling: nothing is asked here.
const { columns, tiny } = smallSettings().data;
const base = { data: { columns, tiny, dir, train: list('truth'), validation: list('validation') } };
const opened: { dispose(): Promise<void> }[] = [];

function settingsOf(changes: Readonly<Record<string, unknown>> = {}): ImageEditorSettings {
  const validated = validate({
    run_name: 'small',
    task: 'image_editor',
    seed: 5,
    num_iterations: 2,
    algorithm: { type: 'sft', sft: { batch_size: 4 } },
    optimizer: { learning_rate: 0.01, per_device_batch_size: 4 },
    prompt: { chat: false },
    reader: { model: 'read', ...(changes['reader'] as object | undefined) },
    policy: { init: { num_layers: 1, attention_head_dim: 12, num_attention_heads: 2, patch: PATCH } },
    data: base.data,
    reward: { mode: null, terms: [{ name: 'jpeg_size', weight: 1 }] },
  });
  if ('problems' in validated) throw new Error(JSON.stringify(validated.problems));
  return validated.settings as unknown as ImageEditorSettings;
}

/** With a model of random weights that reads. */
async function open(changes: Readonly<Record<string, unknown>> = {}, rows = base.data): Promise<EditorTask> {
  const asking = smallSettings({ data: rows });
  const edits = await openVisionEditTask(asking, await openEditData(asking), () => '');
  const model = startingVisionModel(asking, edits.words.format, edits.seeing, () => '');
  const reader = new Reader(model, { session: { threads: 1 } });
  const sourceInput = sourceInputOf(drawing, pixelCodec, 'here');
  const { data } = edits.words;
  const instructions = new StatesOfReader(edits, reader, true);
  const parts = { data, images: edits.images, instructions, codec: pixelCodec, config: drawing, sourceInput };
  const task = new EditorTask(settingsOf(changes), parts);
  opened.push(task);
  return task;
}

describe('the task of image_editor', () => {
  beforeAll(() => imageEditData.make(smallSettings(base as never), null, () => {}));
  afterAll(() => Promise.all(opened.map((one) => one.dispose())));

  it('has the source image, the hidden states of the response, and the wanted image', async () => {
    const task = await open();
    const prompt = await task.prompt(0);
    const { flow, source, target, size, instruction, response } = prompt;
    expect([flow.rows, flow.columns]).toEqual([8, 8]);
    expect(toImage(unpack(flow.context, size, PATCH)).data).toEqual(source.data);
    expect(toImage(unpack(await prompt.wanted(), size, PATCH)).data).toEqual(target!.data);
    // Picture, its marks, instruction, response and its end.
    const words = (text: string | null): number => text!.split(' ').length;
    expect(flow.textTokens).toBe(16 + 2 + words(instruction) + words(response) + 1);
    expect(await task.prompt(2)).toBe(prompt);
  });

  it('keeps the prompts of one list over two folders of images apart', async () => {
    const rows = join(dir, 'twice.jsonl');
    writeFileSync(rows, JSON.stringify({ source: 'one.png', instruction: 'x', response: 'y', target: 'one.png' }));
    const train = [1, 2].map((color) => {
      const media = join(dir, `media${color}`);
      mkdirSync(media, { recursive: true });
      writeFileSync(join(media, 'one.png'), plain(8, 8, [color, 0, 0]));
      return { path: rows, media };
    });
    const task = await open({}, { ...base.data, train });
    for (const source of [0, 1]) {
      const prompt = await task.prompt({ source, index: 0 });
      expect(prompt.source.data[0]).toBe(source + 1);
    }
  });

  it('draws from its records what was judged', async () => {
    const task = await open();
    const prompt = await task.prompt(1);
    const latents = (await prompt.wanted()).map((x) => x * 0.7);
    const chunk = (answer: Parameters<EditorTask['render']>[0][number]['answers'][number]) => [
      { prompt, answers: [answer], keys: ['k'] },
    ];
    const bare = { actions: [], logProbs: new Float32Array(0), finished: true };
    const [[first]] = await task.render(chunk({ ...bare, latents }));
    const record = { key: 'k', finished: true, ...first.record } as unknown as RecordedEpisode;
    const [[again]] = await task.render(chunk(task.reread(record)));
    expect(again.item.edited).toEqual(first.item.edited);
    expect(first.item.truth).toBe(prompt.target);
    expect(first.caption).toBe(`${prompt.instruction} → ${prompt.response}`);
  });

  it.each([
    [{ source: 'a.png', instruction: 'x', target: 'a.png' }, /the row has no response for the model/],
    [{ source: 'a.png', instruction: 'x', response: 'y' }, /the row has no edited image to learn from/],
    [{ source: 'a.png', instruction: 'x', response: 'y', target: 'b.png' }, /8x8 pixels and the edited image 8x12/],
    [{ source: 'c.png', instruction: 'x', response: 'y', target: 'c.png' }, /c\.png: found 9x8 pixels; allowed: mult/],
  ])('rejects by its row %j', async (row, message) => {
    writeFileSync(join(dir, 'a.png'), plain(8, 8, [1, 2, 3]));
    writeFileSync(join(dir, 'b.png'), plain(8, 12, [1, 2, 3]));
    writeFileSync(join(dir, 'c.png'), plain(9, 8, [1, 2, 3]));
    const rows = join(dir, 'rows.jsonl');
    writeFileSync(rows, JSON.stringify(row));
    const task = await open({}, { ...base.data, train: [{ path: rows }] });
    const wanted = async (): Promise<unknown> => (await task.prompt(0)).wanted();
    await expect(wanted()).rejects.toThrow(message);
    await expect(wanted()).rejects.toMatchObject({ where: expect.stringMatching(/rows\.jsonl:1$/) as string });
  });
});
