/** Finding out, before anything is scored, what a server takes of a question. */
import type OpenAI from 'openai';
import { canaryQuery } from './canary.js';
import { toChatRequest } from './chat_request.js';
import { readCompletion, readError, type Reply } from './completion.js';
import { imagesShown } from './judge.js';
import { mostTraitChanges, withoutRefusedFields, type Traits } from './traits.js';
import { allowManyListeners } from '../../core/listeners.js';

/** So many times the tokens for a judge whose reply held nothing at all: 1,024 in place of 16. */
const wideRoom = 64;

/**
 * Asks the canary as questions are asked, and again without what the server refuses of it, until it is answered or names nothing more that
 * can be left out. A judge that was cut off while it was thinking has answered; one that said nothing at all is given more tokens
 * once. Rejects where it is called off, and for what is no error of a request.
 */
export async function negotiate(
  client: OpenAI,
  model: string,
  start: Traits,
  signal: AbortSignal,
  shown: number = imagesShown.edit,
): Promise<Negotiated> {
  // A signal counts whoever ever waited for it, and this is one request after another.
  allowManyListeners(signal);
  let traits = start;
  let room = 1;
  for (let changes = 0; ;) {
    const request = await toChatRequest(canaryQuery(shown), model, 0, traits, { room });
    let reply: Reply;
    let error: unknown = null;
    try {
      reply = readCompletion(await client.chat.completions.create(request, { signal }), request);
    } catch (cause) {
      if (signal.aborted) throw cause;
      reply = readError(cause, Date.now());
      error = cause;
    }
    if (reply.kind === 'text') return { reply, traits, thinks: /^\s*<think>/.test(reply.text), error };
    if (reply.thought === true) return { reply, traits, thinks: true, error: null };
    if (reply.problem === 'truncated' && room === 1) {
      room = wideRoom;
      continue;
    }
    const fewer = changes++ < mostTraitChanges ? withoutRefusedFields(traits, reply.refused ?? []) : null;
    if (fewer === null) return { reply, traits, thinks: false, error };
    traits = fewer;
  }
}

export interface Negotiated {
  readonly reply: Reply;
  readonly traits: Traits;
  /** Whether the judge thinks before it answers. */
  readonly thinks: boolean;
  /** The client's error where there was no reply; null where there was one, and where the error shows that the judge thinks. */
  readonly error: unknown;
}
