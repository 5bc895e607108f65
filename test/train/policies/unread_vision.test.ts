/** Exports of vision-language models whose weights were all trained on text alone. */
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { readSafetensors } from '../../../src/core/safetensors.js';
import { openDecoder } from '../../../src/models/networks/decoder.js';
import { loadPolicy } from '../../../src/train/policies/tokens/load.js';
import { testFolders } from '../../support/folder.js';
import { exportedTextRun, format, nets, visionModels } from './text_run.js';

const folders = testFolders('unread-vision');

/** A tensor's name in transformers' classes of vision models. Older files have other names. */
const inTransformers = (name: string): string =>
  name
    .replace(/^language_model\.lm_head\./, 'lm_head.')
    .replace(/^(?:language_model\.model|model(?!\.(?:language_model|text_model|vision_model|visual|connector)\b))\./, 'model.language_model.')
    .replace(/^(?=(?:visual|vision_tower|multi_modal_projector)\.)/, 'model.'); // prettier-ignore

it.each(visionModels)('a text run of all weights exports the encoder of the model: %s', async (name) => {
  const base = join(nets, name);
  const { checkpoint, out } = await exportedTextRun(base, folders());
  const stored = readSafetensors(join(base, 'model.safetensors'));
  const exported = readSafetensors(join(out, 'model.safetensors'));
  expect([...exported.keys()].sort()).toEqual([...stored.keys()].map(inTransformers).sort());
  const changed = [...stored].filter(([own, { data }]) => {
    const found = exported.get(inTransformers(own))?.data ?? [];
    return data.some((value, i) => value !== found[i]);
  });
  expect(changed.length).toBeGreaterThan(10);
  expect(changed.filter(([own]) => /visual|vision|connector|projector/.test(own))).toEqual([]);
  if (name.startsWith('vision')) openDecoder(out, 'words and images');
  // Another run may start from the checkpoint, and keeps the encoder too.
  const [once, twice] = [base, checkpoint].map((from) => loadPolicy(from, format).unread);
  expect(twice).toEqual(once);
  expect(once?.size).toBeGreaterThan(3);
});

it('a text model has no such weights', () => {
  expect(loadPolicy(join(nets, 'decoder/fixtures/llama'), format).unread?.size).toBe(0);
});
