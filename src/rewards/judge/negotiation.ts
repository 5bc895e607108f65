/** Finding out, before anything is scored, what a server takes of a question. */
import { setMaxListeners } from 'node:events';
import type OpenAI from 'openai';
import { canaryQuery } from './canary.js';
import { toChatRequest } from './chat_request.js';
import { readCompletion, readError, type Reply } from './completion.js';
import { mostTraitChanges, without, type Traits } from './traits.js';

/** So many times the tokens for a judge whose reply held nothing at all: 1,024 in place of 16. */
const wideRoom = 64;

/**
 * Asks the canary as questions are asked, and again without what the server refuses of it, until it is answered or names nothing more that
 * can be left out. A judge that was cut off while it was thinking has answered; one that said nothing at all is given more tokens
 * once. Rejects as the client does.
 */
export async function negotiate(
  client: OpenAI,
  model: string,
  start: Traits,
  signal: AbortSignal,
): Promise<Negotiated> {
  // A signal counts whoever ever waited for it, and this is one request after another.
  setMaxListeners(0, signal);
  let traits = start;
  let room = 1;
  for (let changes = 0; ;) {
    const request = await toChatRequest(canaryQuery, model, 0, traits, { room });
    const { reply, error } = await client.chat.completions.create(request, { signal }).then(
      (body: unknown) => ({ reply: readCompletion(body, request), error: null }),
      (cause: unknown) => ({ reply: signal.aborted ? null : readError(cause, Date.now()), error: cause }),
    );
    if (reply === null) throw error;
    if (reply.kind === 'text') return { reply, traits, thinks: /^\s*<think>/.test(reply.text) };
    if (reply.thought === true) return { reply, traits, thinks: true };
    if (reply.problem === 'truncated' && room === 1) {
      room = wideRoom;
      continue;
    }
    const fewer = changes++ < mostTraitChanges ? without(traits, reply.refused ?? []) : null;
    if (fewer === null) {
      if (error !== null) throw error;
      return { reply, traits, thinks: false };
    }
    traits = fewer;
  }
}

export interface Negotiated {
  readonly reply: Reply;
  readonly traits: Traits;
  /** Whether the judge thinks before it answers. */
  readonly thinks: boolean;
}
