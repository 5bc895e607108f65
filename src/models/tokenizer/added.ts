/**
 * Tokens beyond a tokenizer's own vocabulary, gathered from a folder as transformers 5 does: those of tokenizer.json, then further ones of
 * tokenizer_config.json (or of special_tokens_map.json in older folders).
 */
import { z } from 'zod';
import { CheckpointError } from '../../core/errors.js';

const flag = z.boolean().nullish();
const token = z.looseObject({
  content: z.string(),
  special: flag,
  normalized: flag,
  lstrip: flag,
  rstrip: flag,
  single_word: flag,
});
/** A token by its words alone, or with how it is found in a text. */
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

/** A token with everything that decides where it is found; absent fields have the defaults of Python's AddedToken. */
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
