/** Gets data from the dashboard server: authenticates with the token, and reports changes while the tab is visible. */
import type { WireError, WireEvent } from '../wire.js';
import { address, Refused, Unreachable, type Query, type Source } from './source.js';

/** The ids of changed runs, or null for all of them. */
type OnChange = (ids: readonly string[] | null) => void;

/** State of the connection to the server. */
export type Connection = 'open' | 'lost' | 'refused';

const RETRY_AFTER_MS = 2_000;

/** The tab's single event stream and its listeners. */
class EventFeed {
  readonly #changes = new Set<OnChange>();
  readonly #notices = new Set<(notice: Extract<WireEvent, { kind: 'notice' }>) => void>();
  readonly #connections = new Set<(connection: Connection) => void>();
  #open: AbortController | null = null;

  /** Follows the server while the tab is visible. Browsers limit connections, so hidden tabs must not occupy them. */
  start(): void {
    const follow = (): void => {
      if (document.hidden) {
        this.#open?.abort();
        this.#open = null;
      } else if (this.#open === null) {
        this.#open = new AbortController();
        void this.#follow(this.#open.signal);
      }
    };
    document.addEventListener('visibilitychange', follow);
    follow();
  }

  /** Reconnects, for example with another token. */
  restart(): void {
    this.#open?.abort();
    this.#open = new AbortController();
    void this.#follow(this.#open.signal);
  }

  onChange(callback: OnChange): () => void {
    return subscribe(this.#changes, callback);
  }

  onNotice(callback: (notice: Extract<WireEvent, { kind: 'notice' }>) => void): () => void {
    return subscribe(this.#notices, callback);
  }

  onConnection(callback: (connection: Connection) => void): () => void {
    return subscribe(this.#connections, callback);
  }

  refused(): void {
    for (const tell of this.#connections) tell('refused');
  }

  async #follow(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        const take = (event: WireEvent): void => {
          if (event.kind === 'notice') for (const notify of this.#notices) notify(event);
          else for (const tell of this.#changes) tell(event.more ? null : event.ids);
        };
        const opened = (): void => {
          for (const tell of this.#connections) tell('open');
          // Catches up on what happened while disconnected.
          for (const tell of this.#changes) tell(null);
        };
        await listen<WireEvent>('/api/events', {}, take, signal, opened);
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Refused && error.wantsToken) {
          this.refused();
          return;
        }
      }
      if (signal.aborted) return;
      for (const tell of this.#connections) tell('lost');
      await new Promise((resolve) => setTimeout(resolve, RETRY_AFTER_MS));
    }
  }
}

function subscribe<T>(set: Set<T>, item: T): () => void {
  set.add(item);
  return () => void set.delete(item);
}

export const feed = new EventFeed();

/** Reports to the feed that the server refused the token. The page then asks the user for another one. */
async function withTokenCheck<T>(asked: Promise<T>): Promise<T> {
  try {
    return await asked;
  } catch (error) {
    if (error instanceof Refused && error.wantsToken) feed.refused();
    throw error;
  }
}

export const serverSource: Source = {
  ask: (address, signal) => withTokenCheck(getJson(address, signal)),
  inlined: () => null,
  image: (address, signal) => withTokenCheck(getFileUrl(address, signal)),
  onChange: (callback) => feed.onChange(callback),
  onReturn: (callback) =>
    feed.onConnection((connection) => {
      if (connection === 'open') callback();
    }),
};

const STORAGE_KEY = 'editrl-token';

/** Removes the token from the address and stores it. */
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
    throw new Unreachable('The dashboard server does not respond.', { cause });
  }
}

/** Raises Refused, and Unreachable when the server cannot be reached. */
export async function getJson<T>(path: string, signal: AbortSignal): Promise<T> {
  const reply = await fetchReply(path, { headers: headers(), signal });
  return (await checkedReply(reply)).json() as Promise<T>;
}

/** Requests an action. Raises the errors of `getJson`. */
export async function postJson<T>(path: string, body: unknown): Promise<T> {
  const reply = await fetchReply(path, { method: 'POST', headers: headers(), body: JSON.stringify(body) });
  return (await checkedReply(reply)).json() as Promise<T>;
}

/** Downloads a file and returns an object URL, because neither an `<img>` nor a link can send the token. Raises the errors of `getJson`. */
export async function getFileUrl(path: string, signal: AbortSignal): Promise<string> {
  const reply = await checkedReply(await fetchReply(path, { headers: headers(), signal }));
  return URL.createObjectURL(await reply.blob());
}

/** Calls back when a stream opens and for each of its events until it ends. Raises the errors of `getJson`. */
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
  throw new Refused(reply.status, messageOf(text) ?? `The dashboard server responded with status ${reply.status}.`);
}

function messageOf(text: string): string | null {
  try {
    return (JSON.parse(text) as WireError).error.message;
  } catch {
    return null;
  }
}
