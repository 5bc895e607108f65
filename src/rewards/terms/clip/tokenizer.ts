/**
 * CLIP's tokenizer: byte pairs of lower-case words that end in `</w>`, as Hugging Face's CLIPTokenizer has it. Own code, because the one
 * JavaScript library (@huggingface/tokenizers 0.2) gives other ids for Greek capitals and for what only some languages call white space.
 */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { ConfigError } from '../../../core/errors.js';
import { firstFile, parseJson, readJson } from './files.js';

export const START = '<|startoftext|>';
export const END = '<|endoftext|>';
export const END_OF_WORD = '</w>';

const SPECIAL = /(<\|startoftext\|>|<\|endoftext\|>)/u;
/** White space as Unicode has it: JavaScript's \s adds U+FEFF and lacks U+0085. */
const SPACES = /\p{White_Space}+/gu;
const WORDS = /<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|[^\p{White_Space}\p{L}\p{N}]+/gu;
/** Splits the marks, which are words of letters and others only where they are written in capitals; every other word stays whole. */
const PARTS = /'(?:[stmd]|re|ve|ll)|\p{L}+|\p{N}+|[^\p{White_Space}\p{L}\p{N}]+/gu;

type Merge = string | readonly [string, string];

// Fifty thousand entries each: zod's own walk over them takes ten times as long as reading the file.
const vocabularyFile = z.custom<Readonly<Record<string, number>>>(
  (value) => typeof value === 'object' && value !== null && Object.values(value).every(Number.isInteger),
  'a vocabulary is an object of ids by token',
);
const mergeList = z.custom<readonly Merge[]>(
  (value) => Array.isArray(value) && value.every((merge) => halvesOf(merge as Merge).length === 2),
  'merges are a list of pairs',
);
const tokenizerFile = z.object({
  model: z.object({
    end_of_word_suffix: z.literal(
      END_OF_WORD,
      `only CLIP's tokenizer, whose words end in ${END_OF_WORD}, is available`,
    ),
    vocab: vocabularyFile,
    merges: mergeList,
  }),
});

/** What the text half of the model takes. */
export interface TextTokens {
  /** Start, content, end; filled up with ends. */
  readonly ids: BigInt64Array;
  /** 1 up to the first end, 0 for what fills up. */
  readonly mask: BigInt64Array;
}

/** A printable letter for every byte, so that vocabularies are plain text: those that print stand for themselves (GPT-2). */
function byteLetters(): readonly string[] {
  const prints = (byte: number): boolean =>
    (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xff && byte !== 0xad);
  let others = 0;
  return Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(prints(byte) ? byte : 256 + others++));
}

/** By byte. */
export const LETTERS = byteLetters();

/** Composed, one space between words, lower case letter by letter: a capital sigma is the same anywhere in a word. */
function clean(text: string): string {
  return Array.from(text.normalize('NFC').replace(SPACES, ' '), (letter) => letter.toLowerCase()).join('');
}

/** What of a text without marks is merged by itself. */
export function wordsOf(text: string): string[] {
  return (clean(text).match(WORDS) ?? []).flatMap((word) => word.match(PARTS) ?? []);
}

/** A word's bytes as letters, of which the last ends it. */
export function lettersOf(word: string): string[] {
  const letters = Array.from(Buffer.from(word, 'utf8'), (byte) => LETTERS[byte]);
  letters[letters.length - 1] += END_OF_WORD;
  return letters;
}

export class ClipTokenizer {
  readonly #vocabulary: ReadonlyMap<string, number>;
  /** How early a pair was learnt, by its two halves with a space between them. */
  readonly #ranks: ReadonlyMap<string, number>;
  readonly #start: number;
  readonly #end: number;

  /** `context` is the model's number of text positions. Raises ConfigError where the vocabulary lacks CLIP's marks. */
  constructor(
    vocabulary: ReadonlyMap<string, number>,
    merges: readonly Merge[],
    readonly context: number,
    where: string,
  ) {
    this.#vocabulary = vocabulary;
    this.#ranks = new Map(merges.map((merge, rank) => [halvesOf(merge).join(' '), rank]));
    const [start, end] = [START, END].map((token) => {
      const id = vocabulary.get(token);
      if (id !== undefined) return id;
      throw new ConfigError(`the vocabulary has no ${token}: this is not CLIP's tokenizer`, { where });
    });
    this.#start = start;
    this.#end = end;
  }

