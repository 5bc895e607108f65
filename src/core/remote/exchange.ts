/** Answers of other machines, stored so that they are not requested twice. */

/** A request to another machine with its answer. */
export interface RemoteExchange {
  /** Identifies the request: the key of an episode, and more. */
  readonly key: string;
  /** SHA-256 of everything that affects the answer. */
  readonly requestHash: string;
}

/** Exchanges by key and hash. A later one replaces an earlier one. */
export interface ExchangeStore<T extends RemoteExchange> {
  find(key: string, requestHash: string): T | undefined;
  put(exchange: T): void;
}

/** Marks the keys of reward servers' replies, which are stored among judgements. */
export const REPLY_QUERY = 'remote';

/** The form of exchanges as lines. */
export interface LineForm<T extends RemoteExchange> {
  readonly write: (exchange: T) => Readonly<Record<string, unknown>>;
  /** Raises SyntaxError for a line that is not JSON. */
  readonly read: (line: string) => T;
}

/** A form with these field names, in this order. Undefined fields are not written, and missing ones stay missing. */
export function lineForm<T extends RemoteExchange>(names: { readonly [K in keyof T]-?: string }): LineForm<T> {
  const all = Object.entries<string>(names);
  const renamed = (fields: object, pairs: readonly (readonly [string, string])[]): Record<string, unknown> =>
    Object.fromEntries(
      pairs.flatMap(([from, to]) => {
        const value = (fields as Readonly<Record<string, unknown>>)[from];
        return value === undefined ? [] : [[to, value]];
      }),
    );
  const back = all.map(([own, stored]) => [stored, own] as const);
  return {
    write: (exchange) => renamed(exchange, all),
    read: (line) => renamed(JSON.parse(line) as object, back) as unknown as T,
  };
}
