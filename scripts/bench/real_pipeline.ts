/** The folder of a pipeline of FLUX's sizes, without its numbers: files that take no space. */
import { cpSync, mkdirSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { safetensorsHeader } from '../../src/core/safetensors.js';
import { Graph, sizeOf, type Value } from '../../src/graph/ir.js';
import { PIPELINE_FILE } from '../../src/models/files.js';
import { encodeClipText, readClipText } from '../../src/nets/clip/text_encoder.js';
import { readT5Config } from '../../src/nets/t5/config.js';
import { encodeT5 } from '../../src/nets/t5/encoder.js';

/** CLIP ViT-L/14's text half. */
const CLIP = {
  model_type: 'clip_text_model',
  hidden_size: 768,
  intermediate_size: 3072,
  num_hidden_layers: 12,
  num_attention_heads: 12,
  max_position_embeddings: 77,
  vocab_size: 49408,
  projection_dim: 768,
  hidden_act: 'quick_gelu',
  layer_norm_eps: 1e-5,
  bos_token_id: 49406,
  eos_token_id: 2,
};
/** The encoder of T5 1.1 XXL. */
const T5 = {
  model_type: 't5',
  d_model: 4096,
  d_kv: 64,
  d_ff: 10240,
  num_layers: 24,
  num_heads: 64,
  vocab_size: 32128,
  feed_forward_proj: 'gated-gelu',
};
const INDEX = {
  _class_name: 'FluxFillPipeline',
  scheduler: ['diffusers', 'FlowMatchEulerDiscreteScheduler'],
  transformer: ['diffusers', 'FluxTransformer2DModel'],
  vae: ['diffusers', 'AutoencoderKL'],
  text_encoder: ['transformers', 'CLIPTextModel'],
  text_encoder_2: ['transformers', 'T5EncoderModel'],
  tokenizer: ['transformers', 'CLIPTokenizer'],
  tokenizer_2: ['transformers', 'T5Tokenizer'],
};
/** Tokenizers that fewer tokens suffice for. */
const SMALL = 'test/policies/flow/fixtures/flux';

/** Writes it with these configs of its transformer and its autoencoder. */
export function writePipeline(folder: string, transformer: object, vae: object): void {
  const configs = { transformer, vae, scheduler: {}, text_encoder: CLIP, text_encoder_2: T5 };
  for (const [part, config] of Object.entries(configs)) writeJson(join(folder, part), 'config.json', config);
  writeJson(folder, PIPELINE_FILE, INDEX);
  for (const part of ['tokenizer', 'tokenizer_2']) cpSync(join(SMALL, part), join(folder, part), { recursive: true });
  writeWeights(join(folder, 'text_encoder'), (ids) =>
    encodeClipText(readClipText(join(folder, 'text_encoder'), false), ids),
  );
  writeWeights(join(folder, 'text_encoder_2'), (ids) => encodeT5(readT5Config(T5, folder), ids));
}

function writeJson(folder: string, name: string, content: object): void {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, name), JSON.stringify(content));
}

/** The weights that a graph reads, in bfloat16. */
function writeWeights(folder: string, build: (ids: Value) => unknown): void {
  const graph = new Graph('shapes');
  build(graph.input('ids', [1, 16], 'int64'));
  const shapes = new Map([...graph.parameters].map(([name, { shape }]) => [name, shape]));
  const header = safetensorsHeader(shapes, 'BF16');
  const file = join(folder, 'model.safetensors');
  writeFileSync(file, header);
  truncateSync(file, header.length + [...shapes.values()].reduce((sum, shape) => sum + 2 * sizeOf(shape), 0));
}
