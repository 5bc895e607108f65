/** The overlays of real editors over small pipelines of diffusers: prompts as the pipelines make them, and one iteration of LoRA. */
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { loadConfig } from '../../../src/config/load.js';
import { must } from '../../../src/core/errors.js';
import { readSafetensors, readSafetensorsIndex } from '../../../src/core/safetensors.js';
import { encodePng } from '../../../src/core/images/image.js';
import { imageEditor } from '../../../src/recipes/image_editor/open.js';
import type { ImageEditorSettings } from '../../../src/recipes/image_editor/settings.js';
import type { EditorTask } from '../../../src/recipes/image_editor/task.js';
import { unconditional } from '../../../src/train/policies/flow/rows.js';
import { sampledIn } from '../../../src/recipes/shared/flow/rewards.js';
import { plain } from '../../data/image_files.js';
import { testFolders } from '../../support/folder.js';
import { learnOnce } from './one_iteration.js';

const newFolder = testFolders('real-forms');
const fixtures = join(import.meta.dirname, '../../train/policies/flow/fixtures');
const opened: { dispose(): Promise<void> }[] = [];
afterAll(() => Promise.all(opened.map((one) => one.dispose())));

const SMALL = `{
  optimizer+: { learning_rate: 1e-2 },
  rollout: super.rollout + { episodes_per_iteration: 4, generations_per_sample: 4, num_steps: 3, sde_window: null, timestep_fraction: 0.7 },
  policy+: { lora+: { rank: 2, alpha: 4 }, engine: { provider: 'cpu', threads: 1, dtype: 'float32' } },
}`;
const READS_SMALL = `{
  reader+: { pixels: { image: { min_pixels: 64, max_pixels: 65536 } }, engine: { provider: 'cpu', threads: 1, dtype: 'float32' } },
  reward+: { mode: null, terms: [{ name: 'align_quality', weight: 1 }] },
}`;
/** What a small pipeline needs in place of the real one, and the file of what diffusers computes with it. */
const forms = {
  kontext: { pipeline: 'flux', folder: 'flux-kontext', small: SMALL },
  klein: { pipeline: 'klein', folder: 'flux2-klein', small: SMALL },
  qwen_image_edit: { pipeline: 'qwen_edit', folder: 'qwen-image-edit', small: `${SMALL} + ${READS_SMALL}` },
} as const;

function expectedIn(file: string): (name: string) => Float32Array {
  const path = join(fixtures, file);
  const found = readSafetensors(path, [...readSafetensorsIndex(path).entries.keys()]);
  return (name) => must(found.get(name), name).data;
}

/** A folder of data with a small pipeline of a form and these rows. */
function dataWith(form: keyof typeof forms, rows: readonly object[]): string {
  const dir = newFolder();
  const { pipeline, folder } = forms[form];
  cpSync(join(fixtures, pipeline), join(dir, folder), { recursive: true });
  const index = join(dir, folder, 'model_index.json');
  writeFileSync(index, readFileSync(index, 'utf8').replace('"FluxPipeline"', '"FluxKontextPipeline"'));
  mkdirSync(join(dir, 'edits'));
  const text = rows.map((row) => `${JSON.stringify(row)}\n`).join('');
  for (const split of ['train', 'validation']) writeFileSync(join(dir, 'edits', `${split}.jsonl`), text);
  return dir;
}

/** The shipped config with the overlay of a form, in a small size. */
async function settingsOf(form: keyof typeof forms, dir: string, change = '{}'): Promise<ImageEditorSettings> {
  const small = join(dir, 'small.libsonnet');
  writeFileSync(small, `${forms[form].small} + ${change}`);
  const env = { APP__DATA_DIR: dir, APP__REWARD_FUNCTION_API_BASE: 'http://127.0.0.1:1' };
  const overlays = [`configs/lib/${form}.libsonnet`, small];
  const { settings } = await loadConfig({ file: 'configs/image_editor.jsonnet', overlays, env });
  return settings as unknown as ImageEditorSettings;
}

async function taskOf(settings: ImageEditorSettings): Promise<EditorTask> {
  const task = (await imageEditor.openTask(settings, () => '')) as unknown as EditorTask;
  opened.push(task);
  return task;
}

