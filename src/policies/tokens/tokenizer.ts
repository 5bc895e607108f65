/** Text tokenizers in Hugging Face's `tokenizer.json` form. Word-level ones are read and written; others are named and refused. */
import { readFileSync } from 'node:fs';
import { CheckpointError, DataError } from '../../core/errors.js';

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

/** Splits at added tokens, then at white space; each word is one token. */
export class WordTokenizer {
  readonly size: number;
  readonly #ids = new Map<string, number>();
  readonly #words: string[] = [];
  readonly #added: readonly string[];
  readonly #unknown: number;

  constructor(
    readonly json: string,
    where: string,
  ) {
    const parsed = parseJson(json, where);
    if (parsed.model?.type !== 'WordLevel' || parsed.model.vocab === undefined) {
      throw new CheckpointError(
        `a ${parsed.model?.type ?? 'nameless'} tokenizer cannot be read in this version; allowed: WordLevel`,
        { where },
      );
    }
    for (const [word, id] of Object.entries(parsed.model.vocab)) this.#set(word, id);
    const added = parsed.added_tokens ?? [];
    for (const token of added) this.#set(token.content, token.id);
    // Longest first, so that a token that begins another is not taken for it.
    this.#added = added
      .map((token) => token.content)
      .filter((content) => !content.startsWith(VISUAL_PREFIX))
      .sort((a, b) => b.length - a.length);
    this.size = this.#words.length;
    const unknown = this.#ids.get(parsed.model.unk_token ?? UNKNOWN);
    if (unknown === undefined) throw new CheckpointError('the tokenizer has no token for unknown words', { where });
    this.#unknown = unknown;
  }

  static read(path: string): WordTokenizer {
    try {
      return new WordTokenizer(readFileSync(path, 'utf8'), path);
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
    for (const piece of this.#pieces(text)) out.push(this.#ids.get(piece) ?? this.#unknown);
    return out;
  }

  decode(ids: Iterable<number>): string {
    return Array.from(ids, (id) => this.#words[id] ?? UNKNOWN).join(' ');
  }

  *#pieces(text: string): Generator<string> {
    let rest = text;
    while (rest.length > 0) {
      let at = rest.length;
      let found: string | null = null;
      for (const token of this.#added) {
        const start = rest.indexOf(token);
        if (start >= 0 && start < at) [at, found] = [start, token];
      }
      for (const word of rest.slice(0, at).split(/\s+/)) if (word.length > 0) yield word;
      if (found !== null) yield found;
      rest = rest.slice(at + (found?.length ?? 0));
    }
  }

  #set(word: string, id: number): void {
    this.#ids.set(word, id);
    this.#words[id] = word;
  }
}

const VISUAL_PREFIX = '<|visual token ';

/** Emu3's spelling of a vision code's token. */
export function visualToken(code: number): string {
  return `${VISUAL_PREFIX}${String(code).padStart(6, '0')}|>`;
}

/** A word-level `tokenizer.json`: special tokens first, then words, then one token per vision code. */
export function wordTokenizerJson(special: readonly string[], words: readonly string[], visionCodes: number): string {
  const contents = [UNKNOWN, ...special];
  const ordinary = [...new Set(words)].filter((word) => !contents.includes(word));
  const added: AddedToken[] = contents.map((content, id) => ({ id, content }));
  const first = contents.length + ordinary.length;
  for (let code = 0; code < visionCodes; code++) added.push({ id: first + code, content: visualToken(code) });
  // Added tokens stand in the vocabulary too: Hugging Face's tokenizers renumber those that do not.
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
