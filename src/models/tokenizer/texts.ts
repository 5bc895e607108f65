/**
 * The texts of a tokenizer's folder, and its chat template: everything available without the library that computes
 * tokens.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { CheckpointError } from '../../core/errors.js';
import { readTextFile } from '../../core/text.js';
import { ChatTemplate } from '../chat/template.js';
import { folderWith, TOKENIZER_FILE } from '../files.js';
import {
  CLIP_MERGES_FILE,
  CLIP_TOKENIZERS,
  CLIP_VOCABULARY_FILE,
  EMU3_RANKS_FILE,
  EMU3_VISION_FILE,
  clipTokenizerJson,
  emu3TokenizerJson,
} from './older_forms.js';
import type { Tokenizer } from './tokenizer.js';

export const TOKENIZER_CONFIG_FILE = 'tokenizer_config.json';
export const TEMPLATE_FILE = 'chat_template.jinja';
/** The file in which vision models store their template. */
export const PROCESSOR_TEMPLATE_FILE = 'chat_template.json';
/** Further templates under names of their own. */
const TEMPLATES_FOLDER = 'additional_chat_templates';

/** Tokenizers in forms that are not read, by the file that shows them. */
const otherForms = [
  'tokenizer.model',
  'spiece.model',
  'tekken.json',
  'vocab.json',
  'vocab.txt',
  'tiktoken.model',
  EMU3_RANKS_FILE,
];

/** A file's text. Null if there is no such file. Raises CheckpointError if it cannot be read. */
export function readText(folder: string, name: string): string | null {
  const path = join(folder, name);
  if (!existsSync(path)) return null;
  try {
    return readTextFile(path, CheckpointError);
  } catch (cause) {
    if (cause instanceof CheckpointError) throw cause;
    throw new CheckpointError('cannot be read', { where: path, cause });
  }
}

/** The folder with the tokenizer of a model. A pipeline of Qwen-Image keeps it beside the text encoder. */
export function tokenizerFolder(folder: string): string {
  return folderWith(folder, [TOKENIZER_FILE, TOKENIZER_CONFIG_FILE]);
}

/**
 * The text of a folder's tokenizer.json, or Emu3's or CLIP's own files in that form. Null if the folder has none.
 * Raises CheckpointError.
 */
export function tokenizerJson(model: string): string | null {
  const folder = tokenizerFolder(model);
  const own = readText(folder, TOKENIZER_FILE);
  if (own !== null) return own;
  const [ranks, vision] = [EMU3_RANKS_FILE, EMU3_VISION_FILE].map((name) => readText(folder, name));
  return ranks === null || vision === null
    ? clipFiles(folder)
    : emu3TokenizerJson(ranks, vision, join(folder, EMU3_RANKS_FILE));
}

function clipFiles(folder: string): string | null {
  const merges = readText(folder, CLIP_MERGES_FILE);
  const vocabulary = readJson(folder, CLIP_VOCABULARY_FILE);
  if (merges === null || vocabulary === null) return null;
  const { tokenizer_class: kind } = Object(readJson(folder, TOKENIZER_CONFIG_FILE)) as {
    readonly tokenizer_class?: unknown;
  };
  if (!CLIP_TOKENIZERS.includes(kind)) return null;
  return clipTokenizerJson(vocabulary, merges, join(folder, CLIP_VOCABULARY_FILE));
}

export function parse(text: string, where: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new CheckpointError(`is not JSON: ${(cause as Error).message}`, { where, cause });
  }
}

export function readJson(folder: string, name: string): unknown {
  const text = readText(folder, name);
  return text === null ? null : parse(text, join(folder, name));
}

export function readConfig(folder: string, name: string): TokenizerConfig | null {
  const json = readJson(folder, name);
  return json === null ? null : parseTokenizerConfig(json, join(folder, name));
}

/** Advice about a tokenizer in another form. */
export const MAKE_TOKENIZER =
  'Make it in Python: AutoTokenizer.from_pretrained(folder).save_pretrained(folder) of the package transformers.';

/** The message about a folder for which `tokenizerJson` returns null. */
export function noTokenizer(folder: string): CheckpointError {
  const others = otherForms.filter((name) => existsSync(join(folder, name)));
  const found = others.length === 0 ? '' : `; found: ${others.join(', ')}`;
  return new CheckpointError(
    `there is no tokenizer; allowed: ${TOKENIZER_FILE}, ${EMU3_RANKS_FILE} with ${EMU3_VISION_FILE}, ${CLIP_VOCABULARY_FILE} with ${CLIP_MERGES_FILE} of a CLIPTokenizer${found}`,
    {
      where: folder,
      next: MAKE_TOKENIZER,
    },
  );
}

/** The template that renders a folder's conversations. Null if it has none. Raises DataError if it cannot be parsed. */
export function openChatTemplate(model: string, { special }: Pick<Tokenizer, 'special'>): ChatTemplate | null {
  const folder = tokenizerFolder(model);
  const own = readText(folder, TEMPLATE_FILE) ?? readText(folder, join(TEMPLATES_FOLDER, 'default.jinja'));
  if (own !== null) return new ChatTemplate(own, join(folder, TEMPLATE_FILE), special);
  for (const name of [TOKENIZER_CONFIG_FILE, PROCESSOR_TEMPLATE_FILE]) {
    const found = readConfig(folder, name)?.chat_template ?? null;
    if (found === null) continue;
    const where = `${join(folder, name)}: chat_template`;
    if (typeof found === 'string') return new ChatTemplate(found, where, special);
    const usual = found.find((entry) => entry.name === 'default');
    if (usual !== undefined) return new ChatTemplate(usual.template, where, special);
    throw new CheckpointError(
      `has templates named ${found.map((entry) => entry.name).join(', ')}, but none named default`,
      { where },
    );
  }
  return null;
}

