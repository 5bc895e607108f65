import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { exportVerb } from '../../src/cli/export.js';
import { CheckpointError, UsageError } from '../../src/core/errors.js';
import { encodeSafetensors } from '../../src/core/safetensors.js';
import { saveCheckpoint } from '../../src/run/checkpoints.js';
import { capture, RunFolder } from './run_directory.js';

let runs: RunFolder;
let said: ReturnType<typeof capture>;
beforeEach(() => {
  runs = new RunFolder();
  said = capture();
});
afterEach(() => {
  vi.restoreAllMocks();
  runs.remove();
});

const tensor = { shape: [2], data: new Float32Array([1, 2]) };
const weights = encodeSafetensors(new Map([['w', tensor]]));
const decoder = encodeSafetensors(new Map([['model.embed_tokens.weight', tensor]]));
const qwen2 = JSON.stringify({
  model_type: 'qwen2',
  vocab_size: 3,
  hidden_size: 4,
  intermediate_size: 4,
  num_hidden_layers: 1,
  num_attention_heads: 1,
  num_key_value_heads: 1,
  rms_norm_eps: 1e-6,
  max_position_embeddings: 8,
  tie_word_embeddings: true,
});
const training = { 'optimizer.safetensors': 'moments', 'trainer.json': '{}' };

/** Exports the last checkpoint of a run, which holds these files, and returns the folder. */
async function exported(files: Readonly<Record<string, string | Uint8Array>>, flags: object = {}): Promise<string> {
  const paths = runs.make('run', 'finished');
  saveCheckpoint(paths, 4, { ...files, ...training });
  const out = join(runs.dir, 'out');
  const args = { run: 'run', 'exp-dir': runs.dir, out, public: false, json: false, ...flags };
  expect(await exportVerb.run(args)).toBe(0);
  return out;
}

describe('the exported checkpoint', () => {
  it('is named after the run, as in evaluate', async () => {
    const files = { 'policy.safetensors': weights, 'config.json': '{"codebook_size":64}', ...training };
    saveCheckpoint(runs.make('run', 'finished'), 2, files);
    await exported(files, { run: 'run@2' });
    expect(said.out).toContain('run, iteration 2, as checkpoint in ');
    const best = exportVerb.run({ run: 'run@best', 'exp-dir': runs.dir, out: join(runs.dir, 'b') });
    await expect(best).rejects.toThrow(CheckpointError);
  });

  it('is reported to answer otherwise if its weights are rounded', async () => {
    await exported({ 'policy.safetensors': decoder, 'config.json': qwen2 }, { format: 'merged', dtype: 'bfloat16' });
    expect(said.error).toContain('bfloat16 rounds the weights');
  });
});

describe('an exported folder', () => {
  it('of a language model has the card, and is reported', async () => {
    const out = await exported({ 'policy.safetensors': decoder, 'config.json': qwen2 });
    expect(readdirSync(out).sort()).toEqual(['README.md', 'config.json', 'editrl_run.json', 'model.safetensors']);
    expect(readFileSync(join(out, 'README.md'), 'utf8')).toContain('library_name: transformers\n');
    expect(said.out).toContain('run, iteration 4, as merged in ');
  });

  it('of a model of diffusers has the weights by the name that diffusers reads', async () => {
    const config = JSON.stringify({ _class_name: 'AutoencoderKL' });
    const out = await exported({ 'policy.safetensors': weights, 'config.json': config }, { json: true });
    const files = ['README.md', 'config.json', 'diffusion_pytorch_model.safetensors', 'editrl_run.json'];
    expect(readdirSync(out).sort()).toEqual(files);
    expect(readFileSync(join(out, 'README.md'), 'utf8')).toContain('library_name: diffusers\n');
    expect(JSON.parse(said.out)).toMatchObject({ format: 'checkpoint', dtype: null, files });
  });

  it('of another model has its files as they are', async () => {
    const out = await exported({ 'policy.safetensors': weights, 'config.json': '{"codebook_size":64}' });
    expect(readdirSync(out).sort()).toEqual(['README.md', 'config.json', 'editrl_run.json', 'policy.safetensors']);
    expect(readFileSync(join(out, 'README.md'), 'utf8')).toContain('library_name: editrl\n');
  });

  it('of another model has no number format of its own', async () => {
    const refused = exported({ 'policy.safetensors': weights, 'config.json': '{}' }, { dtype: 'bfloat16' });
    await expect(refused).rejects.toThrow('--dtype does not apply to a model that is not a language model');
  });

  it('never takes the place of a card that is there', async () => {
    const out = join(runs.dir, 'out');
    mkdirSync(out);
    writeFileSync(join(out, 'README.md'), 'mine');
    const refused = exported({ 'policy.safetensors': weights, 'config.json': '{}' });
    await expect(refused).rejects.toThrow(UsageError);
    expect(readFileSync(join(out, 'README.md'), 'utf8')).toBe('mine');
    expect(existsSync(join(out, 'editrl_run.json'))).toBe(false);
  });
});
