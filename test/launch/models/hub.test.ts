import { cpSync, existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { loadConfig } from '../../../src/config/load.js';
import { HubModels } from '../../../src/launch/models/hub.js';
import {
  checkOffline,
  hubEnvironmentOf,
  missingModels,
  runResolver,
  wantedModels,
} from '../../../src/launch/models/wanted.js';
import { shapesOf } from '../../../src/launch/machine/shapes.js';
import { RunPaths } from '../../../src/run/paths.js';
import { testFolders } from '../../support/folder.js';
import { StubHub } from '../../models/hub/stub.js';

const newFolder = testFolders('hub-models');
const [BASE, ADAPTER] = ['a'.repeat(40), 'b'.repeat(40)];
const sizes = { hidden_size: 8, intermediate_size: 16, num_hidden_layers: 1, num_attention_heads: 2, vocab_size: 4 };
const ADAPTER_CONFIG = '{"peft_type":"LORA","base_model_name_or_path":"some/base","target_modules":"all-linear"}';

afterEach(() => vi.unstubAllEnvs());

async function place() {
  const stub = await new StubHub({
    'some/base': {
      refs: { main: BASE },
      commits: {
        [BASE]: { 'config.json': JSON.stringify(sizes), 'tokenizer.json': '{}', 'model.safetensors': 'b'.repeat(300) },
      },
    },
    'some/adapter': {
      refs: { main: ADAPTER },
      commits: {
        [ADAPTER]: {
          'adapter_config.json': ADAPTER_CONFIG,
          'adapter_model.safetensors': 'a'.repeat(300),
        },
      },
    },
  }).start();
  const folder = newFolder();
  vi.stubEnv('HF_ENDPOINT', stub.endpoint);
  vi.stubEnv('HF_HOME', join(folder, 'hf'));
  for (const name of ['HF_HUB_CACHE', 'HUGGINGFACE_HUB_CACHE', 'HF_TOKEN', 'HF_HUB_OFFLINE', 'TRANSFORMERS_OFFLINE']) {
    vi.stubEnv(name, '');
  }
  const said: string[] = [];
  const retryPolicy = { retries: 1, backoffBaseMs: 1, backoffCapMs: 10, silenceMs: 5000, connectMs: 5000 };
  const models = new HubModels({ say: (line) => void said.push(line), retryPolicy });
  onTestFinished(async () => {
    await models.close();
    await stub.close();
  });
  const load = (policy: object, env: object = {}) =>
    loadConfig({
      file: 'configs/text_plain.jsonnet',
      sets: [`policy=${JSON.stringify({ model_context_size: 64, ...policy })}`, `launch.env=${JSON.stringify(env)}`],
      env: { APP__BASE_EXP_DIR: join(folder, 'runs'), APP__DATA_DIR: join(folder, 'data') },
    });
  return { stub, folder, said, models, load };
}

describe('the models of the Hub that a run needs', () => {
  it('are fetched once, with what an adapter stands on, and named by their commits', async () => {
    const { stub, said, models, load } = await place();
    const config = await load({ model: { hub: 'some/adapter' }, tokenizer: { hub: 'some/base' } });
    expect(missingModels(config.settings).sort()).toEqual(['some/adapter', 'some/base']);
    expect(await models.obstacles([config])).toEqual([]);
    // The adapter is as large as its base, and neither has its weights here.
    expect(shapesOf(new Map())({ hub: 'some/adapter', revision: 'main' })).toEqual(sizes);
    expect(await models.notes([config])).toContain(`some/base at ${BASE.slice(0, 12)} would be downloaded first: 1 MB`);
    const commits = { 'some/adapter@main': ADAPTER, 'some/base@main': BASE };
    expect(await models.commitsOf(config)).toEqual(commits);
    const before = stub.asked.length;
    expect(await models.commitsOf(config)).toEqual(commits);
    expect(stub.asked).toHaveLength(before);
    expect(said.filter((line) => line.startsWith('downloaded'))).toHaveLength(2);
    expect(missingModels(config.settings)).toEqual([]);
  });

  it('stay those that the run began with, until it begins again', async () => {
    const { folder, load } = await place();
    const { settings } = await load({ model: { hub: 'some/base' } });
    const paths = new RunPaths(join(folder, 'runs'), settings.run_name);
    mkdirSync(paths.dir, { recursive: true });
    const record = { format: 1, settings: {}, attempts: [], models: { 'some/base@main': ADAPTER } };
    writeFileSync(paths.record, JSON.stringify(record));
    expect(wantedModels(settings)).toMatchObject([{ pinned: ADAPTER, need: 'model' }]);
    expect(wantedModels(settings, true)).toMatchObject([{ pinned: null }]);
  });

  it('stand on what they stood on when the run began, though that has moved on', async () => {
    const { stub, folder, models, load } = await place();
    const config = await load({ model: { hub: 'some/adapter' }, tokenizer: null });
    const commits = { 'some/adapter@main': ADAPTER, 'some/base@main': BASE };
    expect(await models.commitsOf(config)).toEqual(commits);
    const paths = new RunPaths(join(folder, 'runs'), config.settings.run_name);
    mkdirSync(paths.dir, { recursive: true });
    writeFileSync(paths.record, JSON.stringify({ format: 1, settings: {}, attempts: [], models: commits }));
    const later = 'c'.repeat(40);
    const { [BASE]: files } = stub.models['some/base'].commits;
    stub.models['some/base'] = { refs: { main: later }, commits: { [BASE]: files, [later]: files } };
    const resumed = new HubModels({ say: () => undefined });
    onTestFinished(() => resumed.close());
    const before = stub.asked.length;
    expect(await resumed.commitsOf(config)).toEqual(commits);
    expect(stub.asked).toHaveLength(before);
  });

  it('are looked for where the workers will look, and there alone', async () => {
    const { folder, models, load } = await place();
    const other = join(folder, 'other');
    const config = await load({ model: { hub: 'some/base' } }, { HF_HUB_CACHE: other });
    await models.fetch([config]);
    expect(existsSync(join(other, 'models--some--base', 'snapshots', BASE, 'model.safetensors'))).toBe(true);
    expect(existsSync(join(folder, 'hf'))).toBe(false);
    // As the server does that is started with a run, in the launcher's own process.
    const resolve = runResolver(join(folder, 'runs'), undefined, undefined, hubEnvironmentOf(config.settings));
    expect(resolve({ hub: 'some/base', revision: 'main' })).toContain(other);
    const offline = await load({ model: { hub: 'some/base' } }, { HF_HUB_OFFLINE: '1' });
    const [wanted] = wantedModels(offline.settings);
    expect(() => checkOffline(wanted, hubEnvironmentOf(offline.settings))).toThrow('some/base was not downloaded');
    expect(() => checkOffline(wanted, hubEnvironmentOf(config.settings))).not.toThrow();
  });

  it('are those that the adapter of a folder stands on, too', async () => {
    const { folder, load, models } = await place();
    const adapter = join(folder, 'adapter');
    mkdirSync(adapter);
    writeFileSync(join(adapter, 'adapter_config.json'), ADAPTER_CONFIG);
    cpSync('package.json', join(adapter, 'tokenizer.json'));
    const config = await load({ model: adapter });
    expect(await models.commitsOf(config)).toEqual({ 'some/base@main': BASE });
  });

  it('are those of the parts around an image model, as diffusers and transformers save them', async () => {
    const { stub, folder, models } = await place();
    const config = (of: object): string => JSON.stringify(of);
    const repositories = {
      'some/transformer': { 'config.json': '{}', 'diffusion_pytorch_model.safetensors': 't'.repeat(300) },
      'some/vae': { 'config.json': '{}', 'diffusion_pytorch_model.safetensors': 'v'.repeat(300), 'vae.bin': 'pickle' },
      'some/words': {
        'config.json': config({ model_type: 'qwen2_5_vl' }),
        'model.safetensors': 'w'.repeat(300),
        'tokenizer.json': '{}',
        'old.bin': 'pickle',
        '.gitattributes': '',
        'README.md': '',
      },
      'some/looks': {
        'config.json': config({ model_type: 'siglip_vision_model' }),
        'model.safetensors': 'l'.repeat(300),
        'preprocessor_config.json': '{}',
      },
    };
    for (const [name, files] of Object.entries(repositories)) {
      stub.models[name] = { refs: { main: BASE }, commits: { [BASE]: files } };
    }
    const parts = {
      vae: { hub: 'some/vae' },
      text_encoder: { hub: 'some/words' },
      image_encoder: { hub: 'some/looks' },
    };
    const run = await loadConfig({
      file: 'configs/ip_adapter.jsonnet',
      sets: [
        'policy.model={"hub": "some/transformer"}',
        `policy.parts=${JSON.stringify(parts)}`,
        'reward.endpoint=embedded',
      ],
      env: { APP__BASE_EXP_DIR: join(folder, 'runs'), APP__DATA_DIR: join(folder, 'data') },
    });
    const names = Object.keys(repositories);
    expect(missingModels(run.settings).sort()).toEqual(names.toSorted());
    expect(await models.commitsOf(run)).toEqual(Object.fromEntries(names.map((name) => [`${name}@main`, BASE])));
    expect(missingModels(run.settings)).toEqual([]);
    const resolve = runResolver(join(folder, 'runs'), undefined, undefined, hubEnvironmentOf(run.settings));
    const held = Object.fromEntries(
      names.map((hub) => {
        const found = readdirSync(resolve({ hub, revision: 'main' }), { recursive: true, encoding: 'utf8' });
        return [hub, found.filter((path) => !path.startsWith('.')).sort()];
      }),
    );
    expect(held).toEqual({
      'some/transformer': ['config.json', 'diffusion_pytorch_model.safetensors'],
      'some/vae': ['config.json', 'diffusion_pytorch_model.safetensors'],
      'some/words': ['README.md', 'config.json', 'model.safetensors', 'tokenizer.json'],
      'some/looks': ['config.json', 'model.safetensors', 'preprocessor_config.json'],
    });
  });

  it('that are unavailable are reported once, for the first run that needs them', async () => {
    const { models, load } = await place();
    const config = await load({ model: { hub: 'some/bsae' } });
    const found = await models.obstacles([config, config]);
    expect(found.map(({ run, error }) => `${run}: ${error.message}`)).toEqual([
      'text_plain: the Hub has no model some/bsae, or it is private',
    ]);
  });
});
