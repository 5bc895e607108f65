import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { isSet, placesOf } from '../../src/config/origin.js';
import { loadConfig } from '../../src/config/load.js';
import { EditrlError } from '../../src/core/errors.js';
import { testFolders } from '../support/folder.js';

const newFolder = testFolders('origin-fast');

it('knows what --set gives: a key, or something around it, and not a key that begins alike', () => {
  const sets = ['optimizer.lr=1', 'data={}'];
  expect(isSet('optimizer.lr', sets)).toBe(true);
  expect(isSet('data.train.0', sets)).toBe(true);
  expect(isSet('optimizer.lr_floor', sets)).toBe(false);
  expect(isSet('optimizer', sets)).toBe(false);
  expect(
    placesOf(['data.dir', 'database'], { file: 'x.jsonnet', layers: [], sets, sources: new Map(), has: () => true }),
  ).toEqual(['--set', '']);
});

it('names both lines if either may give the value', async () => {
  const file = join(newFolder(), 'own.jsonnet');
  const text = `{ task: 'image_tokenizer' } + if std.extVar('APP__DATA_DIR') == '' then {\n  num_iterations: -1 } else {\n  num_iterations: -2 }\n`;
  writeFileSync(file, text);
  const error: unknown = await loadConfig({ file, overlays: [], env: {} }).catch((thrown: unknown) => thrown);
  if (!(error instanceof EditrlError)) throw error;
  expect(error.toText()).toContain(`(${file}:2 or 3) num_iterations: found -2`);
});
