/** Answers of other machines, stored so that they are not requested twice. */

/** A request to another machine, with its answer. */
export interface RemoteExchange {
  /** What the request was made for: the name of an episode, and more. */
  readonly key: string;
  /** SHA-256 of all that decides the answer. */
  readonly requestHash: string;
}

/** Exchanges by key and hash. Putting one twice replaces the earlier one. */
export interface ExchangeStore<T extends RemoteExchange> {
  find(key: string, requestHash: string): T | undefined;
  put(exchange: T): void;
}
