import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { CheckpointError, ConfigError, DataError } from '../../src/core/errors.js';
import { wordTokenizerJson } from '../../src/models/tokenizer/words.js';
import { openDecoder } from '../../src/models/networks/decoder.js';
import { decoderCheck, exampleConversation, inpaintCheck, tokenizerCheck } from '../../src/recipes/shared/checks.js';
import { openRecipeOf } from '../../src/recipes/open.js';
import { questionsCheck } from '../../src/recipes/video_actions/open.js';
import { checkFlowModel, checkFrozenFlow } from '../../src/train/policies/flow/load.js';
import { writeBench } from '../data/bench.js';
import { hasFfmpeg, writeOddVideo } from '../data/video/odd_files.js';
import { smallSettings } from './text_answers/small.js';
import { testFolders } from '../support/folder.js';

const newFolder = testFolders('checks');
afterEach(() => vi.unstubAllEnvs());
const DECODERS = join(import.meta.dirname, '../compute/nets/decoder/fixtures');

/** A copy of a small model as transformers saved it, changed; `mistral` lies in several files. */
function modelOf(kind: string, change: (folder: string) => void = () => {}): string {
  const folder = newFolder();
  cpSync(join(DECODERS, kind), folder, { recursive: true });
  change(folder);
  return folder;
}

function rewrite(folder: string, name: string, change: (json: Record<string, unknown>) => object): void {
  const path = join(folder, name);
  const json = JSON.parse(readFileSync(path, 'utf8')) as Record<string, unknown>;
  writeFileSync(path, JSON.stringify(change(json)));
}
const config = (change: object) => (folder: string) =>
  rewrite(folder, 'config.json', (json) => ({ ...json, ...change }));
const shardsOf = (folder: string): string[] => readdirSync(folder).filter((name) => name.endsWith('.safetensors'));

/** Another dtype in the header of the same length. */
function otherDtype(folder: string): void {
  const path = join(folder, 'model.safetensors');
  const bytes = readFileSync(path);
  const at = bytes.indexOf('"F32"');
  bytes.write('"I32"', at);
  writeFileSync(path, bytes);
}

const lora = { rank: 2, alpha: 4, rslora: false, targets: 'all-linear' as string | string[] };
const decoder =
  (folder: string, changes: object = {}) =>
  () =>
    decoderCheck(folder, { lora, contextSize: 64, ...changes }).run();