/** The messages of the checks before a run. */
function problems(settings: ImageEditorSettings): string[] {
  return imageEditor
    .checks(settings, () => null)
    .flatMap((check) => {
      try {
        check.run();
        return [];
      } catch (error) {
        return [(error as Error).message];
      }
    });
}

/** Rows with too many images are found by the checks, once for each dataset. Other problems are found when the task opens. */
function expectManyFound(settings: ImageEditorSettings, message: RegExp): void {
  const isAboutMany = /source images|no names|only one/.test(message.source);
  const found = expect.stringMatching(message) as unknown;
  expect(problems(settings)).toEqual(isAboutMany ? [found, found] : []);
}

function worst(found: ArrayLike<number>, wanted: Float32Array): number {
  expect(found.length).toBe(wanted.length);
  const largest = wanted.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
  return wanted.reduce((most, x, i) => Math.max(most, Math.abs(x - found[i])), 0) / largest;
}

const picture = { width: 12, height: 16 };
const kontextRow = { source: 'a.png', instruction: "A red  door, and BAT's naïve 2 signs" };
const qwenRow = (images: number) => ({
  source: Array.from({ length: images }, (_, i) => `../qwen-image-edit/source.${i % 3}.png`),
  instruction: "put Picture 2's hat on it",
});

describe('FLUX.1-Kontext as the policy of image_editor', () => {
  it('reads as its pipeline does, and learns one iteration by LoRA', async () => {
    const expected = expectedIn('flux/expected_kontext.safetensors');
    const dir = dataWith('kontext', [kontextRow]);
    const png = await encodePng({ ...picture, data: Uint8Array.from(expected('image')) });
    writeFileSync(join(dir, 'edits', 'a.png'), png);
    const settings = await settingsOf('kontext', dir);
    expect(problems(settings)).toEqual([]);
    const task = await taskOf(settings);
    const prompt = await task.prompt(0);
    const { text, pooled, kept, without, textTokens } = prompt.flow;
    expect(worst(text, expected('text'))).toBeLessThan(2e-5);
    expect(worst(pooled ?? [], expected('pooled'))).toBeLessThan(1e-5);
    expect(worst(kept?.shown ?? [], expected('source'))).toBeLessThan(1e-5);
    // Guidance is an input, and padding is read.
    expect([without, textTokens]).toEqual([undefined, undefined]);
    const { answers, layers } = await learnOnce(settings, prompt, sampledIn(settings));
    expect(layers).toContain('single_transformer_blocks.0.attn.to_q.lora_A.weight');
    const [[drawn]] = await task.render([{ prompt, answers: [answers[0]], keys: ['k'] }]);
    expect(drawn.item.edited).toMatchObject(picture);
    expect(await task.prompt(1)).toBe(prompt);
    const [heldOut] = task.validation;
    expect(await heldOut.prompt(0)).toBe(await heldOut.prompt(0));
  });

  const tokenizer = (dir: string): string => join(dir, 'flux-kontext', 'tokenizer_2');
  it.each<[string, string, object, RegExp, [number, number]?]>([
    [
      'another text encoder',
      `{ policy+: { parts+: { text_encoder: '${join(fixtures, 'sd3')}' } } }`,
      kontextRow,
      /pooled vector of 11; the model expects 24 and 8/,
    ],
    [
      'sides that are no multiples',
      '{ policy+: { max_pixels: null } }',
      kontextRow,
      /a\.png: found 14x16 pixels; allowed: multiples of 4/,
      [14, 16],
    ],
    [
      'a source that is too large',
      '{ policy+: { max_pixels: null } }',
      kontextRow,
      /found 2052x2048 pixels; allowed: at most 4194304 pixels/,
      [2052, 2048],
    ],
    [
      'several sources',
      '{}',
      { ...kontextRow, source: ['a.png', 'a.png'] },
      / rows have several source images \(this one has 2\); the model of policy\.model reads one/,
    ],
  ])('rejects %s before anything trains', async (_, change, row, message, [width, height] = [12, 16]) => {
    const dir = dataWith('kontext', [row]);
    writeFileSync(join(dir, 'edits', 'a.png'), plain(width, height, [9, 9, 9]));
    const settings = await settingsOf('kontext', dir, change);
    await expect(taskOf(settings)).rejects.toThrow(message);
    expectManyFound(settings, message);
  });

  it('rejects missing parts before anything trains', async () => {
    const dir = dataWith('kontext', [kontextRow]);
    writeFileSync(join(dir, 'edits', 'a.png'), plain(12, 16, [9, 9, 9]));
    rmSync(tokenizer(dir), { recursive: true });
    const settings = await settingsOf('kontext', dir);
    expect(problems(settings)).toEqual(['model_index.json names tokenizer_2, but these folders are missing']);
  });
});

