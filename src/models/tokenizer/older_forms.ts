/**
 * Converts tokenizers in older forms to `tokenizer.json`: CLIP's vocab.json and merges.txt, and BAAI's files for Emu3,
 * `emu3.tiktoken` (one token in base64 and its rank per line) and `emu3_vision_tokens.txt`. The `tokenizer.json` gives
 * the same ids, because pairs are merged in the order of the ranks of their results.
 */
import { z } from 'zod';
import { CheckpointError } from '../../core/errors.js';

export const EMU3_RANKS_FILE = 'emu3.tiktoken';
export const EMU3_VISION_FILE = 'emu3_vision_tokens.txt';

/** Splits texts before bytes are merged. Each digit is separate. */
const PATTERN =
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

/** Special tokens that precede the image tokens. They follow the last rank. */
const SPECIAL: readonly string[] = [
  '<|endoftext|>',
  '<|im_start|>',
  '<|im_end|>',
  ...Array.from({ length: 205 }, (_, i) => `<|extra_${i}|>`),
];

/**
 * The `tokenizer.json` for the texts of both files. Raises CheckpointError naming `where` for lines of another form.
 */
export function emu3TokenizerJson(ranks: string, vision: string, where: string): string {
  const tokens = readRanks(ranks, where);
  const named = [...SPECIAL, ...lines(vision)];
  const added = named.map((content, i) => ({
    id: tokens.length + i,
    content,
    single_word: false,
    lstrip: false,
    rstrip: false,
    normalized: false,
    special: true,
  }));
  return JSON.stringify({
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: added,
    normalizer: { type: 'NFC' },
    pre_tokenizer: {
      type: 'Sequence',
      pretokenizers: [
        { type: 'Split', pattern: { Regex: PATTERN }, behavior: 'Isolated', invert: false },
        { type: 'ByteLevel', add_prefix_space: false, trim_offsets: false, use_regex: false },
      ],
    },
    post_processor: null,
    decoder: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: false, use_regex: false },
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: '',
      end_of_word_suffix: '',
      fuse_unk: false,
      byte_fallback: false,
      // A piece that is a token is that token, however its bytes would join.
      ignore_merges: true,
      vocab: Object.fromEntries(tokens.map((token, rank) => [spelt(token), rank])),
      merges: mergesOf(tokens).map((pair) => pair.map(spelt)),
    },
  });
}

/** Tokens as strings of one character a byte, by rank. */
function readRanks(text: string, where: string): string[] {
  const tokens: string[] = [];
  for (const [number, line] of lines(text).entries()) {
    const [encoded, rank] = line.split(' ');
    const token = Buffer.from(encoded, 'base64').toString('latin1');
    if (token === '' || Number(rank) !== number) {
      throw new CheckpointError(`line ${number + 1} is not a token with rank ${number}`, {
        where,
        next: 'Fetch the tokenizer again.',
      });
    }
    tokens.push(token);
  }
  return tokens;
}

/**
 * For every token the pairs of tokens that merge into it, ordered by the rank of the result and then by the rank of
 * their first parts.
 */
function mergesOf(tokens: readonly string[]): (readonly [string, string])[] {
  const ranks = new Map(tokens.map((token, rank) => [token, rank]));
  const rank = (token: string): number => ranks.get(token) ?? Infinity;
  return tokens.flatMap((token) => {
    const pairs: (readonly [string, string])[] = [];
    for (let at = 1; at < token.length; at++) {
      const pair = [token.slice(0, at), token.slice(at)] as const;
      if (pair.every((part) => ranks.has(part))) pairs.push(pair);
    }
    // No two of them begin with the same part, so the order is total.
    return pairs.sort((a, b) => rank(a[0]) - rank(b[0]));
  });
}

/** GPT-2's characters for bytes: printable ones represent themselves, the others those from U+0100 on. */
const CHARACTERS: readonly string[] = (() => {
  const plain = (byte: number): boolean =>
    (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(plain(byte) ? byte : next++));
})();

function spelt(token: string): string {
  return Array.from(token, (byte) => CHARACTERS[byte.charCodeAt(0)]).join('');
}

function lines(text: string): string[] {
  return text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '');
}

export const CLIP_VOCABULARY_FILE = 'vocab.json';
export const CLIP_MERGES_FILE = 'merges.txt';
/**
 * The classes of transformers that read these two files in this way. Others with the same files split texts
 * differently.
 */
export const CLIP_TOKENIZERS: readonly unknown[] = ['CLIPTokenizer', 'CLIPTokenizerFast'];

const [START, END] = ['<|startoftext|>', '<|endoftext|>'];
const WORDS = String.raw`<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+`;

const vocabulary = z.record(z.string(), z.int().nonnegative());

/**
 * The text of the tokenizer.json. Raises CheckpointError, with `where`, for a vocabulary of another form or without begin
 * and end tokens.
 */
export function clipTokenizerJson(vocab: unknown, merges: string, where: string): string {
  const parsed = vocabulary.safeParse(vocab);
  if (!parsed.success) throw new CheckpointError('this is not a table of tokens and their ids', { where });
  const [start, end] = [START, END].map((token) => {
    const id = parsed.data[token] as number | undefined;
    if (id === undefined) throw new CheckpointError(`there is no token ${token}`, { where });
    return { id, content: token, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true };
  });
  const pairs = merges.split(/\r?\n/).filter((line) => line !== '' && !line.startsWith('#version'));
  return JSON.stringify({
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: [start, end].sort((a, b) => a.id - b.id),
    normalizer: {
      type: 'Sequence',
      normalizers: [
        { type: 'NFC' },
        { type: 'Replace', pattern: { Regex: String.raw`\s+` }, content: ' ' },
        { type: 'Lowercase' },
      ],
    },
    pre_tokenizer: {
      type: 'Sequence',
      pretokenizers: [
        { type: 'Split', pattern: { Regex: WORDS }, behavior: 'Removed', invert: true },
        { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true },
      ],
    },
    post_processor: {
      type: 'RobertaProcessing',
      sep: [END, end.id],
      cls: [START, start.id],
      trim_offsets: false,
      add_prefix_space: false,
    },
    decoder: { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true },
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: END,
      continuing_subword_prefix: '',
      end_of_word_suffix: '</w>',
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: false,
      vocab: parsed.data,
      merges: pairs,
    },
  });
}
