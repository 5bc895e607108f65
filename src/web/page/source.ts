/** Sources of the page's data: the dashboard server, or the report file itself. */
import type { WireCurve, WireReport } from '../wire.js';

/** The server answered with an error. */
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

/** The server did not respond. */
export class Unreachable extends Error {}

export interface Source {
  /** Gets the data at an address. Raises Refused and Unreachable. */
  ask<T>(address: string, signal: AbortSignal): Promise<T>;
  /** The address of an inlined image for an `<img>`. Null if the image has to be requested. */
  inlined(address: string): string | null;
  /** Loads an image that is not inlined. Raises the errors of `ask`. */
  image(address: string, signal: AbortSignal): Promise<string>;
  /** Calls back when data has changed, with the ids of the affected runs or null for all. Returns a function that stops it. */
  onChange(callback: (ids: readonly string[] | null) => void): () => void;
  /** Calls back when the server can be reached again. Returns a function that stops it. */
  onReturn(callback: () => void): () => void;
}

export type Query = Readonly<Record<string, string | number | readonly string[] | undefined>>;

/** A path with a query. A list repeats its name for each value. */
export function address(path: string, query: Query = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (Array.isArray(value)) for (const one of value as readonly string[]) search.append(name, one);
    else if (value !== undefined) search.set(name, String(value));
  }
  const text = search.toString();
  return text === '' ? path : `${path}?${text}`;
}

/** Answers requests for curves like the dashboard server, and requests for images by their index in the report. */
export function inlinedSource({ curves, images }: WireReport): Source {
  const never = (): (() => void) => () => undefined;
  return {
    async ask<T>(address: string): Promise<T> {
      const { pathname, searchParams } = new URL(address, 'page:///');
      if (pathname !== '/api/curves') return notInReport(pathname);
      const wanted = new Set(searchParams.getAll('metric'));
      const from = Number(searchParams.get('from') ?? 0);
      const to = Number(searchParams.get('to') ?? Infinity);
      const found = curves.curves
        .filter(({ metric }) => wanted.has(metric))
        .map((curve) => cutToRange(curve, from, to));
      return { ...curves, curves: found } as T;
    },
    inlined: (place) => images[Number(place)] ?? null,
    image: async (place) => notInReport(`the image ${place}`),
    onChange: never,
    onReturn: never,
  };
}

function notInReport(what: string): never {
  throw new Refused(404, `The report does not contain ${what}.`);
}

/** The points of a curve within a range of iterations, including both ends. */
function cutToRange(curve: WireCurve, from: number, to: number): WireCurve {
  const { iterations, mean, low, high } = curve;
  const kept = <T>(values: readonly T[]): T[] =>
    values.filter((_, at) => iterations[at] >= from && iterations[at] <= to);
  return {
    ...curve,
    iterations: kept(iterations),
    mean: kept(mean),
    ...(low === undefined || high === undefined ? {} : { low: kept(low), high: kept(high) }),
  };
}
