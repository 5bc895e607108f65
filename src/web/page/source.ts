/** Where the page's data come from: the dashboard's server, or the file that the page is. */

/** What was answered instead of what was asked for. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }

  get wantsToken(): boolean {
    return this.status === 401;
  }
}

/** Nobody is there to answer. */
export class Unreachable extends Error {}

export interface Source {
  /** What the address of some data answers. Raises Refused, and Unreachable. */
  ask<T>(address: string, signal: AbortSignal): Promise<T>;
  /** A picture that the page has already, as an address for an `<img>`; null for one that has to be asked for. */
  inlined(address: string): string | null;
  /** The same for any other picture. Raises as `ask` does. */
  picture(address: string, signal: AbortSignal): Promise<string>;
  /** Calls back when data have changed, with the ids of the runs that it concerns or null for all; returns what ends that. */
  onChange(callback: (ids: readonly string[] | null) => void): () => void;
  /** Calls back when what was unreachable is there again; returns what ends that. */
  onReturn(callback: () => void): () => void;
}

export type Query = Readonly<Record<string, string | number | readonly string[] | undefined>>;

/** A path with a query; a list gives its name once for each text. */
export function address(path: string, query: Query = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (Array.isArray(value)) for (const one of value as readonly string[]) search.append(name, one);
    else if (value !== undefined) search.set(name, String(value));
  }
  const text = search.toString();
  return text === '' ? path : `${path}?${text}`;
}
