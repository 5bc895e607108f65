/**
 * Converts text to a model's tokens and back: this program's own words (`words.ts`), and any `tokenizer.json` of the
 * Hub (`hugging_face.ts`).
 */

export interface EncodeOptions {
  /** Whether to add the tokens that the tokenizer puts around a text, such as one at its beginning. Templates write these themselves. */
  readonly addSpecial: boolean;
}

export interface DecodeOptions {
  /** Whether to leave out special tokens, such as the end of an answer. */
  readonly skipSpecial: boolean;
}

export interface Tokenizer {
  /** One more than the highest id. A model may have more rows than that, but not fewer. */
  readonly size: number;
  /** The text of `tokenizer.json`. */
  readonly json: string;
  /** Everything that a folder needs for the tokenizer to be opened again, by file name. */
  readonly files: Readonly<Record<string, string>>;
  /** The id for every word or character without a token. Null if there is none. */
  readonly unknown: number | null;
  /** The special tokens by their names (`bos_token`, `eos_token`, …), as chat templates print them. */
  readonly special: Readonly<Record<string, string>>;
  /** Adds no special tokens by default. */
  encode(text: string, options?: EncodeOptions): readonly number[] | Promise<readonly number[]>;
  /**
   * Includes special tokens by default. An id without a token gives no text. Bytes that do not form a character give
   * U+FFFD.
   */
  decode(ids: Iterable<number>, options?: DecodeOptions): string;
  /** The id of a token that must exist. Raises DataError if it does not. */
  id(token: string): number;
}
