/** Renames Emu3's decoder to Llama, which has the same architecture, so that servers without support for Emu3 can train and sample it. */
import { copyFileSync, existsSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { extname, join, resolve } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { CheckpointError, InternalError } from '../src/core/errors.js';
import { CONFIG_FILE, readConfig, tensorFiles } from '../src/models/files.js';
import { checkDecoder, describeDecoder } from '../src/models/networks/decoder.js';

const EMU3: ReadonlySet<unknown> = new Set(['Emu3', 'emu3_text_model']);
/** The keys of the config that are for Emu3's own code, which would be fetched from the Hub. */
const OWN_CODE = ['auto_map', 'boi_token_id', 'eoi_token_id', 'eof_token_id', 'eol_token_id', 'img_token_id'];

/**
 * Makes the folder `out`: its config is a Llama's with the same numbers, its weights are links to those of `folder`, and all other files are copies.
 * Raises CheckpointError for another model, for weights that do not fit, for names that a Llama's weights do not have, and if `out` already exists.
 */
export function relabelEmu3(folder: string, out: string): void {
  const json = readConfig<Record<string, unknown>>(folder);
  const where = join(folder, CONFIG_FILE);
  if (!EMU3.has(json['model_type'])) {
    throw new CheckpointError(
      `found model_type ${JSON.stringify(json['model_type'])}; allowed: ${[...EMU3].join(', ')}`,
      { where, next: 'Name the folder of Emu3 as BAAI publishes it, or of its text model as transformers saves it.' },
    );
  }
  const architecture = checkDecoder(folder);
  const { config, contextSize } = architecture;
  const other = [...tensorFiles(folder).keys()].find((name) => !/^(model\.|lm_head\.)/.test(name));
  if (other !== undefined) {
    throw new CheckpointError(`found the tensor ${other}; allowed: only those of a decoder, model.… and lm_head.…`, {
      where: folder,
      next: 'Save the text model by itself.',
    });
  }
  if (existsSync(out)) {
    throw new CheckpointError('already exists', { where: out, next: 'Name a folder that does not exist.' });
  }
  mkdirSync(out, { recursive: true });
  const kept = Object.entries(json).filter(([key]) => !OWN_CODE.includes(key));
  const relabeled = {
    ...Object.fromEntries(kept),
    architectures: ['LlamaForCausalLM'],
    model_type: 'llama',
    hidden_act: 'silu',
    attention_bias: false,
    mlp_bias: false,
    rms_norm_eps: config.rms_norm_eps,
    rope_theta: config.rope_theta,
    ...(contextSize === null ? {} : { max_position_embeddings: contextSize }),
    tie_word_embeddings: config.tie_word_embeddings,
  };
  for (const name of readdirSync(folder)) {
    if (name === CONFIG_FILE || extname(name) === '.py') continue;
    if (extname(name) === '.safetensors') symlinkSync(resolve(folder, name), join(out, name));
    else copyFileSync(join(folder, name), join(out, name));
  }
  writeFileSync(join(out, CONFIG_FILE), `${JSON.stringify(relabeled, null, 2)}\n`);
  // A Llama's config states for each bias whether it exists.
  const told = { ...architecture, config: { ...config, attention_output_bias: false, mlp_bias: false } };
  if (!isDeepStrictEqual(describeDecoder(out), told)) {
    throw new InternalError(`${out} is not the model of ${folder}`);
  }
}
