/**
 * Edits of a small Qwen-Image-Edit from image files and words to an image, as diffusers' pipelines draw them; test/fixture_scripts/qwen_edit_pipeline.py
 * makes what they are compared with.
 */
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { must } from '../../../src/core/errors.js';
import { toPlanes } from '../../../src/core/images/planes.js';
import { GivenNoise } from '../../support/given_noise.js';
import { readSafetensors, readSafetensorsIndex } from '../../../src/core/safetensors.js';
import { AutoencoderCodec } from '../../../src/train/environments/image_codec.js';
import { pack } from '../../../src/train/policies/flow/batch.js';
import { FlowEditor } from '../../../src/train/policies/flow/editor.js';
import { Reader, type HiddenStates } from '../../../src/train/policies/tokens/hidden_states.js';
import { loadPolicy } from '../../../src/train/policies/tokens/load.js';
import type { TokenPrompt } from '../../../src/models/tokenizer/format.js';
import { editOf, firstImageToken, openEditData, openVisionEditTask } from '../../../src/recipes/shared/images/edits.js';
import { sourcesOf } from '../../../src/data/image_edits.js';
import { testFolders } from '../../support/folder.js';
import { smallSettings } from './small.js';

const made = join(import.meta.dirname, '../../train/policies/flow/fixtures/qwen_edit');
const newFolder = testFolders('qwen-edit');
const cpu = { provider: 'cpu', threads: 1 } as const;
const opened: { dispose(): Promise<void> }[] = [];
afterAll(() => Promise.all(opened.map((one) => one.dispose())));

/** The system message of the shipped config. */
const SYSTEM = must(
  /system:\s*"([^"]+)"/.exec(
    readFileSync(join(import.meta.dirname, '../../../configs/edit_response.jsonnet'), 'utf8'),
  )?.[1],
  'the system message',
);

/** The parts in the pipeline's folders, with a list of one edit. */
function pipeline(images: number, clean: boolean): string {
  const folder = join(newFolder(), 'pipeline');
  cpSync(made, folder, { recursive: true });
  const config = join(folder, 'transformer', 'config.json');
  const json = JSON.parse(readFileSync(config, 'utf8')) as object;
  writeFileSync(config, JSON.stringify({ ...json, zero_cond_t: clean }));
  const source = Array.from({ length: images }, (_, i) => `source.${i}.png`);
  writeFileSync(join(folder, 'list.jsonl'), JSON.stringify({ source, instruction: "put Picture 2's hat on it" }));
  return folder;
}

function worst(found: ArrayLike<number>, wanted: Float32Array): number {
  expect(found.length).toBe(wanted.length);
  const largest = wanted.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
  return wanted.reduce((most, x, i) => Math.max(most, Math.abs(x - found[i])), 0) / largest;
}

describe.each([
  ['Qwen-Image-Edit', 'plain', 1, false, false],
  ['Qwen-Image-Edit-2509, of three images', '2509', 3, true, false],
  ['Qwen-Image-Edit-2511, of three images', '2511', 3, true, true],
])('%s', (_, name, images, named, clean) => {
  const file = join(made, `${name}.safetensors`);
  const expected = readSafetensors(file, [...readSafetensorsIndex(file).entries.keys()]);
  const of = (tensor: string): Float32Array => must(expected.get(tensor), tensor).data;

  it('reads and edits as the pipeline of diffusers', async () => {
    const folder = pipeline(images, clean);
    const list = [{ path: join(folder, 'list.jsonl'), media: null, coefficient: null }];
    const small = smallSettings();
    const asking = { ...small, data: { ...small.data, dir: folder, train: list, validation: list, tiny: null } };
    const reading = {
      model: join(folder, 'text_encoder'),
      init: null,
      tokenizer: null,
      pixels: { image: { min_pixels: 64, max_pixels: 65_536 }, video: { min_pixels: 64, max_pixels: 65_536 } },
      model_context_size: 2048,
      assistant_prefill: '',
    };
    const prompt = { system: SYSTEM, chat: true, variables: named ? { add_vision_id: true } : {} };
    const settings = { ...asking, policy: reading, prompt };
    const task = await openVisionEditTask(settings, await openEditData(settings), () => '');
    const read = loadPolicy(reading.model, task.words.format, null, { mm_vision: false, mm_mlp: false, mm_llm: false });
    const reader = new Reader(read, { session: cpu });
    const codec = AutoencoderCodec.open(join(folder, 'vae'), cpu);
    const how = { type: 'qwen', steps: 4, guidance: 4, batch: 1, session: cpu } as const;
    const editor = FlowEditor.open(join(folder, 'transformer'), codec, how);
    opened.push(reader, codec, editor);
    expect(editor.asksBlank).toBe(true);

    const asked = await task.words.prompt(0);
    const statesOf = async (tokens: TokenPrompt): Promise<HiddenStates> => {
      const from = firstImageToken(tokens.ids, task.seeing, task.imageName);
      return (await reader.read([{ prompt: tokens, answer: null, from }], read.weights))[0];
    };
    const [states, blank] = [await statesOf(asked.tokens), await statesOf(await task.blank(asked))];
    expect(worst(states.states, of('states'))).toBeLessThan(1e-5);
    expect(worst(blank.states, of('blank'))).toBeLessThan(1e-5);

    const edit = editOf(asked);
    const sources = await Promise.all(sourcesOf(edit).map((path) => task.images.read(path, 'here')));
    const [source, ...further] = await codec.encode(sources);
    const random = new GivenNoise(of('noise'));
    const [drawn] = await editor.draw([{ source, further, states, blank, random }]);
    expect(worst(pack(drawn, editor.patch), of('latents'))).toBeLessThan(5e-5);
    const [image] = await codec.decode([drawn]);
    // Bytes of planes from -1 to 1; diffusers has planes from 0 to 1.
    const planes = toPlanes(image).data;
    const wanted = of('edited');
    expect(planes).toHaveLength(wanted.length);
    planes.forEach((x, i) => expect(Math.abs((x + 1) / 2 - wanted[i])).toBeLessThan(0.6 / 255));
  });
});
