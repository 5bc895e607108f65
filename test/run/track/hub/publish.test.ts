import { cpSync, existsSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { HubEnvironment } from '../../../../src/models/hub/cache.js';
import { openDecoder } from '../../../../src/models/networks/decoder.js';
import { openModel } from '../../../../src/models/adapters/decoder.js';
import { checkpointBranch, publishCheckpoint, type PublishRequest } from '../../../../src/run/track/hub/publish.js';
import { PublishingStub, WRITE_TOKEN } from '../../../models/hub/publishing_stub.js';
import { adapterCheckpoint } from '../../../train/policies/exported.js';
import { testFolders } from '../../../support/folder.js';
import { FakeRun } from '../run_directory.js';

const folder = testFolders('publish');
let stub: PublishingStub;

beforeEach(async () => {
  stub = await new PublishingStub().start();
});
afterEach(async () => {
  await stub.close();
  expect(stub.wrong).toEqual([]);
});

async function publish(run: FakeRun, given: Partial<PublishRequest>): Promise<Map<string, Buffer>> {
  const environment: HubEnvironment = {
    endpoint: stub.endpoint,
    cacheDir: folder(),
    token: WRITE_TOKEN,
    offline: false,
  };
  const branch = checkpointBranch(5);
  await publishCheckpoint(
    {
      ...{ paths: run.paths, checkpoint: '', iteration: 5, format: null, dtype: 'float32' },
      ...{ repository: 'me/edits', branch, private: true },
      ...given,
    },
    environment,
  );
  // What was made for it is gone.
  expect(existsSync(run.paths.trackDir) ? readdirSync(run.paths.trackDir) : []).toEqual([]);
  return stub.files('me/edits', branch);
}

describe('a published checkpoint', () => {
  it('is a whole model where its adapter stands on a run, with a card and the settings', async () => {
    const run = new FakeRun(folder(), 'run', {
      launch: { env: { SECRET: 'hidden' }, processes: 1 },
      algorithm: { type: 'grpo' },
      policy: { model: { run: 'start', config: 'start.jsonnet' } },
    });
    run.iteration(0, { 'validation/sampled/mean': 3, 'validation/sampled/stderr': 0.25 });
    run.iteration(5, { 'validation/sampled/mean': 4.5, 'validation/sampled/stderr': 0.125 });
    run.iteration(10, { 'validation/sampled/mean': 9 });
    const { checkpoint } = adapterCheckpoint(folder());
    const files = await publish(run, { checkpoint });
    expect([...files.keys()].sort()).toEqual([
      '.gitattributes',
      'README.md',
      'chat_template.jinja',
      'config.json',
      'editrl_run.json',
      'expected.json',
      'model.safetensors',
      'tokenizer.json',
    ]);
    const out = folder();
    for (const [name, bytes] of files) writeFileSync(join(out, name), bytes);
    const [published, trained] = [openDecoder(out).weights, openModel(checkpoint).weights];
    for (const [name, { data }] of trained) expect(published.get(name)?.data).toEqual(data);
    const card = String(files.get('README.md'));
    expect(card).toContain('- Initialized from the run `start`.');
    expect(card).toContain('| reward, sampled | 3.000 ± 0.250 | 4.500 ± 0.125 | +1.500 |');
    expect(card).toContain('AutoModelForCausalLM.from_pretrained("me/edits", revision="ckpt_000005")');
    expect(JSON.parse(String(files.get('editrl_run.json')))).toMatchObject({
      ...{ run_name: 'run', iteration: 5, format: 'merged', hash: 'h', versions: { editrl: '0.1.0' } },
      settings: { seed: 3, launch: { processes: 1 } },
      heldout: { numbers: [{ manner: 'sampled', after: { mean: 4.5, stderr: 0.125 } }] },
    });
    expect(String(files.get('editrl_run.json'))).not.toContain('hidden');
  });

  it('is the adapter where that was asked for', async () => {
    const { checkpoint } = adapterCheckpoint(folder());
    const files = await publish(new FakeRun(folder()), { checkpoint, format: 'adapter' });
    expect([...files.keys()]).toContain('adapter_model.safetensors');
    expect([...files.keys()]).not.toContain('model.safetensors');
  });

  it('is the adapter where it stands on a model of the Hub, which the card names', async () => {
    const { checkpoint } = adapterCheckpoint(folder());
    const onHub = folder();
    cpSync(checkpoint, onHub, { recursive: true });
    const file = join(onHub, 'adapter_config.json');
    writeFileSync(
      file,
      JSON.stringify({ task_type: 'CAUSAL_LM', base_model_name_or_path: 'them/base', revision: 'a'.repeat(40) }),
    );
    const files = await publish(new FakeRun(folder()), { checkpoint: onHub });
    expect([...files.keys()]).toContain('adapter_model.safetensors');
    const card = String(files.get('README.md'));
    expect(card).toContain('base_model: them/base\nbase_model_relation: adapter\n');
    expect(card).toContain(
      'base = AutoModelForCausalLM.from_pretrained("them/base")\nmodel = PeftModel.from_pretrained(base, "me/edits", revision="ckpt_000005")',
    );
  });

  it('is what it holds where its adapter is of no language model', async () => {
    const { checkpoint } = adapterCheckpoint(folder());
    const file = join(checkpoint, 'adapter_config.json');
    writeFileSync(file, JSON.stringify({ ...(JSON.parse(readFileSync(file, 'utf8')) as object), task_type: null }));
    const files = await publish(new FakeRun(folder()), { checkpoint });
    expect([...files.keys()]).toContain('adapter_model.safetensors');
    expect(String(files.get('README.md'))).not.toContain('AutoModelForCausalLM');
  });

  it('is what it holds, without what continues training, where it is no language model', async () => {
    const checkpoint = folder();
    for (const name of ['policy.safetensors', 'optimizer.safetensors', 'trainer.json', 'MANIFEST.json']) {
      writeFileSync(join(checkpoint, name), 'bytes');
    }
    const files = await publish(new FakeRun(folder()), { checkpoint });
    expect([...files.keys()].sort()).toEqual(['.gitattributes', 'README.md', 'editrl_run.json', 'policy.safetensors']);
  });
});