describe('FLUX.2-klein as the policy of image_editor', () => {
  const row = (images: number) => ({
    source: ['a.png', 'b.png', 'a.png', 'a.png', 'a.png'].slice(0, images),
    instruction: "A red  door, and BAT's naïve 2 signs",
  });
  /** With a judge that sees all images. */
  const JUDGED = "{ reward+: { mode: null, terms: [{ name: 'align_quality', weight: 1 }] } }";

  it('reads two images as its pipeline does, and learns one iteration by LoRA', async () => {
    const expected = expectedIn('klein/expected.safetensors');
    const dir = dataWith('klein', [row(2)]);
    const sizes = { a: picture, b: { width: 8, height: 12 } };
    for (const [i, [name, size]] of Object.entries(sizes).entries()) {
      const png = await encodePng({ ...size, data: Uint8Array.from(expected(`image_${i}`)) });
      writeFileSync(join(dir, 'edits', `${name}.png`), png);
    }
    const settings = await settingsOf('klein', dir, JUDGED);
    expect(problems(settings)).toEqual([]);
    const task = await taskOf(settings);
    const prompt = await task.prompt(0);
    const { text, textTokens, without, pooled, kept, further = [] } = prompt.flow;
    expect(worst(text, expected('text_short'))).toBeLessThan(5e-6);
    // Guidance starts from a blank instruction, and padding is read.
    expect(worst(must(without, 'a blank instruction').text.slice(-8 * 24), expected('text_empty'))).toBeLessThan(5e-6);
    expect([textTokens, pooled]).toEqual([undefined, null]);
    const shown = [kept, ...further].flatMap((one) => [...must(one, 'a source').shown]);
    expect(worst(shown, expected('shown'))).toBeLessThan(5e-6);
    const { answers, layers } = await learnOnce(settings, prompt, sampledIn(settings));
    expect(layers).toContain('single_transformer_blocks.0.attn.to_qkv_mlp_proj.lora_A.weight');
    expect(layers).toContain('single_transformer_blocks.0.attn.to_out.lora_A.weight');
    const [[drawn]] = await task.render([{ prompt, answers: [answers[0]], keys: ['k'] }]);
    expect(drawn.item.edited).toMatchObject(picture);
  });

  it('has no noise levels of another family', async () => {
    const dir = dataWith('klein', [row(1)]);
    writeFileSync(join(dir, 'edits', 'a.png'), plain(12, 16, [9, 9, 9]));
    const settings = await settingsOf('klein', dir, "{ policy+: { model_type: 'flux' } }");
    const message = "found 'flux' for a Flux2Transformer2DModel; allowed: 'flux2'";
    expect(problems(settings)).toEqual([message]);
    await expect(taskOf(settings)).rejects.toThrow(message);
  });

  it('has no guidance if its pipeline was distilled', async () => {
    const dir = dataWith('klein', [row(1)]);
    const index = join(dir, 'flux2-klein', 'model_index.json');
    writeFileSync(index, readFileSync(index, 'utf8').replace('"is_distilled": false', '"is_distilled": true'));
    expect(problems(await settingsOf('klein', dir))).toEqual([
      'rollout.guidance_scale is set, but the model was distilled and has no guidance',
    ]);
    expect(problems(await settingsOf('klein', dir, '{ rollout+: { guidance_scale: null } }'))).toEqual([]);
  });

  it.each<[string, number, string, RegExp]>([
    ['more images than the model was trained with', 5, JUDGED, /have more than 4 source images \(this one has 5\)/],
    [
      'an instruction longer than its text',
      1,
      "{ data+: { columns+: { instruction: 'long' } } }",
      /the text encoder \(policy\.parts\.text_encoder\) cuts the last \d+ tokens of the instruction/,
    ],
  ])('rejects %s', async (_, images, change, message) => {
    const dir = dataWith('klein', [{ ...row(images), long: 'x'.repeat(600) }]);
    for (const name of ['a', 'b']) writeFileSync(join(dir, 'edits', `${name}.png`), plain(12, 16, [9, 9, 9]));
    const settings = await settingsOf('klein', dir, change);
    await expect(taskOf(settings).then((task) => task.prompt(0))).rejects.toThrow(message);
    expectManyFound(settings, message);
  });
});

