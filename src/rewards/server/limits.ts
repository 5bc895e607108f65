/** What one reward server takes on, and how long it waits. */
export interface ServerLimits {
  /** Bytes of one request's body. */
  readonly bodyBytes: number;
  /** Bytes of all bodies that are held at once. */
  readonly heldBytes: number;
  /** Items of one request. */
  readonly items: number;
  /** Pixels of one image. */
  readonly pixels: number;
  /** Requests to `/score` under way at once; more are refused with 429. */
  readonly requests: number;
  /** Items scored at once; further items of accepted requests wait. */
  readonly concurrency: number;
  /** Open connections; more are closed at once. */
  readonly connections: number;
  /** The time in which a request's headers have to arrive. */
  readonly headersTimeoutMs: number;
  /** The time in which a whole request has to arrive. */
  readonly requestTimeoutMs: number;
  /** The time that scoring one item may take, from the moment that it has a slot. */
  readonly scoreTimeoutMs: number;
  /** The time in which the judge has to answer when `/health?judge` asks for it; less than clients wait for that reply. */
  readonly judgeTimeoutMs: number;
  /** How long requests under way may go on when the server is told to stop. */
  readonly drainTimeoutMs: number;
  /** How often the first two timeouts are looked at. */
  readonly timeoutCheckMs: number;
}

export const defaultLimits: ServerLimits = {
  bodyBytes: 32 * 1024 * 1024,
  heldBytes: 512 * 1024 * 1024,
  items: 256,
  pixels: 2048 * 2048,
  requests: 256,
  concurrency: 64,
  connections: 1024,
  headersTimeoutMs: 10_000,
  requestTimeoutMs: 60_000,
  scoreTimeoutMs: 600_000,
  judgeTimeoutMs: 8_000,
  drainTimeoutMs: 30_000,
  timeoutCheckMs: 1_000,
};
