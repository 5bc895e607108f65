/** Small components that several views share. */
import { Fragment, type ComponentChildren, type JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { WireState } from '../wire.js';
import { piecesOf, visible, withHyphens } from './format.js';
import { useSource } from './hooks.js';

/** Text whose long words may break at the points from `piecesOf`. */
export function Breakable({ text }: { readonly text: string }): JSX.Element {
  return (
    <>
      {piecesOf(visible(text)).map((piece, at) => (
        <Fragment key={at}>
          {at > 0 && <wbr />}
          {withHyphens(piece).map((part, place) => (place % 2 === 0 ? part : <span class="whole">{part}</span>))}
        </Fragment>
      ))}
    </>
  );
}

/** A state as a word. The color only repeats it. */
export function State({ state }: { readonly state: WireState }): JSX.Element {
  return <span class={`state state-${state}`}>{state}</span>;
}

/** A badge with the names of active alarms. */
export function AlarmBadge({ alarms }: { readonly alarms: readonly string[] }): JSX.Element | null {
  if (alarms.length === 0) return null;
  const [first] = alarms;
  return (
    <span class="alarm" title={`hack alarms: ${alarms.join(', ')}`}>
      <span aria-hidden="true">⚠ </span>
      <span class="hidden">hack alarm </span>
      {alarms.length === 1 ? visible(first ?? '') : `${alarms.length} alarms`}
    </span>
  );
}

/** Progress as a bar with its numbers. */
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

/** An error or a loading note. */
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

/** An image of a run. It is loaded when it comes near the visible area. A wide strip, such as the frames of a clip, takes the full width. */
export function ImageFigure({
  path,
  label,
  alt = label,
}: {
  readonly path: string;
  readonly label: string;
  readonly alt?: string;
}): JSX.Element {
  const source = useSource();
  const [holder, setHolder] = useState<HTMLElement | null>(null);
  const [seen, setSeen] = useState(false);
  const [found, setFound] = useState<{ url: string | null; error: string | null }>({ url: null, error: null });
  const [wide, setWide] = useState(false);
  const url = source.inlined(path) ?? found.url;

  useEffect(() => {
    if (holder === null || url !== null) return undefined;
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
    source.image(path, stop.signal).then(
      (taken) => {
        made = taken;
        if (stop.signal.aborted) URL.revokeObjectURL(taken);
        else setFound({ url: taken, error: null });
      },
      (error: unknown) => {
        if (!stop.signal.aborted) {
          setFound({ url: null, error: error instanceof Error ? error.message : String(error) });
        }
      },
    );
    return () => {
      stop.abort();
      if (made !== null) URL.revokeObjectURL(made);
    };
  }, [path, seen]);

  return (
    <figure class={wide ? 'image image-wide' : 'image'} ref={setHolder}>
      {url !== null && (
        <img
          src={url}
          alt={visible(alt)}
          onLoad={({ currentTarget: { naturalWidth, naturalHeight } }) => setWide(naturalWidth > 2 * naturalHeight)}
        />
      )}
      {url === null && (
        <span class="image-missing" title={found.error ?? undefined}>
          {found.error === null ? '' : 'image not available'}
        </span>
      )}
      <figcaption>{visible(label)}</figcaption>
    </figure>
  );
}

/** A table that scrolls horizontally if it is wide. On narrow screens each row becomes a card with the column titles. */
export function Table({
  label,
  titles,
  rows,
  numbersFrom = Infinity,
  long = false,
}: {
  /** Label for screen readers. */
  readonly label: string;
  readonly titles: readonly string[];
  readonly rows: readonly (readonly ComponentChildren[])[];
  /** Index of the first right-aligned column. */
  readonly numbersFrom?: number;
  /** Whether cells contain long texts and need their own lines on narrow screens. */
  readonly long?: boolean;
}): JSX.Element {
  const kind = (at: number): string | undefined => (at >= numbersFrom ? 'number' : undefined);
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={visible(label)}>
      <table class={long ? 'stacked long' : 'stacked'}>
        <thead>
          <tr>
            {titles.map((title, at) => (
              <th key={at} scope="col" class={kind(at)}>
                <Breakable text={title} />
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, place) => (
            <tr key={place}>
              {row.map((cell, at) => (
                <td key={at} data-title={visible(titles[at] ?? '')} class={kind(at)}>
                  {cell}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** A list of names and values. */
export function Facts({
  facts,
}: {
  readonly facts: readonly {
    readonly name: string;
    readonly value: ComponentChildren;
    readonly more?: string | null;
  }[];
}): JSX.Element {
  return (
    <dl class="facts">
      {facts.map(({ name, value, more = null }) => (
        <div key={name}>
          <dt>
            <Breakable text={name} />
          </dt>
          <dd>{value}</dd>
          {more !== null && (
            <dd class="quiet small">
              <Breakable text={more} />
            </dd>
          )}
        </div>
      ))}
    </dl>
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

/** A dialog that makes the rest of the page inert while it is shown. */
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
