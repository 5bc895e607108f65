/** Hooks for data that stays up to date, for the keyboard, and for text fields. */
import { createContext } from 'preact';
import { useContext, useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { address, Unreachable, type Query, type Source } from './source.js';

const MIN_INTERVAL_MS = 700;

export const SourceContext = createContext<Source | null>(null);

export function useSource(): Source {
  const source = useContext(SourceContext);
  if (source === null) throw new Error('useSource needs a SourceContext');
  return source;
}

export interface Loaded<T> {
  /** The latest answer. It stays available while another request is pending. */
  readonly data: T | null;
  readonly error: string | null;
  readonly loading: boolean;
  readonly reload: () => void;
}

/**
 * Fetches data from a path, and fetches it again when one of the `about` runs changes. Null means every run, an empty list means none. A null path
 * fetches nothing.
 */
export function useData<T>(path: string | null, query: Query = {}, about: readonly string[] | null = []): Loaded<T> {
  const source = useSource();
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
  /** Whether the server was unreachable. The page reports this once for all requests and repeats this one when the server is back. */
  const unanswered = useRef(false);

  useEffect(() => {
    if (asked === null) return undefined;
    const stop = new AbortController();
    const other = shownFor.current !== path;
    shownFor.current = path;
    setState((before) => ({ data: other ? null : before.data, error: null, loading: true }));
    unanswered.current = false;
    source.ask<T>(asked, stop.signal).then(
      (data) => setState({ data, error: null, loading: false }),
      (error: unknown) => {
        if (stop.signal.aborted) return;
        if (error instanceof Unreachable) {
          unanswered.current = true;
          setState((before) => ({ ...before, loading: false }));
          return;
        }
        const message = error instanceof Error ? error.message : String(error);
        setState((before) => ({ ...before, error: message, loading: false }));
      },
    );
    return () => stop.abort();
  }, [asked, turn]);

  useEffect(
    () =>
      source.onReturn(() => {
        if (unanswered.current) setTurn((before) => before + 1);
      }),
    [],
  );

  useEffect(() => {
    let timer: number | undefined;
    let last = 0;
    const off = source.onChange((ids) => {
      const wanted = concerning.current;
      if (wanted !== null && ids !== null && !ids.some((id) => wanted.includes(id))) return;
      if (wanted?.length === 0 || timer !== undefined) return;
      timer = setTimeout(
        () => {
          timer = undefined;
          last = Date.now();
          setTurn((before) => before + 1);
        },
        Math.max(0, last + MIN_INTERVAL_MS - Date.now()),
      );
    });
    return () => {
      clearTimeout(timer);
      off();
    };
  }, []);

  return { ...state, reload: () => setTurn((before) => before + 1) };
}

/** The current time, updated every second, because heartbeats age without an event. */
export function useNow(): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1_000);
    return () => clearInterval(timer);
  }, []);
  return now;
}

export type KeyTable = Readonly<Record<string, () => void>>;

/** Listens to keys while the component is shown. A layout effect, so that it is ready before the user sees the component. */
export function useKeys(table: KeyTable): void {
  const current = useRef(table);
  current.current = table;
  useLayoutEffect(() => {
    const press = (event: KeyboardEvent): void => {
      if (event.ctrlKey || event.altKey || event.metaKey || isWriting(event.target)) return;
      if (document.querySelector('dialog[open]') !== null) return;
      const act = Object.hasOwn(current.current, event.key) ? current.current[event.key] : undefined;
      if (act === undefined) return;
      event.preventDefault();
      act();
    };
    addEventListener('keydown', press);
    return () => removeEventListener('keydown', press);
  }, []);
}

function isWriting(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.matches('input, textarea, select, [contenteditable]');
}

/** Descriptions of the keys, which `?` shows. */
export const KEY_HELP: readonly (readonly [keys: string, meaning: string])[] = [
  ['/', 'edit the filter'],
  ['j  k', 'next or previous run or episode'],
  ['Enter', 'open the run'],
  ['[  ]', 'previous or next iteration or page'],
  ['?', 'show this list'],
];

const REPORTED_AFTER_MS = 250;

/**
 * The text of a field, and a function to change it. `onValue` gets the text after a short pause in typing. A value that changes for another reason
 * replaces the text. A value that was just reported does not, because the user may have kept typing.
 */
export function useTyped(value: string, onValue: (text: string) => void): [string, (text: string) => void] {
  const [text, setText] = useState(value);
  const reported = useRef(value);
  const report = useRef(onValue);
  report.current = onValue;
  // A layout effect, because the user may start typing right after painting.
  useLayoutEffect(() => {
    if (value === reported.current) return;
    reported.current = value;
    setText(value);
  }, [value]);
  useLayoutEffect(() => {
    if (text === reported.current) return undefined;
    const timer = setTimeout(() => {
      reported.current = text;
      report.current(text);
    }, REPORTED_AFTER_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return [text, setText];
}
