/** A tokenizer from a model's folder in the Hugging Face layout. */
import { join } from 'node:path';
import { z } from 'zod';
import { CheckpointError } from '../../core/errors.js';
import { GENERATION_FILE, TOKENIZER_FILE } from '../files.js';
import {
  type AddedToken,
  PROCESSOR_TEMPLATE_FILE,
  type SpecialTokens,
  TEMPLATE_FILE,
  TOKENIZER_CONFIG_FILE,
  type TokenizerConfig,
  noTokenizer,
  parse,
  parseAddedTokens,
  readConfig,
  readJson,
  readText,
  specialTokens,
  tokenizerFolder,
  tokenizerJson,
} from './texts.js';
import { HuggingFaceTokenizer } from './hugging_face.js';
import type { Tokenizer } from './tokenizer.js';
import { isWordTokenizer, WordTokenizer } from './words.js';

const SPECIAL_TOKENS_FILE = 'special_tokens_map.json';

/** The parts of tokenizer.json that this program reads. The library reads the rest. */
const form = z.object({
  model: z.object({ type: z.string().optional() }).nullish().catch(null),
  padding: z
    .object({ pad_token: z.string() })
    .nullish()
    .catch(null)
    .transform((value) => value ?? null),
});

/**
 * Raises CheckpointError for a folder without tokenizer.json, with a tokenizer that cannot be read, or with unsupported
 * settings.
 */
export function openTokenizer(model: string): Tokenizer {
  const folder = tokenizerFolder(model);
  const where = join(folder, TOKENIZER_FILE);
  const json = tokenizerJson(folder);
  if (json === null) throw noTokenizer(folder);
  const parsed = parse(json, where);
  if (isWordTokenizer(parsed)) return new WordTokenizer(json, where);
  const names = [TOKENIZER_CONFIG_FILE, SPECIAL_TOKENS_FILE, TEMPLATE_FILE, PROCESSOR_TEMPLATE_FILE];
  const others = names.flatMap((name) => {
    const text = readText(folder, name);
    return text === null ? [] : [[name, text] as const];
  });
  const settings = readConfig(folder, TOKENIZER_CONFIG_FILE) ?? {};
  if (settings.split_special_tokens === true) {
    throw new CheckpointError('split_special_tokens is not supported: true; allowed: false', {
      where: join(folder, TOKENIZER_CONFIG_FILE),
    });
  }
  const own = parseAddedTokens(parsed, where);
  return new HuggingFaceTokenizer({
    json,
    own,
    special: specialOf(folder, parsed, own, settings),
    // transformers does not clean up the text of byte-pair tokenizers, whatever their files contain.
    cleanUp: settings.clean_up_tokenization_spaces === true && form.parse(parsed).model?.type !== 'BPE',
    files: { [TOKENIZER_FILE]: json, ...Object.fromEntries(others) },
    where,
  });
}

/**
 * A tokenizer's `special`, without the tokenizer: `parsed` is the folder's tokenizer.json. Raises the CheckpointErrors of `openTokenizer` for files
 * that define special tokens.
 */
export function specialNames(model: string, parsed: unknown): Tokenizer['special'] {
  const folder = tokenizerFolder(model);
  const where = join(folder, TOKENIZER_FILE);
  if (isWordTokenizer(parsed)) return {};
  const settings = readConfig(folder, TOKENIZER_CONFIG_FILE) ?? {};
  return specialOf(folder, parsed, parseAddedTokens(parsed, where), settings).named;
}

function specialOf(
  folder: string,
  parsed: unknown,
  own: readonly AddedToken[],
  settings: TokenizerConfig,
): SpecialTokens {
  const { padding } = form.parse(parsed);
  // The file's padding token is a special token, too.
  const named = padding === null ? settings : { pad_token: padding.pad_token, ...settings };
  return specialTokens(own, named, readConfig(folder, SPECIAL_TOKENS_FILE));
}

const ids = z
  .union([
    z
      .int()
      .nonnegative()
      .transform((id) => [id]),
    z.array(z.int().nonnegative()),
  ])
  .nullish();
const ending = z.looseObject({ eos_token_id: ids });

/**
 * The ids that end an answer: those of generation_config.json, and the tokenizer's `eos_token`. Raises CheckpointError
 * if both are missing.
 */
export function endTokens(folder: string, tokenizer: Pick<Tokenizer, 'special' | 'id'>): readonly number[] {
  const where = join(folder, GENERATION_FILE);
  const parsed = ending.safeParse(readJson(folder, GENERATION_FILE) ?? {});
  if (!parsed.success) throw new CheckpointError('eos_token_id is neither an id nor a list of ids', { where });
  const own = tokenizer.special['eos_token'];
  const found = new Set([...(parsed.data.eos_token_id ?? []), ...(own === undefined ? [] : [tokenizer.id(own)])]);
  if (found.size > 0) return [...found];
  throw new CheckpointError('no file names the token that ends an answer', {
    where: folder,
    next: `Name it in ${GENERATION_FILE} (eos_token_id) or ${TOKENIZER_CONFIG_FILE} (eos_token).`,
  });
}
