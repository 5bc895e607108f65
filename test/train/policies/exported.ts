/** A checkpoint with an adapter, as a run leaves it, over a fixture's base. */
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const models = fileURLToPath(new URL('../../compute/nets/decoder/fixtures', import.meta.url));
const adapters = fileURLToPath(new URL('./adapters', import.meta.url));

/** Files of a checkpoint that are no weights. */
export const besides = {
  'tokenizer.json': '{"of":"the checkpoint"}',
  'chat_template.jinja': '{{ messages }}',
  'optimizer.safetensors': 'moments',
  'trainer.json': '{}',
  'MANIFEST.json': '{}',
};

export function adapterCheckpoint(folder: string, name = 'all_linear'): { checkpoint: string; base: string } {
  const checkpoint = join(folder, 'runs', 'child', 'checkpoints', '000002');
  mkdirSync(checkpoint, { recursive: true });
  cpSync(join(adapters, name), checkpoint, { recursive: true });
  const config = join(checkpoint, 'adapter_config.json');
  const json = JSON.parse(readFileSync(config, 'utf8')) as { base_model_name_or_path: string };
  const base = join(models, json.base_model_name_or_path);
  writeFileSync(config, JSON.stringify({ ...json, base_model_name_or_path: base }));
  for (const [file, text] of Object.entries(besides)) writeFileSync(join(checkpoint, file), text);
  return { checkpoint, base };
}
