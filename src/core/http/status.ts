/** The meaning of a reply, by its status and `Retry-After`. */

/** Meanings by exact status, then by class, then `rest`. */
export type StatusTable<M> = Readonly<Partial<Record<number | '2xx' | '3xx' | '4xx' | '5xx', M>>> & {
  readonly rest: M;
};

export function byStatus<M>(table: StatusTable<M>, status: number): M {
  return table[status] ?? table[`${Math.floor(status / 100)}xx` as '5xx'] ?? table.rest;
}

/** The value of a header by its lower-case name. Null or undefined if there is none. */
type HeaderOf = (name: string) => unknown;

/**
 * The requested pause before a retry in milliseconds: `retry-after-ms`, or `Retry-After` in seconds or as a date (RFC 9110, 10.2.3). Null
 * if there is none.
 */
export function retryAfterMs(headerOf: HeaderOf, nowMs = Date.now()): number | null {
  const [milliseconds, value] = [headerOf('retry-after-ms'), headerOf('retry-after')];
  if (typeof milliseconds === 'string' && /^\d+(\.\d+)?$/.test(milliseconds)) return Number(milliseconds);
  if (typeof value !== 'string') return null;
  if (/^\d+(\.\d+)?$/.test(value)) return Number(value) * 1000;
  const date = Date.parse(value);
  return Number.isNaN(date) ? null : Math.max(0, date - nowMs);
}
