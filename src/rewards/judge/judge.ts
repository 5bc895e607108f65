/** A reward's questions to a judge, independent of how the judge is reached. */
import type { JudgeImage } from './images.js';
import type { Parsed } from './parse.js';
import type { Judgement, ScoreOptions } from '../score/types.js';

/** Images of the largest question about an edit of one image: the edit with its source, two edits of one source, or words alone. */
export const imagesShown = { edit: 2, pair: 3, words: 0 } as const;

/** Images of a question that shows all images from which an edit begins, and the edit. */
export function imagesOfEdit(sources: number): number {
  return sources + 1;
}

export interface JudgeMessage {
  readonly role: 'system' | 'user';
  /** Texts and images in the order in which the judge sees them. Common parts of many queries come first, for the server's prefix cache. */
  readonly parts: readonly (string | JudgeImage)[];
}

/** A JSON schema for the reply. Servers apply it as well as they can, so replies are checked regardless. */
export interface ReplyFormat {
  readonly name: string;
  readonly schema: Readonly<Record<string, unknown>>;
}

/** One question about one item. */
export interface JudgeQuery {
  /** `<item key>/<query>`, such as `5/12/3/viescore_sc`. */
  readonly key: string;
  readonly messages: readonly JudgeMessage[];
  readonly format: ReplyFormat | null;
  /** Sampling temperature of the first request. Requests after an unusable reply use at least 0.3. */
  readonly temperature: number;
  /** The share of the probability that is sampled from. Default: 1. */
  readonly topP?: number;
  /** How many tokens are sampled from. Default: all. */
  readonly topK?: number;
  /** The pass, from 0, of a question that is asked several times. Each pass has its own seeds. Default: the only one. */
  readonly pass?: { readonly index: number; readonly of: number };
  readonly maxCompletionTokens: number;
  /** Requests this many alternatives of the reply's first token. `parse` then gets these (see first_token.ts) in place of the text. */
  readonly topLogprobs?: number;
  /** `cutOff`: the reply ended at its token limit, so a number at its very end may lack digits. */
  readonly parse: (text: string, cutOff?: boolean) => Parsed;
}

/** Answers queries. Never rejects because of the judge: a failure is a judgement with a problem. */
export interface Judge {
  ask(query: JudgeQuery, signal?: AbortSignal, options?: ScoreOptions): Promise<Judgement>;
}