describe('a model', () => {
  it.each(['llama', 'mistral', 'llama3', 'qwen2', 'qwen2_vl', 'emu3_text'])('%s is right', (kind) => {
    expect(decoder(modelOf(kind))).not.toThrow();
  });

  it('with vision is checked with its encoder and its image processor', () => {
    const vision = { mm_vision: false, mm_mlp: true, mm_llm: true };
    expect(decoder(modelOf('qwen2'), { vision })).toThrow(/"qwen2" without vision_config reads no images/);
    const folder = modelOf('qwen2_vl');
    expect(decoder(folder, { vision })).toThrow(/preprocessor_config\.json/);
    writeFileSync(join(folder, 'preprocessor_config.json'), '{}');
    expect(decoder(folder, { vision })).not.toThrow();
    expect(decoder(folder, { vision, lora: { ...lora, targets: ['attn.qkv'] } })).toThrow(/matches no linear layer/);
  });

  const broken: readonly (readonly [string, string, (folder: string) => void, RegExp])[] = [
    ['without config.json', 'llama', (folder) => rmSync(join(folder, 'config.json')), /there is no config\.json/],
    [
      'without weights',
      'llama',
      (folder) => rmSync(join(folder, 'model.safetensors')),
      /there are no weights; allowed: .*model\.safetensors/,
    ],
    [
      'with a shard missing',
      'mistral',
      (folder) => rmSync(join(folder, shardsOf(folder)[1])),
      /the index names files that are not there: model-00002-of-/,
    ],
    [
      'with an index that names absent tensors',
      'mistral',
      (folder) =>
        rewrite(folder, 'model.safetensors.index.json', (json) => ({
          ...json,
          weight_map: { ...(json['weight_map'] as object), 'model.none.weight': shardsOf(folder)[0] },
        })),
      /the index maps model\.none\.weight to model-00001-of-.*, which does not contain it/,
    ],
    [
      'with an index that leaves tensors out',
      'mistral',
      (folder) =>
        rewrite(folder, 'model.safetensors.index.json', (json) => {
          const kept = Object.entries(json['weight_map'] as object).filter(([name]) => name !== 'model.norm.weight');
          return { weight_map: Object.fromEntries(kept) };
        }),
      /tensor model\.norm\.weight is not in the file/,
    ],
    [
      'with a file that was cut off',
      'llama',
      (folder) => truncateSync(join(folder, 'model.safetensors'), 100_000),
      /not a whole safetensors file: it ends after \d+ bytes, \d+ are needed/,
    ],
    [
      'with a file that has no whole header',
      'llama',
      (folder) => truncateSync(join(folder, 'model.safetensors'), 100),
      /not a whole safetensors file/,
    ],
    [
      'of another architecture',
      'llama',
      config({ model_type: 'gpt_neox' }),
      /model_type 'gpt_neox' is not supported; allowed: llama, mistral, /,
    ],
    [
      'with other positions',
      'llama',
      config({ rope_parameters: { rope_type: 'proportional', factor: 2 } }),
      /proportional.*allowed: /,
    ],
    [
      'of another activation',
      'llama',
      config({ hidden_act: 'gelu' }),
      /hidden_act 'gelu' is not supported; allowed: silu/,
    ],
    ['of another dtype', 'llama', otherDtype, /tensor \S+ has dtype I32, weights must be F32, F16 or BF16/],
    [
      'whose weights are of another size',
      'llama',
      config({ intermediate_size: 64 }),
      /tensor \S+ has shape \[48, 32\], but the config needs \[64, 32\]/,
    ],
  ];
  it.each(broken)('%s is rejected, as by whoever opens it', (_, kind, change, message) => {
    const folder = modelOf(kind, change);
    expect(decoder(folder)).toThrow(CheckpointError);
    expect(decoder(folder)).toThrow(message);
    expect(() => openDecoder(folder)).toThrow(message);
  });

  it('has layers for adapters', () => {
    const other = decoder(modelOf('llama'), { lora: { ...lora, targets: ['query'] } });
    expect(other).toThrow(ConfigError);
    expect(other).toThrow("'query' matches no linear layer");
    expect(other).toThrow(
      expect.objectContaining({ next: expect.stringContaining('q_proj, k_proj') as string }) as Error,
    );
    expect(decoder(modelOf('llama'), { lora: null })).not.toThrow();
  });

  it('was made for sequences as long as it is given', () => {
    const long = decoder(modelOf('llama'), { contextSize: 65 });
    expect(long).toThrow(ConfigError);
    expect(long).toThrow('policy.model_context_size is 65, but the model has only 64 positions');
  });

  it('may be an adapter over another model, which is checked', () => {
    const base = modelOf('llama');
    const folder = newFolder();
    adapterOver(base, folder);
    expect(decoder(folder)).not.toThrow();
    truncateSync(join(base, 'model.safetensors'), 100_000);
    expect(decoder(folder)).toThrow(/not a whole safetensors file/);
  });

  it('may be an adapter over a model of the Hub, which is checked after its download', () => {
    const [folder, cache, commit] = [newFolder(), newFolder(), 'a'.repeat(40)];
    vi.stubEnv('HF_HUB_CACHE', cache);
    adapterOver('some/base', folder);
    expect(decoder(folder)).not.toThrow();
    const [refs, snapshots] = ['refs', 'snapshots'].map((name) => join(cache, 'models--some--base', name));
    mkdirSync(refs, { recursive: true });
    writeFileSync(join(refs, 'main'), commit);
    cpSync(join(DECODERS, 'llama'), join(snapshots, commit), { recursive: true });
    expect(decoder(folder)).not.toThrow();
    truncateSync(join(snapshots, commit, 'model.safetensors'), 100_000);
    expect(decoder(folder)).toThrow(/not a whole safetensors file/);
  });
});

/** Writes an adapter that peft saved over a base of the form of `llama`. */
function adapterOver(base: string, folder: string): void {
  cpSync(join(import.meta.dirname, '../train/policies/adapters/rslora'), folder, { recursive: true });
  const path = join(folder, 'adapter_config.json');
  const config = JSON.parse(readFileSync(path, 'utf8')) as object;
  writeFileSync(path, JSON.stringify({ ...config, base_model_name_or_path: base }));
}

