/** What may become of a request to the rule judge: the hook by which tests make it fail as real servers do. */
import type { Answer } from './answer.js';
import type { ChatReply } from './protocol.js';

/** What the server does with a request. */
export type Effect =
  /** Answers correctly, but this much later. */
  | { readonly does: 'delay'; readonly milliseconds: number }
  /** Takes the request and says nothing, until the client gives up. */
  | { readonly does: 'hang' }
  /** Destroys the connection. */
  | { readonly does: 'reset' }
  /** Sends headers and the beginning of a body, then nothing. */
  | { readonly does: 'stall' }
  /** Stops listening and drops every connection, for this long. */
  | { readonly does: 'die'; readonly milliseconds: number }
  | {
      readonly does: 'reply';
      readonly status: number;
      readonly headers: Readonly<Record<string, string>>;
      readonly body: string;
    }
  /** Completes the chat, but with a garbled answer. */
  | { readonly does: 'garble'; readonly garble: (answer: Answer) => ChatReply };

/** Decides what becomes of each request. */
export interface FaultSource {
  /** The fault of a chat request, counted from 0; null for none. */
  at(request: number): { readonly name: string; readonly effect: Effect } | null;
  /** Whether a request for the list of models, counted from 0, gets another model's name. */
  hidesModel(look: number): boolean;
}
