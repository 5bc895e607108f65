/** The sessions compiled for the shapes met so far. */
import type { SessionPool } from './pool.js';
import { Session, type SessionOptions } from './session.js';
import { Graph, type Value } from '../../graph/ir.js';

/** Sessions that a cache keeps: a compiled graph holds memory of its own, whether it runs or not. */
const KEPT_SESSIONS = 8;
/** The limit for sessions that share a pool: each then holds only what depends on its sizes. */
const KEPT_SIZES = 32;

interface CachedSession {
  readonly session: Promise<Session>;
  /** How many are using it; while some are, it stays. */
  users: number;
}

/** Builds a session the first time that a shape is met, and keeps those used last; concurrent users share it. */
export class SessionCache {
  /** In the order of their last use. */
  readonly #sessions = new Map<string, CachedSession>();

  constructor(
    readonly name: string,
    readonly options: SessionOptions,
    /** Where sessions of several shapes share what is compiled. */
    private readonly pool?: SessionPool,
    readonly kept = pool === undefined ? KEPT_SESSIONS : KEPT_SIZES,
  ) {}

  /** Lends the session of a shape, which stays alive until `work` has settled. Raises what the compilation or the work raises. */
  async use<T>(
    shape: object,
    build: (graph: Graph) => Record<string, Value>,
    work: (session: Session) => Promise<T>,
  ): Promise<T> {
    const key = JSON.stringify(shape);
    const entry = this.#sessions.get(key) ?? this.#compile(key, build);
    this.#sessions.delete(key);
    this.#sessions.set(key, entry);
    entry.users += 1;
    try {
      return await work(await entry.session);
    } finally {
      entry.users -= 1;
      await this.#evict();
    }
  }

  /** Frees all sessions; none may be in use. */
  async dispose(): Promise<void> {
    const sessions = await Promise.all([...this.#sessions.values()].map(({ session }) => session));
    this.#sessions.clear();
    await Promise.all(sessions.map((session) => session.dispose()));
  }

  #compile(key: string, build: (graph: Graph) => Record<string, Value>): CachedSession {
    const graph = new Graph(`${this.name} ${key}`);
    const session = Session.compile(graph, build(graph), this.options, this.pool);
    session.catch(() => this.#sessions.delete(key));
    return { session, users: 0 };
  }

  /** Frees the sessions beyond `kept` that have gone unused for longest, but none in use. */
  async #evict(): Promise<void> {
    const idle = [...this.#sessions].filter(([, { users }]) => users === 0);
    const evicted = idle.slice(0, Math.max(0, this.#sessions.size - this.kept));
    for (const [key] of evicted) this.#sessions.delete(key);
    await Promise.all(evicted.map(async ([, { session }]) => (await session).dispose()));
  }
}
