import { cpSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { descriptionFiles, missingFiles, weightFiles } from '../../../src/models/hub/needed.js';
import { testFolders } from '../../support/folder.js';

const newFolder = testFolders('hub-needed');

it('of a CLIP are its weights, never pickles', () => {
  const folder = newFolder();
  writeFileSync(join(folder, 'config.json'), JSON.stringify({ model_type: 'clip' }));
  const others = ['config.json', 'onnx/model.onnx', 'pytorch_model.bin'];
  expect(weightFiles(folder, ['model.safetensors', ...others], 'a/model')).toEqual(['model.safetensors']);
  expect(() => weightFiles(folder, others, 'a/model')).toThrow('no model.safetensors; found pytorch_model.bin');
});

it('of a pipeline are those of its parts', () => {
  const whole = join(import.meta.dirname, '../../train/policies/flow/fixtures/sd3');
  const own = readdirSync(whole, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(whole.length + 1))
    .filter((path) => !/^(?:prompts|expected)/.test(path));
  const weights = own.filter((path) => path.endsWith('.safetensors')).sort();
  expect(weights).toHaveLength(5);
  const others = ['sd3_medium.safetensors', 'text_encoder/model.fp16.safetensors', 'safety_checker/config.json'];
  const paths = [...own, ...others];
  const descriptions = descriptionFiles(paths);
  expect(descriptions.toSorted()).toEqual(own.filter((path) => !weights.includes(path)).sort());
  const folder = join(newFolder(), 'sd3');
  for (const path of descriptions) cpSync(join(whole, path), join(folder, path));
  expect(weightFiles(folder, paths, 'a/model').toSorted()).toEqual(weights);
  expect(missingFiles(folder, 'model')).toHaveLength(5);
  expect(() =>
    weightFiles(
      folder,
      own.filter((path) => path !== 'vae/diffusion_pytorch_model.safetensors'),
      '',
    ),
  ).toThrow('the repository has no vae/model.safetensors');
  for (const path of weights) cpSync(join(whole, path), join(folder, path));
  expect(missingFiles(folder, 'model')).toEqual([]);
  rmSync(join(folder, 'text_encoder_3', 'model.safetensors'));
  expect(missingFiles(folder, 'model')).toEqual(['text_encoder_3/model.safetensors']);
  // Without model_index.json nothing of the parts is known.
  expect(descriptionFiles(own.filter((path) => path !== 'model_index.json'))).toEqual([]);
});
