/** Small parts that several views share. */
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { WireState } from '../wire.js';
import { askImage } from './session.js';

/** A state by its word; the colour only repeats it. */
export function State({ state }: { readonly state: WireState }): JSX.Element {
  return <span class={`state state-${state}`}>{state}</span>;
}

/** How far something has come, as a bar with its numbers. */
export function Progress({
  done,
  of,
  state,
}: {
  readonly done: number;
  readonly of: number;
  readonly state: WireState;
}): JSX.Element {
  const share = of === 0 ? 0 : Math.min(1, done / of);
  return (
    <span class={`progress progress-${state}`} title={`${done} of ${of} iterations`}>
      <span class="progress-bar" aria-hidden="true">
        <span style={{ width: `${(100 * share).toFixed(1)}%` }} />
      </span>
      <span class="progress-text">
        {done}
        <span class="quiet">/{of}</span>
      </span>
    </span>
  );
}

/** What went wrong, or that something is on its way; nothing where there is data and no error. */
export function Status({
  error,
  loading,
  what,
}: {
  readonly error: string | null;
  readonly loading: boolean;
  readonly what: string;
}): JSX.Element | null {
  if (error !== null) {
    return (
      <p class="error" role="alert">
        {error}
      </p>
    );
  }
  return loading ? <p class="quiet">{what}…</p> : null;
}

/** A picture of a run. It is asked for when it is near the screen; one that is gone says so. */
export function Picture({ path, label }: { readonly path: string; readonly label: string }): JSX.Element {
  const [holder, setHolder] = useState<HTMLElement | null>(null);
  const [seen, setSeen] = useState(false);
  const [found, setFound] = useState<{ url: string | null; error: string | null }>({ url: null, error: null });

  useEffect(() => {
    if (holder === null) return undefined;
    const watch = new IntersectionObserver(
      (entries) => {
        if (entries.some(({ isIntersecting }) => isIntersecting)) setSeen(true);
      },
      { rootMargin: '300px' },
    );
    watch.observe(holder);
    return () => watch.disconnect();
  }, [holder]);

  useEffect(() => {
    if (!seen) return undefined;
    const stop = new AbortController();
    let made: string | null = null;
    askImage(path, stop.signal).then(
      (url) => {
        made = url;
        if (stop.signal.aborted) URL.revokeObjectURL(url);
        else setFound({ url, error: null });
      },
      (error: unknown) => {
        if (!stop.signal.aborted)
          setFound({ url: null, error: error instanceof Error ? error.message : String(error) });
      },
    );
    return () => {
      stop.abort();
      if (made !== null) URL.revokeObjectURL(made);
    };
  }, [path, seen]);

  return (
    <figure class="picture" ref={setHolder}>
      {found.url !== null && <img src={found.url} alt={label} />}
      {found.url === null && (
        <span class="picture-missing" title={found.error ?? undefined}>
          {found.error === null ? '' : 'image is gone'}
        </span>
      )}
      <figcaption>{label}</figcaption>
    </figure>
  );
}

/** Tabs that are links, so that each has an address. */
export function Tabs({
  tabs,
  chosen,
  label,
}: {
  readonly tabs: readonly { readonly name: string; readonly href: string; readonly title: string }[];
  readonly chosen: string;
  readonly label: string;
}): JSX.Element {
  return (
    <nav class="tabs" aria-label={label}>
      {tabs.map(({ name, href, title }) => (
        <a key={name} href={href} aria-current={name === chosen ? 'page' : undefined}>
          {title}
        </a>
      ))}
    </nav>
  );
}

/** A dialog that holds the rest of the page back while it is shown. */
export function Dialog({
  title,
  onClose,
  children,
}: {
  readonly title: string;
  readonly onClose: () => void;
  readonly children: ComponentChildren;
}): JSX.Element {
  const [holder, setHolder] = useState<HTMLDialogElement | null>(null);
  useEffect(() => {
    if (holder !== null && !holder.open) holder.showModal();
  }, [holder]);
  return (
    <dialog ref={setHolder} onClose={onClose} aria-label={title}>
      <h2>{title}</h2>
      {children}
    </dialog>
  );
}
