/** The address after the # holds the view and all its settings, so reloading, bookmarks and going back work. */
import { useLayoutEffect, useState } from 'preact/hooks';

export interface Place {
  /** The parts of the path: `['run', '0/sft_s']`. */
  readonly view: string;
  readonly id: string;
  readonly query: URLSearchParams;
}

export function placeOf(hash: string): Place {
  const [path = '', search = ''] = hash.replace(/^#\/?/, '').split('?', 2);
  const [view = '', ...id] = path.split('/');
  return {
    view: view === '' ? 'runs' : view,
    id: decodeURIComponent(id.join('/')),
    query: new URLSearchParams(search),
  };
}

export function usePlace(): Place {
  const [place, setPlace] = useState(() => placeOf(location.hash));
  // A layout effect, because an ordinary effect runs after painting and could miss a change of the address.
  useLayoutEffect(() => {
    const change = (): void => setPlace(placeOf(location.hash));
    addEventListener('hashchange', change);
    addEventListener('popstate', change);
    return () => {
      removeEventListener('hashchange', change);
      removeEventListener('popstate', change);
    };
  }, []);
  return place;
}

type Changes = Readonly<Record<string, string | number | readonly string[] | null>>;

/** The address of a view. */
export function hashOf(view: string, id = '', query: Changes = {}): string {
  const search = withChanges(new URLSearchParams(), query).toString();
  return `#/${view}${id === '' ? '' : `/${id}`}${search === '' ? '' : `?${search}`}`;
}

/** The address of the same view with a changed query. Null removes a parameter. */
export function changed({ view, id, query }: Place, changes: Changes): string {
  const search = withChanges(new URLSearchParams(query), changes).toString();
  return `#/${view}${id === '' ? '' : `/${id}`}${search === '' ? '' : `?${search}`}`;
}

/** Navigates. With `replace`, going back skips the current address. */
export function go(hash: string, how: 'push' | 'replace' = 'push'): void {
  if (hash === location.hash) return;
  if (how === 'push') {
    location.hash = hash;
  } else {
    history.replaceState(null, '', hash);
    dispatchEvent(new Event('popstate'));
  }
}

function withChanges(search: URLSearchParams, changes: Changes): URLSearchParams {
  for (const [name, value] of Object.entries(changes)) {
    search.delete(name);
    if (Array.isArray(value)) for (const one of value as readonly string[]) search.append(name, one);
    else if (value !== null) search.set(name, String(value));
  }
  return search;
}
