/**
 * The output format of a policy: a vocabulary, and the tokens that may come next in an answer. Image blocks (emu3/) and
 * free text are two examples.
 */
import type { VisionInput } from '../images/vision_input.js';
import type { Tokenizer } from './tokenizer.js';

export interface TokenPrompt {
  /** Contains as many placeholders for each image as it has tokens (models/images/placeholders.ts). */
  readonly ids: readonly number[];
  /** In the order of their placeholders. Default: none. Only a vision model accepts any. */
  readonly images?: readonly VisionInput[];
}

/** A token that must come, or a mask [vocabulary] of those that may. Null if all may. Answers share masks. */
export type AllowedTokens = { readonly forced: number } | { readonly mask: Uint8Array | null };

/** Tracks the position in one answer. */
export interface AnswerState {
  next(): AllowedTokens;
  accept(token: number): void;
}

/**
 * The rules of one answer as data, for a server that enforces them: the same rules that `AnswerState` gives step by
 * step.
 */
export interface WrittenRules {
  /** The ids of the vocabulary's second part: the first one, and the one after the last. Words have the ids before. */
  readonly second: readonly [from: number, to: number];
  /** The token after which the block begins. Null if the answer begins inside the block. */
  readonly opening: number | null;
  /** Words that may not come before or after the block. */
  readonly before: readonly number[];
  readonly after: readonly number[];
  /** The block: a token that must come, or null for any of the second part, and its number of repetitions. */
  readonly block: readonly (readonly [id: number | null, times: number])[];
}

export interface TokenFormat<P extends TokenPrompt = TokenPrompt> {
  /** One more than the highest id that has a token. A model may have more rows than this. */
  readonly size: number;
  /** The ids that end an answer. */
  readonly ends: ReadonlySet<number>;
  /** The id at which the vocabulary's second part begins, such as that of images. Null for a single part. */
  readonly secondPart: number | null;
  /** The tokenizer's files by name, which are stored with a checkpoint. */
  readonly tokenizerFiles: Readonly<Record<string, string>>;
  /** Begins an answer. */
  start(prompt: P): AnswerState;
  /** The rules of `start` as data. Absent if any token may follow any other. */
  rules?(prompt: P): WrittenRules;
}

/** An answer in which any token may follow any other. */
export const unrestricted: AnswerState = { next: () => ({ mask: null }), accept: () => {} };

export class FreeText implements TokenFormat {
  readonly size: number;
  readonly secondPart = null;
  readonly tokenizerFiles: Readonly<Record<string, string>>;

  constructor(
    { size, files }: Pick<Tokenizer, 'size' | 'files'>,
    readonly ends: ReadonlySet<number>,
  ) {
    this.size = size;
    this.tokenizerFiles = files;
  }

  start(): AnswerState {
    return unrestricted;
  }
}
