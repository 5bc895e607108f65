/** The sessions compiled for the shapes used so far. */
import { Graph, type Shape, type Value } from '../graph/ir.js';
import { type RunWeights, Session, type SessionOptions, SessionPool, type WeightData } from './session.js';
import { TensorCell } from './tensors.js';

/** The number of sessions in a cache: a compiled graph holds memory even when it does not run. */
const KEPT_SESSIONS = 8;
/** The limit for sessions that share a pool: each then holds only memory that depends on its sizes. */
const KEPT_SIZES = 32;

interface CachedSession {
  readonly session: Promise<Session>;
  /** The number of users. A used session stays alive. */
  users: number;
}

/** Builds a session when a shape is first used, and keeps the most recently used ones. Concurrent users share it. */
export class SessionCache {
  /** In the order of their last use. */
  readonly #sessions = new Map<string, CachedSession>();

  constructor(
    readonly name: string,
    readonly options: SessionOptions,
    /** The pool of sessions of several shapes. */
    private readonly pool?: SessionPool,
    readonly kept = pool === undefined ? KEPT_SESSIONS : KEPT_SIZES,
  ) {}

  /**
   * Lends the session of a shape, which stays alive until `work` has settled. Raises the errors of the compilation and
   * of the work.
   */
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

  /** Frees all sessions. None may be in use. */
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

  /** Frees the least recently used sessions beyond `kept`, but none in use. */
  async #evict(): Promise<void> {
    const idle = [...this.#sessions].filter(([, { users }]) => users === 0);
    const evicted = idle.slice(0, Math.max(0, this.#sessions.size - this.kept));
    for (const [key] of evicted) this.#sessions.delete(key);
    await Promise.all(evicted.map(async ([, { session }]) => (await session).dispose()));
  }
}

/**
 * Lends an object made from one version of the weights. The first use of another version frees the object before making
 * its own, so that only one exists. Weights change in place without a trace, so every use gives its version. Uses wait
 * for each other.
 */
export class WeightVersions<W, Made> {
  #held: { readonly version: string; readonly made: Made } | null = null;
  #last: Promise<unknown> = Promise.resolve();

  constructor(
    private readonly make: (weights: W) => Made | Promise<Made>,
    private readonly free: (made: Made) => void | Promise<void>,
  ) {}

  /** `weights` may not change before `work` has settled. Raises the errors of making the object and of the work. */
  use<T>(version: string, weights: W, work: (made: Made) => Promise<T>): Promise<T> {
    const turn = this.#last.then(async () => {
      if (this.#held?.version !== version) {
        await this.#throwAway();
        this.#held = { version, made: await this.make(weights) };
      }
      return work(this.#held.made);
    });
    this.#last = turn.catch(() => {});
    return turn;
  }

  async dispose(): Promise<void> {
    await this.#last;
    await this.#throwAway();
  }

  async #throwAway(): Promise<void> {
    const held = this.#held;
    this.#held = null;
    if (held !== null) await this.free(held.made);
  }
}

/** Sessions whose products hold packed weights. */
export function packedSessions(name: string, options: SessionOptions): WeightVersions<WeightData, SessionCache> {
  return new WeightVersions(
    (weights) => new SessionCache(name, options, new SessionPool(weights)),
    (sessions) => sessions.dispose(),
  );
}

type Given = ReadonlyMap<string, { readonly shape: Shape; readonly data: Float32Array }>;

interface Copied {
  readonly weights: RunWeights;
  /** The provider of the copies, whose memory is its own. */
  readonly session: Session | null;
}

/** The same weights, with trained ones replaced by their copies in cells. Other weights stay as they are. */
export function copiedWeights(options: SessionOptions): WeightVersions<Given, Copied> {
  return new WeightVersions<Given, Copied>(
    async (weights) => {
      const trained = [...weights].filter(([name]) => options.frozen?.has(name) !== true);
      if (trained.length === 0) return { weights, session: null };
      const graph = new Graph('copied weights');
      const outputs = Object.fromEntries(trained.map(([name, { shape }]) => [name, graph.parameter(name, shape)]));
      const session = await Session.compile(graph, outputs, { ...options, leaves: () => true });
      const cells = new Map(trained.map(([name]) => [name, new TensorCell()]));
      try {
        await session.run({}, weights, Object.fromEntries(cells));
      } catch (error) {
        await session.dispose();
        throw error;
      }
      return {
        weights: new Map<string, { readonly data: Float32Array } | TensorCell>([...weights, ...cells]),
        session,
      };
    },
    async ({ weights, session }) => {
      for (const held of weights.values()) if (held instanceof TensorCell) held.dispose();
      await session?.dispose();
    },
  );
}
