/** What a reward asks of a judge, independent of how the judge is reached. */
import type { JudgeImage } from './images.js';
import type { Parsed } from './parse.js';
import type { Judgement, ScoreOptions } from '../score/types.js';

/** Images of the largest question about an edit of one picture: the edit beside its source, two edits of one source, or words alone. */
export const imagesShown = { edit: 2, pair: 3, words: 0 } as const;

/** Images of a question that shows all pictures that an edit begins from, and the edit. */
export function imagesOfEdit(sources: number): number {
  return sources + 1;
}

export interface JudgeMessage {
  readonly role: 'system' | 'user';
  /** Texts and images in the order in which the judge sees them; what many queries share comes first, for the server's prefix cache. */
  readonly parts: readonly (string | JudgeImage)[];
}

/** A JSON schema that the reply should follow; servers apply it as well as they can, so replies are checked regardless. */
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
  /** Sampling temperature of the first request; requests after an unusable reply use at least 0.3. */
  readonly temperature: number;
  readonly maxCompletionTokens: number;
  /** Asks for so many alternatives of the reply's first token; `parse` then gets these (see first_token.ts) in place of the text. */
  readonly topLogprobs?: number;
  /** `cutOff`: the reply ended at its token limit, so that a number at its very end may lack digits. */
  readonly parse: (text: string, cutOff?: boolean) => Parsed;
}

/** Answers queries. Never rejects for anything that the judge does: a failure is a judgement with a problem. */
export interface Judge {
  ask(query: JudgeQuery, signal?: AbortSignal, options?: ScoreOptions): Promise<Judgement>;
}
