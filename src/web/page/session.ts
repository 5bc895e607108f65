/** Requests to the page's server, with the token from the page's address, which is kept only for this tab and not for other sites or ports. */
import type { WireError } from '../wire.js';
import { address, Refused, Unreachable, type Query } from './source.js';

const STORAGE_KEY = 'editrl-token';

/** Takes the token out of the address, if it has one. */
export function storeTokenOfAddress(): void {
  const found = /^#token=([\x21-\x7e]+)$/.exec(location.hash)?.[1];
  if (found === undefined) return;
  storeToken(found);
  history.replaceState(null, '', location.pathname);
}

export function storeToken(token: string): void {
  sessionStorage.setItem(STORAGE_KEY, token);
}

function headers(): HeadersInit {
  return { authorization: `Bearer ${sessionStorage.getItem(STORAGE_KEY) ?? 'none'}` };
}

async function fetchReply(path: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(path, init);
  } catch (cause) {
    if (init.signal?.aborted === true) throw cause;
    throw new Unreachable('the dashboard does not answer', { cause });
  }
}

/** Raises Refused, and Unreachable when the server cannot be reached. */
export async function getJson<T>(path: string, signal: AbortSignal): Promise<T> {
  const reply = await fetchReply(path, { headers: headers(), signal });
  return (await checkedReply(reply)).json() as Promise<T>;
}

/** Requests an action. Raises as `getJson` does. */
export async function postJson<T>(path: string, body: unknown): Promise<T> {
  const reply = await fetchReply(path, { method: 'POST', headers: headers(), body: JSON.stringify(body) });
  return (await checkedReply(reply)).json() as Promise<T>;
}

/** A file as an address in this tab's memory, because neither an `<img>` nor a link can send the token. Raises as `getJson` does. */
export async function getFileUrl(path: string, signal: AbortSignal): Promise<string> {
  const reply = await checkedReply(await fetchReply(path, { headers: headers(), signal }));
  return URL.createObjectURL(await reply.blob());
}

/** Calls back when a stream is open, and for each of its events until it ends. Raises as `getJson` does. */
export async function listen<E>(
  path: string,
  query: Query,
  onEvent: (event: E) => void,
  signal: AbortSignal,
  onOpen: () => void = () => undefined,
): Promise<void> {
  const reply = await checkedReply(await fetchReply(address(path, query), { headers: headers(), signal }));
  onOpen();
  if (reply.body === null) return;
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split('\n\n');
    rest = events.pop() ?? '';
    for (const event of events) {
      if (event.startsWith('data: ')) onEvent(JSON.parse(event.slice('data: '.length)) as E);
    }
  }
}

async function checkedReply(reply: Response): Promise<Response> {
  if (reply.ok) return reply;
  const text = await reply.text();
  throw new Refused(reply.status, messageOf(text) ?? `The dashboard answered ${reply.status}.`);
}

function messageOf(text: string): string | null {
  try {
    return (JSON.parse(text) as WireError).error.message;
  } catch {
    return null;
  }
}
