/** Where the page gets its data: from the dashboard's server, or from the file that the page itself is. */
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

/** Nobody answered. */
export class Unreachable extends Error {}

export interface Source {
  /** The data at an address. Raises Refused, and Unreachable. */
  ask<T>(address: string, signal: AbortSignal): Promise<T>;
  /** A picture that the page already has, as an address for an `<img>`; null for one that has to be requested. */
  inlined(address: string): string | null;
  /** Loads any other picture, with the same result. Raises as `ask` does. */
  picture(address: string, signal: AbortSignal): Promise<string>;
  /** Calls back when data has changed, with the ids of the affected runs or null for all; returns a function that stops it. */
  onChange(callback: (ids: readonly string[] | null) => void): () => void;
  /** Calls back when the server can be reached again; returns a function that stops it. */
  onReturn(callback: () => void): () => void;
}

export type Query = Readonly<Record<string, string | number | readonly string[] | undefined>>;

/** A path with a query; a list repeats its name for each text. */
export function address(path: string, query: Query = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (Array.isArray(value)) for (const one of value as readonly string[]) search.append(name, one);
    else if (value !== undefined) search.set(name, String(value));
  }
  const text = search.toString();
  return text === '' ? path : `${path}?${text}`;
}

/** Answers requests for curves like the dashboard's server, and for the report's pictures by index. */
export function inlinedSource({ curves, pictures }: WireReport): Source {
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
    inlined: (place) => pictures[Number(place)] ?? null,
    picture: async (place) => notInReport(`the picture ${place}`),
    onChange: never,
    onReturn: never,
  };
}

function notInReport(what: string): never {
  throw new Refused(404, `A report does not hold ${what}.`);
}

/** The points of a curve within a range of iterations, both ends included. */
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
