/**
 * Any `tokenizer.json`, by the npm package `tokenizers`: the same Rust code as in Python, so the ids are the same.
 * (JavaScript implementations, as in transformers.js, differ in white space, normalization and added tokens.)
 */
import { AddedToken as NativeToken, Tokenizer as Native } from 'tokenizers';
import { CheckpointError, DataError } from '../../core/errors.js';
import type { AddedToken, SpecialTokens } from './texts.js';
import type { DecodeOptions, EncodeOptions, Tokenizer } from './tokenizer.js';

export interface HuggingFaceParts {
  readonly json: string;
  /** The tokens of tokenizer.json. */
  readonly own: readonly AddedToken[];
  readonly special: SpecialTokens;
  /** Whether spaces before punctuation are dropped from decoded text. */
  readonly cleanUp: boolean;
  readonly files: Readonly<Record<string, string>>;
  readonly where: string;
}

/** Spaces that transformers' clean-up drops, in its order. */
const cleanUps: readonly (readonly [string, string])[] = [
  [' .', '.'],
  [' ?', '?'],
  [' !', '!'],
  [' ,', ','],
  [" ' ", "'"],
  [" n't", "n't"],
  [" 'm", "'m"],
  [" 's", "'s"],
  [" 've", "'ve"],
  [" 're", "'re"],
];

export class HuggingFaceTokenizer implements Tokenizer {
  readonly size: number;
  readonly json: string;
  readonly files: Readonly<Record<string, string>>;
  readonly special: Readonly<Record<string, string>>;
  readonly unknown: number | null;
  readonly #native: Native;
  readonly #skipped: ReadonlySet<string>;
  readonly #cleanUp: boolean;

  /** Raises CheckpointError for a `tokenizer.json` that the library cannot read. */
  constructor({ json, own, special, cleanUp, files, where }: HuggingFaceParts) {
    this.json = json;
    this.files = files;
    this.special = special.named;
    this.#cleanUp = cleanUp;
    try {
      this.#native = Native.fromString(json);
    } catch (cause) {
      throw new CheckpointError(`the tokenizer cannot be read: ${(cause as Error).message}`, {
        where,
        next: 'Save it again with a current version of the Python package transformers.',
        cause,
      });
    }
    // A prompt is neither cut nor filled up.
    this.#native.disableTruncation();
    this.#native.disablePadding();
    if (special.added.length > 0) this.#native.addAddedTokens(special.added.map(native));
    this.#skipped = new Set([...own, ...special.added].filter((token) => token.special).map(({ content }) => content));
    this.unknown = unknownOf(json, this.#native);
    this.size = Object.values(this.#native.getVocab(true)).reduce((most, id) => Math.max(most, id + 1), 0);
  }

  async encode(text: string, { addSpecial }: EncodeOptions = { addSpecial: false }): Promise<readonly number[]> {
    const encoding = await this.#native.encode(text, null, { addSpecialTokens: addSpecial });
    return encoding.getIds();
  }

  decode(ids: Iterable<number>, { skipSpecial }: DecodeOptions = { skipSpecial: false }): string {
    const tokens = Array.from(ids, (id) => this.#native.idToToken(id)).filter(
      (token) => token !== null && !(skipSpecial && this.#skipped.has(token)),
    ) as string[];
    const text = this.#native.getDecoder()?.decode(tokens) ?? tokens.join(' ');
    return this.#cleanUp ? cleanUps.reduce((out, [from, to]) => out.replaceAll(from, to), text) : text;
  }

  id(token: string): number {
    const id = this.#native.tokenToId(token);
    if (id === null) throw new DataError(`the tokenizer has no token ${JSON.stringify(token)}`);
    return id;
  }
}

/** A large tokenizer.json is not parsed once more for it: models name it by its token, and unigram models by its id. */
function unknownOf(json: string, tokenizer: Native): number | null {
  const id = /"unk_id"\s*:\s*(\d+)/.exec(json)?.[1];
  if (id !== undefined) return Number(id);
  const token = /"unk_token"\s*:\s*("(?:[^"\\]|\\.)+")/.exec(json)?.[1];
  return token === undefined ? null : tokenizer.tokenToId(JSON.parse(token) as string);
}

function native({ content, special, normalized, lstrip, rstrip, single_word }: AddedToken): NativeToken {
  return new NativeToken(content, special, {
    normalized,
    leftStrip: lstrip,
    rightStrip: rstrip,
    singleWord: single_word,
  });
}