describe('a tokenizer', () => {
  /** With one for what is no word, and one that ends. */
  type Asks = Parameters<typeof exampleConversation>[1];
  const words = (count: number): string =>
    wordTokenizerJson(
      ['<end>'],
      Array.from({ length: count - 2 }, (_, i) => `w${i}`),
    );
  const withTokenizer = (json: string, template: string | null = 'x') =>
    modelOf('llama', (folder) => {
      writeFileSync(join(folder, 'tokenizer.json'), json);
      if (template !== null) writeFileSync(join(folder, 'chat_template.jinja'), template);
    });
  const tokenizer = (folder: string, conversation = conversationOf({}), model: string | null = folder) =>
    tokenizerCheck(folder, conversation, model).run;
  const conversationOf = (changes: Partial<Parameters<typeof exampleConversation>[0]>, asks: Asks = 'words') =>
    exampleConversation({ chat: true, system: null, variables: {}, ...changes }, asks);

  it('has no more tokens than the model has rows', () => {
    expect(tokenizer(withTokenizer(words(61)))).not.toThrow();
    const many = tokenizer(withTokenizer(words(62)));
    expect(many).toThrow(CheckpointError);
    expect(many).toThrow('the model has 61 tokens, but its tokenizer has 62');
    expect(tokenizer(withTokenizer(words(62)), conversationOf({}), null)).not.toThrow();
  });

  it('is there, and can be read', () => {
    expect(tokenizer(modelOf('llama'))).toThrow('there is no tokenizer; allowed: tokenizer.json');
    const older = modelOf('llama');
    writeFileSync(join(older, 'tokenizer.model'), '');
    expect(tokenizer(older)).toThrow(/; found: tokenizer\.model$/);
    expect(tokenizer(withTokenizer('{'))).toThrow(CheckpointError);
  });

  it('has a template for chat alone', () => {
    const bare = withTokenizer(words(61), null);
    expect(tokenizer(bare)).toThrow(DataError);
    expect(tokenizer(bare)).toThrow('the model has no chat template');
    expect(tokenizer(bare, conversationOf({ chat: false }))).not.toThrow();
    expect(tokenizer(withTokenizer(words(61), '{% if %}'))).toThrow(/the chat template cannot be parsed/);
  });

  it('has a template that takes what the run says: a system message, examples, images, names of its own', () => {
    const pairs = JSON.stringify({ model: { type: 'BPE', vocab: { a: 0 }, merges: [] } });
    const gemma = withTokenizer(
      pairs,
      "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{{ m.content + eos_token }}{% endfor %}",
    );
    writeFileSync(join(gemma, 'tokenizer_config.json'), JSON.stringify({ eos_token: '<end>' }));
    const said = (folder: string, ...all: Parameters<typeof conversationOf>) =>
      tokenizer(folder, conversationOf(...all));
    const examples = [{ prompt: 'a', answer: 'b' }];
    expect(said(gemma, { examples })).not.toThrow();
    expect(said(gemma, { system: 'x' })).toThrow(/the chat template fails: System role not supported/);
    expect(said(gemma, {}, 'words and images')).toThrow(/the chat template fails: /);
    const single = withTokenizer(
      pairs,
      "{% if messages|length > 1 or not enable_thinking %}{{ raise_exception('one turn, thinking') }}{% endif %}",
    );
    expect(said(single, { variables: { enable_thinking: true } })).not.toThrow();
    expect(said(single, {})).toThrow('one turn, thinking');
    expect(said(single, { variables: { enable_thinking: true }, examples })).toThrow('one turn, thinking');
  });
});

