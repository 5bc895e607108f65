/** Words as tokens, in Hugging Face's `tokenizer.json` form, for the tiny models. */
import { CheckpointError, DataError } from '../../core/errors.js';
import { readTextFile } from '../../core/text.js';
import { TOKENIZER_FILE } from '../files.js';
import type { DecodeOptions, Tokenizer } from './tokenizer.js';

export interface AddedToken {
  readonly id: number;
  readonly content: string;
}

interface TokenizerJson {
  readonly added_tokens?: readonly AddedToken[];
  readonly model?: {
    readonly type?: string;
    readonly vocab?: Readonly<Record<string, number>>;
    readonly unk_token?: string;
  };
}

const UNKNOWN = '<|unk|>';

/** Splits at added tokens, then at white space. Each word is one token. */
export class WordTokenizer implements Tokenizer {
  readonly size: number;
  readonly special = {};
  readonly files: Readonly<Record<string, string>>;
  readonly #ids = new Map<string, number>();
  readonly #words: string[] = [];
  readonly #added: ReadonlySet<string>;
  /** Lengths of added tokens, longest first, so that a longer token wins over its own beginning. */
  readonly #lengths: readonly number[];
  readonly unknown: number;

  constructor(
    readonly json: string,
    where: string,
  ) {
    this.files = { [TOKENIZER_FILE]: json };
    const parsed = parseJson(json, where);
    if (parsed.model?.type !== 'WordLevel' || parsed.model.vocab === undefined) {
      throw new CheckpointError(
        `a ${parsed.model?.type ?? 'nameless'} tokenizer is not supported; allowed: WordLevel`,
        { where },
      );
    }
    for (const [word, id] of Object.entries(parsed.model.vocab)) this.#set(word, id);
    const added = parsed.added_tokens ?? [];
    for (const token of added) this.#set(token.content, token.id);
    this.#added = new Set(added.map((token) => token.content));
    this.#lengths = [...new Set(added.map((token) => token.content.length))].sort((a, b) => b - a);
    this.size = this.#words.length;
    const unknown = this.#ids.get(parsed.model.unk_token ?? UNKNOWN);
    if (unknown === undefined) throw new CheckpointError('the tokenizer has no token for unknown words', { where });
    this.unknown = unknown;
  }

  static read(path: string): WordTokenizer {
    try {
      return new WordTokenizer(readTextFile(path, CheckpointError), path);
    } catch (cause) {
      if (cause instanceof CheckpointError) throw cause;
      throw new CheckpointError('cannot read the tokenizer', { where: path, cause });
    }
  }

  /** The id of one token that must exist. */
  id(token: string): number {
    const id = this.#ids.get(token);
    if (id === undefined) throw new DataError(`the tokenizer has no token ${JSON.stringify(token)}`);
    return id;
  }

  encode(text: string): number[] {
    const out: number[] = [];
    for (const piece of this.#pieces(text)) out.push(this.#ids.get(piece) ?? this.unknown);
    return out;
  }

  decode(ids: Iterable<number>, { skipSpecial }: DecodeOptions = { skipSpecial: false }): string {
    const words = Array.from(ids, (id) => this.#words[id] ?? UNKNOWN);
    return (skipSpecial ? words.filter((word) => !this.#added.has(word)) : words).join(' ');
  }

  *#pieces(text: string): Generator<string> {
    let from = 0;
    for (let at = 0; at < text.length; at++) {
      const length = this.#lengths.find((n) => this.#added.has(text.slice(at, at + n)));
      if (length === undefined) continue;
      yield* wordsOf(text.slice(from, at));
      from = at + length;
      yield text.slice(at, from);
      at = from - 1;
    }
    yield* wordsOf(text.slice(from));
  }

  #set(word: string, id: number): void {
    this.#ids.set(word, id);
    this.#words[id] = word;
  }
}

/** Whether a parsed `tokenizer.json` is one of `wordTokenizerJson`. */
export function isWordTokenizer(json: unknown): boolean {
  const { model, pre_tokenizer, normalizer, decoder } = (json ?? {}) as Readonly<
    Record<string, { type?: string } | null>
  >;
  const plain = (normalizer ?? null) === null && (decoder ?? null) === null;
  return plain && model?.type === 'WordLevel' && pre_tokenizer?.type === 'WhitespaceSplit';
}

function wordsOf(text: string): string[] {
  return text.split(/\s+/).filter((word) => word !== '');
}

/** A word-level `tokenizer.json`: special tokens first, then words, then other added tokens. */
export function wordTokenizerJson(
  special: readonly string[],
  words: readonly string[],
  last: readonly string[] = [],
): string {
  const contents = [UNKNOWN, ...special];
  const ordinary = [...new Set(words)].filter((word) => !contents.includes(word));
  const added: AddedToken[] = contents.map((content, id) => ({ id, content }));
  const first = contents.length + ordinary.length;
  last.forEach((content, i) => added.push({ id: first + i, content }));
  // Added tokens are also in the vocabulary, because Hugging Face's tokenizers renumber those that are not.
  const vocab: Record<string, number> = Object.fromEntries(added.map(({ id, content }) => [content, id]));
  ordinary.forEach((word, i) => (vocab[word] = contents.length + i));
  return JSON.stringify({
    version: '1.0',
    added_tokens: added.map((token) => ({
      ...token,
      special: true,
      normalized: false,
      lstrip: false,
      rstrip: false,
      single_word: false,
    })),
    pre_tokenizer: { type: 'WhitespaceSplit' },
    model: { type: 'WordLevel', vocab, unk_token: UNKNOWN },
  });
}

function parseJson(json: string, where: string): TokenizerJson {
  try {
    return JSON.parse(json) as TokenizerJson;
  } catch (cause) {
    throw new CheckpointError('the tokenizer is not JSON', { where, cause });
  }
}
