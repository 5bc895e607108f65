import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { missingFiles, weightFiles } from '../../../src/models/hub/needed.js';
import { testFolders } from '../../support/folder.js';

const newFolder = testFolders('hub-needed');

it.each([
  ['flow_transformer', ['model.onnx', 'model.onnx.data']],
  ['flow_autoencoder', ['encoder.onnx', 'decoder.onnx']],
  ['flow_image_encoder', ['preprocessor_config.json', 'model.onnx']],
])('an export of a %s is read without safetensors', (model_type, files) => {
  const folder = newFolder();
  writeFileSync(join(folder, 'config.json'), JSON.stringify({ model_type }));
  expect(weightFiles(folder, ['config.json', 'README.md', ...files], 'a/model')).toEqual(['config.json', ...files]);
  expect(missingFiles(folder, 'model')).toEqual(files);
  expect(() => weightFiles(folder, ['config.json', files[0]], 'a/model')).toThrow(`no ${files[1]}`);
});

it('of a CLIP are its weights, else the graphs of its export', () => {
  const folder = newFolder();
  writeFileSync(join(folder, 'config.json'), JSON.stringify({ model_type: 'clip' }));
  const [halves, whole] = [['onnx/text_model.onnx', 'onnx/vision_model.onnx'], ['onnx/model.onnx']];
  const others = ['config.json', 'onnx/model_quantized.onnx', 'pytorch_model.bin'];
  expect(weightFiles(folder, ['model.safetensors', ...halves, ...others], 'a/model')).toEqual(['model.safetensors']);
  expect(weightFiles(folder, [...whole, ...halves, ...others], 'a/model')).toEqual(halves);
  expect(weightFiles(folder, [...whole, ...others], 'a/model')).toEqual(whole);
  expect(() => weightFiles(folder, others, 'a/model')).toThrow('no model.safetensors; found pytorch_model.bin');
  writeFileSync(join(folder, 'config.json'), JSON.stringify({ model_type: 'siglip' }));
  expect(() => weightFiles(folder, [...halves, ...others], 'a/model')).toThrow('no model.safetensors');
});