  /** Reads `tokenizer.json`, else `vocab.json` and `merges.txt`. Raises ConfigError where they are missing or of another kind. */
  static read(folder: string, context: number): ClipTokenizer {
    const whole = join(folder, 'tokenizer.json');
    if (existsSync(whole)) return ClipTokenizer.parse(readFileSync(whole, 'utf8'), context, whole);
    const words = firstFile([join(folder, 'vocab.json')], 'tokenizer.json, nor vocab.json with merges.txt', folder);
    const pairs = firstFile([join(folder, 'merges.txt')], 'merges.txt beside vocab.json', folder);
    const lines = readFileSync(pairs, 'utf8').split('\n');
    const merges = lines.filter((line, i) => line.trim() !== '' && !(i === 0 && line.startsWith('#version')));
    const vocabulary = new Map(Object.entries(readJson(words, vocabularyFile)));
    return new ClipTokenizer(vocabulary, merges, context, words);
  }

  /** A `tokenizer.json`. Raises ConfigError, naming `where`, for one of another kind. */
  static parse(json: string, context: number, where: string): ClipTokenizer {
    const { vocab, merges } = parseJson(json, tokenizerFile, where).model;
    return new ClipTokenizer(new Map(Object.entries(vocab)), merges, context, where);
  }

  /** Ids of the marks. */
  get marks(): { readonly start: number; readonly end: number } {
    return { start: this.#start, end: this.#end };
  }

  get size(): number {
    return this.#vocabulary.size;
  }

  /** The ids of a text between start and end, cut to `context` such that the end stays last. */
  encode(text: string): TextTokens {
    const content = this.#content(text).slice(0, this.context - 2);
    const ids = new BigInt64Array(this.context).fill(BigInt(this.#end));
    const mask = new BigInt64Array(this.context);
    ids[0] = BigInt(this.#start);
    content.forEach((id, i) => (ids[i + 1] = BigInt(id)));
    mask.fill(1n, 0, content.length + 2);
    return { ids, mask };
  }

  /** How many tokens of a text `encode` leaves out. */
  unread(text: string): number {
    return Math.max(0, this.#content(text).length + 2 - this.context);
  }

  /** The ids of a text without start and end. */
  #content(text: string): number[] {
    // A mark that is written out counts as the mark itself, as it does for Hugging Face.
    return text.split(SPECIAL).flatMap((piece) => {
      if (piece === START) return [this.#start];
      if (piece === END) return [this.#end];
      return wordsOf(piece).flatMap((word) =>
        this.#merged(word).map((token) => this.#vocabulary.get(token) ?? this.#end),
      );
    });
  }

  /** A word's tokens: pairs are joined in the order in which they were learnt, each one everywhere in the word at once. */
  #merged(word: string): readonly string[] {
    let tokens = lettersOf(word);
    for (;;) {
      let best = '';
      let lowest = Infinity;
      for (let i = 1; i < tokens.length; i++) {
        const pair = `${tokens[i - 1]} ${tokens[i]}`;
        const rank = this.#ranks.get(pair) ?? Infinity;
        if (rank < lowest) [best, lowest] = [pair, rank];
      }
      if (lowest === Infinity) return tokens;
      const joined: string[] = [];
      for (let i = 0; i < tokens.length; i++) {
        const isPair = i + 1 < tokens.length && `${tokens[i]} ${tokens[i + 1]}` === best;
        joined.push(isPair ? tokens[i] + tokens[++i] : tokens[i]);
      }
      tokens = joined;
    }
  }
}

/** Files write a pair as a list, or as one string with a space in it. */
function halvesOf(merge: Merge): readonly string[] {
  return typeof merge === 'string' ? merge.split(' ') : Array.isArray(merge) ? merge : [];
}