/**
 * One more than the highest id of a tokenizer.json, to which the files next to it may add. Null if it has another form.
 */
export function tokenCount(json: unknown): number | null {
  const { model, added_tokens: added } = Object(json) as {
    readonly model?: { readonly vocab?: unknown } | null;
    readonly added_tokens?: unknown;
  };
  const vocab = model?.vocab;
  if (typeof vocab !== 'object' || vocab === null) return null;
  // A list has its tokens in the order of their ids. There may be several hundred thousand, so no schema checks them.
  const own: unknown[] = Array.isArray(vocab) ? [vocab.length - 1] : Object.values(vocab);
  const more = Array.isArray(added) ? added.map((token) => (Object(token) as { readonly id?: unknown }).id) : [];
  const ids = [...own, ...more].filter((id) => typeof id === 'number');
  return ids.reduce((most, id) => Math.max(most, id), -1) + 1;
}

const flag = z.boolean().nullish();
const token = z.looseObject({
  content: z.string(),
  special: flag,
  normalized: flag,
  lstrip: flag,
  rstrip: flag,
  single_word: flag,
});
/** A token as its text, or with its matching options. */
const named = z.union([z.string(), token]);
const config = z.looseObject({
  added_tokens_decoder: z.record(z.string(), token).nullish(),
  additional_special_tokens: z.union([z.array(named), z.record(z.string(), named)]).nullish(),
  extra_special_tokens: z.union([z.array(named), z.record(z.string(), named)]).nullish(),
  clean_up_tokenization_spaces: flag,
  split_special_tokens: flag,
  chat_template: z.union([z.string(), z.array(z.object({ name: z.string(), template: z.string() }))]).nullish(),
});
export type TokenizerConfig = z.output<typeof config>;

/** A token with all of its matching options. Absent fields have the defaults of Python's AddedToken. */
export interface AddedToken {
  readonly content: string;
  readonly special: boolean;
  readonly normalized: boolean;
  readonly lstrip: boolean;
  readonly rstrip: boolean;
  readonly single_word: boolean;
}

export interface SpecialTokens {
  /** The special tokens that the folder's files name, by name. */
  readonly named: Readonly<Record<string, string>>;
  /** Tokens that the tokenizer lacks or defines differently, in the order in which they are added. */
  readonly added: readonly AddedToken[];
}

/** Raises CheckpointError for a file of another form. */
export function parseTokenizerConfig(json: unknown, where: string): TokenizerConfig {
  const parsed = config.safeParse(json);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw new CheckpointError(`${issue.path.join('.')}: ${issue.message}`, { where });
}

/** The tokens of tokenizer.json. Raises CheckpointError for entries of another form. */
export function parseAddedTokens(json: unknown, where: string): readonly AddedToken[] {
  const parsed = z.object({ added_tokens: z.array(token).nullish() }).safeParse(json);
  if (parsed.success) return (parsed.data.added_tokens ?? []).map(complete);
  const [issue] = parsed.error.issues;
  throw new CheckpointError(`${issue.path.join('.')}: ${issue.message}`, { where });
}

const usualNames = ['bos_token', 'eos_token', 'unk_token', 'sep_token', 'pad_token', 'cls_token', 'mask_token'];

/** The tokens that a folder names and `tokenizer` (tokenizer.json's) lacks. `map` is special_tokens_map.json, which newer folders do not have. */
export function specialTokens(
  tokenizer: readonly AddedToken[],
  settings: TokenizerConfig,
  map: TokenizerConfig | null,
): SpecialTokens {
  const decoder = settings.added_tokens_decoder ?? null;
  const merged = decoder === null && map !== null ? { ...settings, ...map } : settings;
  const extra = merged.extra_special_tokens ?? merged.additional_special_tokens ?? [];
  const entries = new Map<string, AddedToken>();
  const all = Object.entries({ ...merged, ...(Array.isArray(extra) ? {} : extra) });
  for (const name of [...usualNames, ...all.map(([key]) => key)]) {
    const value = named.safeParse(all.find(([key]) => key === name)?.[1]);
    if (value.success && (name.endsWith('_token') || !(name in merged))) entries.set(name, special(value.data));
  }
  const known = new Set(tokenizer.map(({ content }) => content));
  const added: AddedToken[] = [];
  for (const [, entry] of Object.entries(decoder ?? {}).sort(([a], [b]) => Number(a) - Number(b))) {
    const whole = complete(entry);
    if (!tokenizer.some((other) => same(other, whole))) added.push(whole);
  }
  for (const entry of [...entries.values(), ...(Array.isArray(extra) ? extra.map(special) : [])]) {
    if (!known.has(entry.content) && !added.some(({ content }) => content === entry.content)) added.push(entry);
  }
  const contents = new Set([...entries.values()].map(({ content }) => content));
  return {
    named: Object.fromEntries([...entries].map(([name, { content }]) => [name, content])),
    added: added.map((entry) => (contents.has(entry.content) ? { ...entry, special: true } : entry)),
  };
}

function complete(entry: z.output<typeof token>): AddedToken {
  const isSpecial = entry.special ?? false;
  return {
    content: entry.content,
    special: isSpecial,
    normalized: entry.normalized ?? !isSpecial,
    lstrip: entry.lstrip ?? false,
    rstrip: entry.rstrip ?? false,
    single_word: entry.single_word ?? false,
  };
}

function special(entry: z.output<typeof named>): AddedToken {
  return complete(typeof entry === 'string' ? { content: entry, special: true } : { ...entry, special: true });
}

function same(a: AddedToken, b: AddedToken): boolean {
  return (Object.keys(a) as (keyof AddedToken)[]).every((key) => a[key] === b[key]);
}
