/** Data that is inlined in the page and never changes. */
import type { WireCurve, WireReport } from '../wire.js';
import { Refused, type Source } from './source.js';

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