describe('Qwen-Image-Edit-2511 as the policy of image_editor', () => {
  it('reads three images as its pipeline does, and learns one iteration by LoRA', async () => {
    const expected = expectedIn('qwen_edit/2511.safetensors');
    const dir = dataWith('qwen_image_edit', [qwenRow(3)]);
    expect(problems(await settingsOf('qwen_image_edit', dir))).toEqual([]);
    // The queries of the text have no gradient in the last block, whose text is not used.
    const lora = "{ policy+: { lora+: { targets: ['attn.to_q', 'attn.add_k_proj', 'img_mlp.net.2'] } } }";
    const settings = await settingsOf('qwen_image_edit', dir, lora);
    const task = await taskOf(settings);
    // The judge has to accept these images and the edited one.
    expect(task.sources).toBe(3);
    const prompt = await task.prompt(0);
    const { text, textTokens = 0, without, kept, further = [] } = prompt.flow;
    expect(worst(text.subarray(0, 16 * textTokens), expected('states'))).toBeLessThan(1e-5);
    const blank = must(without, 'a blank instruction');
    expect(worst(blank.text.subarray(0, 16 * (blank.textTokens ?? 0)), expected('blank'))).toBeLessThan(1e-5);
    expect([kept, ...further].map((one) => one?.shown.length)).toEqual([6 * 4 * 16, 2 * 7 * 16, 8 * 3 * 16]);
    const { answers, layers } = await learnOnce(settings, prompt, sampledIn(settings));
    expect(layers).toContain('transformer_blocks.1.img_mlp.net.2.lora_A.weight');
    const [[drawn]] = await task.render([{ prompt, answers: [answers[0]], keys: ['k'] }]);
    expect(drawn.item.edited).toMatchObject({ width: 48, height: 32 });
    expect(drawn.item.beside?.map(({ width, height }) => [width, height])).toEqual([
      [16, 56],
      [64, 24],
    ]);
    expect(drawn.record).toMatchObject({ beside: 2 });
  });

  it('learns a share of labeled edits under a blank instruction instead of zeros', async () => {
    const dir = dataWith('qwen_image_edit', [{ ...qwenRow(1), target: '../qwen-image-edit/source.0.png' }]);
    const supervised = "{ algorithm: { type: 'sft', sft: { batch_size: 1, condition_dropout: 0.5 } } }";
    const settings = await settingsOf('qwen_image_edit', dir, `${supervised} + { rollout+: { guidance_scale: null } }`);
    const { flow } = await (await taskOf(settings)).prompt(0);
    const bare = unconditional(flow);
    expect(bare.text.some((x) => x !== 0)).toBe(true);
    expect(bare.textTokens).toBeLessThan(flow.textTokens ?? 0);
  });

  it.each([
    ['more images than the model was trained with', '{}', 4, /have more than 3 source images \(this one has 4\)/],
    [
      'a text encoder that does not see the image',
      "{ reader: null, policy+: { parts+: { text_encoder: std.extVar('APP__DATA_DIR') + '/qwen-image-edit/text_encoder' } } }",
      1,
      /a text encoder reads only words/,
    ],
    ['several images without names', '{ prompt+: { variables: {} } }', 2, /images have no names in the prompt/],
    [
      'several images for a judge of one',
      "{ reward+: { mode: 'viescore', terms: [] } }",
      2,
      /reward 'viescore' shows the judge only one/,
    ],
  ])('rejects %s before anything trains', async (_, change, images, message) => {
    const dir = dataWith('qwen_image_edit', [qwenRow(1), qwenRow(images)]);
    const settings = await settingsOf('qwen_image_edit', dir, change);
    await expect(taskOf(settings)).rejects.toThrow(message);
    expectManyFound(settings, message);
  });
});