describe('text_answers checks', () => {
  const namesOf = (changes: Parameters<typeof smallSettings>[0]): string[] => {
    const settings = smallSettings(changes);
    return openRecipeOf(settings)
      .checks(settings, () => null)
      .map(({ name }) => name);
  };
  const data = { tiny: null, train: [{ path: 'a.jsonl' }], validation: [{ path: 'b' }] };

  it('rows with the columns of its prompts, a decoder and its tokenizer', () => {
    const policy = { init: null, model: 'folder', lora: { rank: 2 } };
    const conversation = { messages: [{ role: 'user', content: 'a question' }], variables: {} };
    expect(namesOf({ data: { ...data, columns: { expected: 'label' } }, policy })).toEqual([
      'rows ["a.jsonl",["prompt","label"]]',
      'rows ["b",["prompt","label"]]',
      expect.stringMatching(/^decoder \["folder",\{"lora":\{"rank":2,.*"contextSize":64\}\]$/),
      `tokenizer ["folder",${JSON.stringify(conversation)},"folder"]`,
    ]);
  });

  it('no model that another run makes, and no data that the run makes itself', () => {
    const policy = { init: null, model: { run: 'start', config: 'start.jsonnet' }, tokenizer: 'words' };
    expect(namesOf({ data, policy }).map((name) => name.split(' ')[0])).toEqual(['rows', 'rows', 'tokenizer']);
    expect(namesOf({}).filter((name) => name.startsWith('rows'))).toEqual([]);
  });
});

describe('inpainting samples', () => {
  it('are there by their names, and quote a text where a reward reads it', () => {
    const look = (path: string, quoted: boolean) => inpaintCheck(path, { quoted, side: 1, resolution: null }).run;
    const whole = writeBench(newFolder());
    expect(look(whole, true)).not.toThrow();
    const bare = writeBench(newFolder(), { 'self_bench.txt': '1 a sign\n2 a sign that says ""\n12 "ok"\n' });
    expect(look(bare, false)).not.toThrow();
    expect(look(bare, true)).toThrow(/2 problems found.*quotes no text.*quotation is empty/s);
    rmSync(join(whole, '12_mask.png'));
    expect(look(whole, false)).toThrow(/sample 12 has no 12_mask.png/);
  });
});

describe('a flow transformer', () => {
  const FLOWS = join(import.meta.dirname, '../compute/nets/flow/fixtures');
  const look = (name: string, trains: 'all' | 'adapter', change: (folder: string) => void = () => {}) => {
    const folder = newFolder();
    cpSync(join(FLOWS, name), folder, { recursive: true });
    change(folder);
    return () => checkFlowModel(folder, { trains, lora: null, imagePrompt: null });
  };

  it('is right as diffusers saved it', () => {
    expect(look('flux', 'all')).not.toThrow();
    expect(look('flux_ip_adapter', 'adapter')).not.toThrow();
  });

  it('needs the adapter that alone is to be trained, and all of its weights', () => {
    expect(look('flux', 'adapter')).toThrow('the model has no IP-Adapter to train');
    const other = config({ num_layers: 7 });
    expect(look('flux', 'all', other)).toThrow(CheckpointError);
    expect(look('flux', 'all', config({ _class_name: 'Unknown' }))).toThrow("_class_name 'Unknown' is not supported");
  });

  it('may stay as it is', () => {
    expect(() => checkFrozenFlow(join(FLOWS, 'qwen_image'), null)).not.toThrow();
  });
});

describe.skipIf(!hasFfmpeg)('a list of questions about videos (skipped without ffmpeg)', () => {
  const look = (samples: readonly Readonly<Record<string, unknown>>[]) => {
    const path = join(newFolder(), 'conversations.json');
    const conversations = [
      { from: 'human', value: '<video> Which?' },
      { from: 'gpt', value: '(1) red' },
    ];
    writeFileSync(path, JSON.stringify(samples.map((sample) => ({ conversations, ...sample }))));
    writeOddVideo(join(dirname(path), 'whole.mp4'), { frames: 6 });
    writeFileSync(join(dirname(path), 'words.mp4'), 'no video');
    return questionsCheck(path, null, { as: 'images', min: 4, max: 8, interval: 2 }).run;
  };

  it('is opened at its first video alone', () => {
    expect(look([{ video: 'whole.mp4' }, { video: 'words.mp4' }])).not.toThrow();
    expect(look([{ video: 'words.mp4' }, { video: 'whole.mp4' }])).toThrow(/words\.mp4: it is not a supported video/);
  });

  it('is asked for as many frames as the run shows', () => {
    expect(look([{ video: 'whole.mp4', meta: { min_frames: 7 } }])).toThrow('it has 6 frames, but at least 7');
  });
});
