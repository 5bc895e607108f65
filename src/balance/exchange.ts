/** What other machines gave, kept so that it is not asked for twice. */

/** Something that was asked of another machine, with what it gave. */
export interface RemoteExchange {
  /** What it was asked for: the name of an episode, and more. */
  readonly key: string;
  /** SHA-256 of all that decides the answer. */
  readonly requestHash: string;
}

/** Exchanges by key and hash. One that is put twice replaces the earlier one. */
export interface ExchangeStore<T extends RemoteExchange> {
  find(key: string, requestHash: string): T | undefined;
  put(exchange: T): void;
}
