import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { isSet, placesOf } from '../../src/config/origin.js';
import { loadConfig } from '../../src/config/load.js';
import { EditrlError } from '../../src/core/errors.js';
import { testFolders } from '../support/folder.js';

const newFolder = testFolders('origin-fast');

it('knows what --set gives: a key, or something around it, and not a key that begins alike', async () => {
  const sets = ['optimizer.lr=1', 'data={}'];
  expect(isSet('optimizer.lr', sets)).toBe(true);
  expect(isSet('data.train.0', sets)).toBe(true);
  expect(isSet('optimizer.lr_floor', sets)).toBe(false);
  expect(isSet('optimizer', sets)).toBe(false);
  expect(await placesOf(['data.dir', 'database'], { file: 'x.jsonnet', layers: [], sets, env: {} })).toEqual([
    '--set',
    '',
  ]);
});

it('names no line where two of them could be the one', async () => {
  const file = join(newFolder(), 'own.jsonnet');
  // Without either of its two fields the value is another one.
  writeFileSync(
    file,
    `local other = { num_iterations:: -2 };\n{ task: 'image_tokenizer',\n  num_iterations: std.min(-1, std.get(other, 'num_iterations', 7)) }\n`,
  );
  const error = await loadConfig({ file, overlays: [], env: {} }).catch((thrown: unknown) => thrown);
  if (!(error instanceof EditrlError)) throw error;
  expect(error.toText()).toContain('(own.jsonnet) num_iterations: found -2'.replace('own.jsonnet', file));
});
