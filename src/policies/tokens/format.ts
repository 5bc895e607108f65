/** What a policy writes in: a vocabulary, and which of its tokens may come next in an answer. Image blocks (emu3/) and free text are two examples. */
import type { TokenPrompt } from './batch.js';

/** A token that must come, or a mask [vocabulary] of those that may; null if all may. Answers share masks. */
export type AllowedTokens = { readonly forced: number } | { readonly mask: Uint8Array | null };

/** Tracks the position in one answer. */
export interface AnswerState {
  next(): AllowedTokens;
  accept(token: number): void;
}

export interface TokenFormat<P extends TokenPrompt = TokenPrompt> {
  /** One more than the highest id that has a token. A model may have more rows than this. */
  readonly size: number;
  /** The ids that end an answer. */
  readonly ends: ReadonlySet<number>;
  /** The id at which the vocabulary's second part begins, such as that of images; null if there is only one part. */
  readonly secondPart: number | null;
  /** The tokenizer's files by name, which are stored with a checkpoint. */
  readonly tokenizerFiles: Readonly<Record<string, string>>;
  /** Begins an answer. */
  start(prompt: P): AnswerState;
}

/** An answer in which any token may follow any other. */
export const unrestricted: AnswerState = { next: () => ({ mask: null }), accept: () => {} };

/** For each token of an answer, 1 if its format left no choice, else 0. `state` is the beginning of the answer. */
export function forcedTokens(state: AnswerState, ids: Int32Array): Uint8Array {
  return Uint8Array.from(ids, (id) => {
    const forced = 'forced' in state.next();
    state.accept(id);
    return forced ? 1 : 0;
  });
}
