/** Data that follows what happens: asked for once, and again when the runs that it is about change. */
import { useEffect, useRef, useState } from 'preact/hooks';
import type { WireEvent } from '../wire.js';
import { address, ask, listen, Refused, Unreachable, type Query } from './session.js';

/** Whom a change concerns: ids of runs, or null for all of them. */
type OnChange = (ids: readonly string[] | null) => void;

/** What the page knows of its connection. */
export type Connection = 'open' | 'lost' | 'refused';

const LEAST_BETWEEN_MS = 700;
const AGAIN_AFTER_MS = 2_000;

/** The one stream of events of this tab, and who listens to it. */
class Feed {
  readonly #changes = new Set<OnChange>();
  readonly #notices = new Set<(notice: Extract<WireEvent, { kind: 'notice' }>) => void>();
  readonly #connections = new Set<(connection: Connection) => void>();
  #open: AbortController | null = null;

  /** Follows the server while the tab is seen: browsers have few connections, which hidden tabs would hold. */
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

  /** Asks anew, such as with another token. */
  restart(): void {
    this.#open?.abort();
    this.#open = new AbortController();
    void this.#follow(this.#open.signal);
  }

  onChange(callback: OnChange): () => void {
    return added(this.#changes, callback);
  }

  onNotice(callback: (notice: Extract<WireEvent, { kind: 'notice' }>) => void): () => void {
    return added(this.#notices, callback);
  }

  onConnection(callback: (connection: Connection) => void): () => void {
    return added(this.#connections, callback);
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
          // What happened while nobody listened.
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
      await new Promise((resolve) => setTimeout(resolve, AGAIN_AFTER_MS));
    }
  }
}

function added<T>(set: Set<T>, item: T): () => void {
  set.add(item);
  return () => void set.delete(item);
}

export const feed = new Feed();

export interface Loaded<T> {
  /** The last that was answered, also while something else is asked for. */
  readonly data: T | null;
  readonly error: string | null;
  readonly loading: boolean;
  readonly reload: () => void;
}

/**
 * What a path answers. Asked again when one of the `about` runs changes; null stands for every run, an empty list for none. A path of null asks
 * for nothing.
 */
export function useData<T>(path: string | null, query: Query = {}, about: readonly string[] | null = []): Loaded<T> {
  const [state, setState] = useState<{ data: T | null; error: string | null; loading: boolean }>({
    data: null,
    error: null,
    loading: path !== null,
  });
  const [turn, setTurn] = useState(0);
  const asked = path === null ? null : address(path, query);
  const concerning = useRef(about);
  concerning.current = about;
  const shownFor = useRef(path);
  /** Whether the server was away when it was asked: the page says so for all of it, and asks again when the server is back. */
  const unanswered = useRef(false);

  useEffect(() => {
    if (asked === null) return undefined;
    const stop = new AbortController();
    const other = shownFor.current !== path;
    shownFor.current = path;
    setState((before) => ({ data: other ? null : before.data, error: null, loading: true }));
    unanswered.current = false;
    ask<T>(asked, {}, stop.signal).then(
      (data) => setState({ data, error: null, loading: false }),
      (error: unknown) => {
        if (stop.signal.aborted) return;
        if (error instanceof Unreachable) {
          unanswered.current = true;
          setState((before) => ({ ...before, loading: false }));
          return;
        }
        if (error instanceof Refused && error.wantsToken) feed.refused();
        const message = error instanceof Error ? error.message : String(error);
        setState((before) => ({ ...before, error: message, loading: false }));
      },
    );
    return () => stop.abort();
  }, [asked, turn]);

  useEffect(
    () =>
      feed.onConnection((connection) => {
        if (connection === 'open' && unanswered.current) setTurn((before) => before + 1);
      }),
    [],
  );

  useEffect(() => {
    let timer: number | undefined;
    let last = 0;
    const off = feed.onChange((ids) => {
      const wanted = concerning.current;
      if (wanted !== null && ids !== null && !ids.some((id) => wanted.includes(id))) return;
      if (wanted?.length === 0 || timer !== undefined) return;
      timer = setTimeout(
        () => {
          timer = undefined;
          last = Date.now();
          setTurn((before) => before + 1);
        },
        Math.max(0, last + LEAST_BETWEEN_MS - Date.now()),
      );
    });
    return () => {
      clearTimeout(timer);
      off();
    };
  }, []);

  return { ...state, reload: () => setTurn((before) => before + 1) };
}

/** The time, by the second: what has a heartbeat ages without any news. */
export function useNow(): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1_000);
    return () => clearInterval(timer);
  }, []);
  return now;
}
