/** What asking a server for a picture found, and what may be done about it. */
import type { Tried } from '../../balance/ask.js';
import type { Ending } from '../../balance/member.js';
import type { Answered } from './picture.js';

/** `none`: nothing was given, and may be later or elsewhere; `wrong`: settings or key are, and asking again does not help. */
export type Found =
  | { readonly kind: 'answered'; readonly answered: Answered }
  | { readonly kind: 'none'; readonly found: string }
  | { readonly kind: 'wrong'; readonly found: string; readonly next: string };

const works: Ending = { load: 'carried', health: 'works' };
const nothing: Ending = { load: 'nothing', health: 'nothing' };
const fails: Ending = { load: 'nothing', health: 'fails' };

/** A server that is away is asked again after so long. */
const AWAY_AGAIN_MS = 1000;
/** Statuses of a server that is not ready, or has a proxy before it that does not reach it. */
export const AWAY: ReadonlySet<number> = new Set([502, 503, 504]);

export function given(answered: Answered): Tried<Found> {
  return { reply: { kind: 'answered', answered }, next: 'done', ending: works };
}

/** What it was to draw is refused, in these words. */
export function refusal(refused: string): Tried<Found> {
  return {
    reply: { kind: 'answered', answered: { refused } },
    next: 'done',
    ending: { load: 'nothing', health: 'works' },
  };
}

/** The same to any request like it. */
export function wrong(found: string, next: string): Tried<Found> {
  return { reply: { kind: 'wrong', found, next }, next: 'done', ending: nothing };
}

export function away(found: string): Tried<Found> {
  return { reply: { kind: 'none', found }, next: 'busy', ending: nothing, retryAfterMs: AWAY_AGAIN_MS };
}

export function busy(found: string): Tried<Found> {
  return {
    reply: { kind: 'none', found },
    next: 'busy',
    ending: { load: 'overloaded', health: 'works' },
    retryAfterMs: AWAY_AGAIN_MS,
  };
}

export function failed(found: string): Tried<Found> {
  return { reply: { kind: 'none', found }, next: 'elsewhere', ending: fails };
}
