/** A token policy's weights with what is needed to use them, and the sessions compiled for the shapes met so far. */
import type { FloatTensor } from '../../core/safetensors.js';
import type { SessionOptions } from '../../engines/onnx/session.js';
import { Session } from '../../engines/onnx/session.js';
import type { Value } from '../../graph/ir.js';
import { Graph } from '../../graph/ir.js';
import type { DecoderConfig } from '../../nets/decoder/config.js';
import type { TokenSpace } from './space.js';

export type Weights = Map<string, FloatTensor>;

export interface PolicyModel {
  readonly config: DecoderConfig;
  readonly space: TokenSpace;
  readonly weights: Weights;
}

/** Builds a session the first time that a shape is met; concurrent askers share it. */
export class SessionCache {
  readonly #sessions = new Map<string, Promise<Session>>();

  constructor(
    readonly name: string,
    readonly options: SessionOptions,
  ) {}

  get(shape: object, build: (graph: Graph) => Record<string, Value>): Promise<Session> {
    const key = JSON.stringify(shape);
    let session = this.#sessions.get(key);
    if (session === undefined) {
      const graph = new Graph(`${this.name} ${key}`);
      session = Session.compile(graph, build(graph), this.options);
      session.catch(() => this.#sessions.delete(key));
      this.#sessions.set(key, session);
    }
    return session;
  }

  /** Seconds that all its sessions spent in the runtime. */
  async seconds(): Promise<number> {
    const sessions = await Promise.all(this.#sessions.values());
    return sessions.reduce((sum, session) => sum + session.seconds, 0);
  }

  async dispose(): Promise<void> {
    const sessions = await Promise.all(this.#sessions.values());
    this.#sessions.clear();
    await Promise.all(sessions.map((session) => session.dispose()));
  }
}
