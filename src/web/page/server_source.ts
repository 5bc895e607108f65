/** The dashboard's server as a source of data: authenticates with the token, and reports changes while the tab is visible. */
import type { WireEvent } from '../wire.js';
import { getJson, getFileUrl, listen } from './session.js';
import { Refused, type Source } from './source.js';

/** The ids of changed runs, or null for all of them. */
type OnChange = (ids: readonly string[] | null) => void;

/** State of the connection to the server. */
export type Connection = 'open' | 'lost' | 'refused';

const RETRY_AFTER_MS = 2_000;

/** The tab's only event stream, and its listeners. */
class EventFeed {
  readonly #changes = new Set<OnChange>();
  readonly #notices = new Set<(notice: Extract<WireEvent, { kind: 'notice' }>) => void>();
  readonly #connections = new Set<(connection: Connection) => void>();
  #open: AbortController | null = null;

  /** Follows the server while the tab is visible: browsers limit connections, and hidden tabs would occupy them. */
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
          if (event.kind === 'notice') for (const tell of this.#notices) tell(event);
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

/** Tells the feed if the server wants another token: the page then asks the user for one. */
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
  picture: (address, signal) => withTokenCheck(getFileUrl(address, signal)),
  onChange: (callback) => feed.onChange(callback),
  onReturn: (callback) =>
    feed.onConnection((connection) => {
      if (connection === 'open') callback();
    }),
};
