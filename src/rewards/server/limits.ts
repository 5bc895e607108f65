/** What one reward server takes on, and how long it waits. */
import type { HttpLimits } from '../../http/server.js';

export interface ServerLimits extends HttpLimits {
  /** Items of one request. */
  readonly items: number;
  /** Pixels of one image. */
  readonly pixels: number;
  /**
   * Bytes of the pixels that are decoded at once; further items of accepted requests wait. Items so small that `concurrency` of them have half as
   * much come on top of it, and do not wait.
   */
  readonly decodedBytes: number;
  /** Requests to `/score` under way at once; more are refused with 429. */
  readonly requests: number;
  /** Items scored at once; further items of accepted requests wait. */
  readonly concurrency: number;
  /** The time that scoring one item may take, from the moment that it has a slot. */
  readonly scoreTimeoutMs: number;
  /** The time in which the judge has to answer when `/health?judge` asks for it; less than clients wait for that reply. */
  readonly judgeTimeoutMs: number;
}

export const defaultLimits: ServerLimits = {
  bodyBytes: 32 * 1024 * 1024,
  heldBytes: 256 * 1024 * 1024,
  items: 256,
  pixels: 2048 * 2048,
  decodedBytes: 192 * 1024 * 1024,
  requests: 256,
  concurrency: 64,
  connections: 4096,
  headersTimeoutMs: 10_000,
  requestTimeoutMs: 60_000,
  bodyWindowMs: 20_000,
  scoreTimeoutMs: 600_000,
  judgeTimeoutMs: 8_000,
  drainTimeoutMs: 30_000,
  timeoutCheckMs: 1_000,
};
