/** What the engine makes of one version of weights that change between uses: sessions that hold them packed, or copies of them on the device. */
import { Graph, type Shape } from '../../graph/ir.js';
import { SessionPool, type FedWeights, type WeightData } from './pool.js';
import { Session, type SessionOptions } from './session.js';
import { SessionCache } from './session_cache.js';
import { TensorCell } from './tensor_cell.js';

/**
 * Lends what was made of one version: the first use of another frees it before it has its own made, so that no two lie there. Weights are changed in
 * place, and nothing can be seen by them: every use says which version it means. Uses wait for each other.
 */
export class WeightVersions<W, Made> {
  #held: { readonly version: string; readonly made: Made } | null = null;
  #last: Promise<unknown> = Promise.resolve();

  constructor(
    private readonly make: (weights: W) => Made | Promise<Made>,
    private readonly free: (made: Made) => void | Promise<void>,
  ) {}

  /** `weights` may not change before `work` has settled. Raises what making and the work raise. */
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

/** Sessions whose products hold the weights packed. */
export function packedSessions(name: string, options: SessionOptions): WeightVersions<WeightData, SessionCache> {
  return new WeightVersions(
    (weights) => new SessionCache(name, options, new SessionPool(weights)),
    (sessions) => sessions.dispose(),
  );
}

type Given = ReadonlyMap<string, { readonly shape: Shape; readonly data: Float32Array }>;

interface Copied {
  readonly weights: FedWeights;
  /** What made the copies, whose memory is its own. */
  readonly session: Session | null;
}

/** Weights of which those that train lie in cells, copied there once; the others are as they were given. */
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
