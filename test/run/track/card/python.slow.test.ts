/** What huggingface_hub and transformers read in an exported folder. Skipped where no Python has them; EDITRL_TEST_PYTHON names another one. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { encodeSafetensors } from '../../../../src/core/safetensors.js';
import { exportMerged } from '../../../../src/models/adapters/export.js';
import { clipTokenizerJson } from '../../../../src/rewards/terms/clip/byte_pairs.js';
import { writeCard } from '../../../../src/run/track/card/card.js';
import { testFolders } from '../../../support/folder.js';
import { FakeRun } from '../run_directory.js';

const python = process.env['EDITRL_TEST_PYTHON'] ?? 'python3';
const probe = spawnSync(python, ['-c', 'import huggingface_hub, transformers'], { encoding: 'utf8' });
const missing = probe.status === 0 ? null : (probe.stderr?.trim().split('\n').at(-1) ?? `there is no ${python}`);
const why = missing === null ? '' : ` (skipped: ${missing}; EDITRL_TEST_PYTHON names another Python)`;
const folder = testFolders('card-python');

const program = `
import json, sys
from huggingface_hub import ModelCard, metadata_load
from transformers import AutoTokenizer
folder, text = sys.argv[1:]
card = ModelCard.load(folder + '/README.md')
tokenizer = AutoTokenizer.from_pretrained(folder)
print(json.dumps({
    'keys': sorted(metadata_load(folder + '/README.md')),
    'library': card.data.library_name,
    'pipeline': card.data.pipeline_tag,
    'eos': tokenizer.eos_token,
    'pad': tokenizer.pad_token,
    'ids': tokenizer(text)['input_ids'],
}))
`;

/** Exports a model with this tokenizer, and returns what Python reads there. */
function readByPython(tokenizer: string, config: object, text: string, task = 'text_answers'): unknown {
  const run = new FakeRun(folder(), 'run', { task, data: { dir: 'data', validation: [{ path: 'data/held.jsonl' }] } });
  run.iteration(0, { 'validation/sampled/mean': 0.25 });
  run.iteration(5, { 'validation/sampled/mean': 0.5, 'validation/sampled/stderr': 0.125 });
  const checkpoint = folder();
  const weights = encodeSafetensors(new Map([['w', { shape: [1], data: new Float32Array(1) }]]));
  writeFileSync(join(checkpoint, 'policy.safetensors'), weights);
  writeFileSync(join(checkpoint, 'tokenizer.json'), tokenizer);
  writeFileSync(join(checkpoint, 'config.json'), JSON.stringify(config));
  const out = join(folder(), 'exported');
  mkdirSync(out);
  exportMerged(checkpoint, out, { dtype: 'float32' });
  writeCard(out, { paths: run.paths, checkpoint, iteration: 5, format: 'merged', place: 'this folder' });
  const env = { ...process.env, HF_HUB_OFFLINE: '1' };
  const ran = spawnSync(python, ['-c', program, out, text], { encoding: 'utf8', env });
  expect(ran.status, ran.stderr).toBe(0);
  return JSON.parse(ran.stdout.trim().split('\n').at(-1) ?? 'null');
}

const keys = ['library_name', 'pipeline_tag', 'tags'];

it.skipIf(missing !== null)(`Python reads the card and the tokenizer of a language model${why}`, () => {
  const added = { special: true, normalized: false, lstrip: false, rstrip: false, single_word: false };
  const tokenizer = {
    version: '1.0',
    added_tokens: [{ id: 1, content: '<|end|>', ...added }],
    pre_tokenizer: { type: 'WhitespaceSplit' },
    model: { type: 'WordLevel', vocab: { '<|unk|>': 0, '<|end|>': 1, red: 2 }, unk_token: '<|unk|>' },
  };
  const config = { model_type: 'llama', vocab_size: 3, eos_token_id: 1 };
  expect(readByPython(JSON.stringify(tokenizer), config, 'red blue red')).toEqual({
    ...{ keys, library: 'transformers', pipeline: 'text-generation' },
    ...{ eos: '<|end|>', pad: '<|end|>', ids: [2, 0, 2] },
  });
});

it.skipIf(missing !== null)(`Python reads the card and the tokenizer of a CLIP${why}`, () => {
  const tokenizer = clipTokenizerJson(['red red'], 10);
  const { vocab } = (JSON.parse(tokenizer) as { model: { vocab: Record<string, number> } }).model;
  const [start, end, red] = ['<|startoftext|>', '<|endoftext|>', 'red</w>'].map((token) => vocab[token]);
  const config = { model_type: 'clip', text_config: { eos_token_id: end, pad_token_id: end } };
  expect(readByPython(tokenizer, config, 'RED', 'image_text_encoder')).toEqual({
    ...{ keys, library: 'transformers', pipeline: 'zero-shot-image-classification' },
    ...{ eos: '<|endoftext|>', pad: '<|endoftext|>', ids: [start, red, end] },
  });
});
