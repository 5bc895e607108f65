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
