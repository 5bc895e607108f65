/**
 * The processes of one run on one machine. Rank 0 listens on a loopback address, and the others connect to it (a star). All ranks call the
 * same collectives in the same order, one at a time. Sums use a fixed tree over the ranks, so they do not depend on which rank was ready
 * first.
 */
import { deserialize, serialize } from 'node:v8';
import { InternalError } from '../errors.js';
import {
  accept,
  bytesOf,
  connect,
  Disconnected,
  ProcessGroupError,
  totalBytes,
  type FrameKind,
  type Rendezvous,
  type Wire,
} from './rendezvous.js';

export { ProcessGroupError };

/** Values that ranks exchange. They may contain typed arrays, maps and non-finite numbers, but no functions or class instances. */
export interface ProcessGroup {
  readonly rank: number;
  readonly size: number;
  /** Rank 0's value on every rank. The values of other ranks are ignored. Like all collectives, raises ProcessGroupError if a peer disconnects. */
  broadcast<T>(value?: T): Promise<T>;
  /** Every rank's value, by rank, on every rank. */
  allGather<T>(value: T): Promise<T[]>;
  /** Sends element r of each rank's list to rank r, which gets one element from every rank. No one else receives it. */
  allToAll<T>(toEach: readonly T[]): Promise<T[]>;
  /** Every rank's value, by rank, on rank 0. Null on the others. */
  gather<T>(value: T): Promise<T[] | null>;
  /** Replaces the numbers by their sums over the ranks, bit-identical on all ranks. All ranks pass arrays of the same lengths. */
  sum(arrays: readonly Float32Array[]): Promise<void>;
  /** Returns when every rank has called it. */
  barrier(): Promise<void>;
  /** Ends the connections. Peers that wait for this rank raise. */
  close(): void;
}

/** A group of one, without copies or connections. */
export function soloGroup(): ProcessGroup {
  return {
    rank: 0,
    size: 1,
    broadcast: async <T>(value?: T) => value as T,
    allGather: async <T>(value: T) => [value],
    allToAll: async <T>(toEach: readonly T[]) => [...toEach],
    gather: async <T>(value: T) => [value],
    sum: async () => {},
    barrier: async () => {},
    close: () => {},
  };
}

export interface OpenOptions {
  /** Milliseconds that ranks wait for each other. Default: 120,000. */
  readonly timeoutMs?: number;
}

/**
 * Connects to the other ranks by the torchrun environment: `RANK`, `WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT`. If `EDITRL_GROUP_TOKEN` is
 * set, all ranks must have the same. Raises ProcessGroupError if the address is not on this machine, a variable is missing, or ranks do not
 * connect in time (naming them).
 */
export async function openProcessGroup(env: NodeJS.ProcessEnv, options: OpenOptions = {}): Promise<ProcessGroup> {
  const size = integerOf(env, 'WORLD_SIZE', 1);
  const rank = integerOf(env, 'RANK', 0);
  if (rank >= size) throw new ProcessGroupError(`RANK is ${rank}, but WORLD_SIZE ${size}: ranks count from 0`);
  if (size === 1) return soloGroup();
  const place: Rendezvous = {
    rank,
    size,
    address: loopback(env['MASTER_ADDR'] ?? '127.0.0.1'),
    port: integerOf(env, 'MASTER_PORT', 1),
    token: env['EDITRL_GROUP_TOKEN'] ?? '',
    timeoutMs: options.timeoutMs ?? 120_000,
  };
  return rank === 0 ? new Hub(size, await accept(place)) : new Spoke(rank, size, await connect(place));
}

/** The common part of both ends: one numbered collective at a time, and failures that end the group. */
abstract class Connected {
  #sequence = 0;
  #running: string | null = null;
  protected closed = false;

  constructor(
    readonly rank: number,
    readonly size: number,
  ) {}

  abstract close(): void;
  /** Sends the reason to the peers before the connections end. */
  protected abstract fail(why: string): Promise<void>;

  protected async collective<T>(name: string, work: (sequence: number) => Promise<T>): Promise<T> {
    if (this.#running !== null) throw new InternalError(`${name} began while ${this.#running} was in progress`);
    if (this.closed) throw new ProcessGroupError(`rank ${this.rank} has left its process group`);
    this.#running = name;
    try {
      return await work(++this.#sequence);
    } catch (error) {
      await this.fail(error instanceof Error ? error.message : String(error));
      this.close();
      throw error;
    } finally {
      this.#running = null;
    }
  }

  /** Reads one frame of a peer into memory from `room`. */
  protected async receive(
    peer: { readonly rank: number; readonly wire: Wire },
    kind: FrameKind,
    sequence: number,
    room: (bytes: number) => readonly Uint8Array[],
  ): Promise<readonly Uint8Array[]> {
    try {
      const header = await peer.wire.header();
      if (header?.kind === 'failure') {
        const text = Buffer.alloc(header.bytes);
        await peer.wire.fill(text);
        throw new ProcessGroupError(text.toString('utf8'));
      }
      if (header?.kind !== kind || header.sequence !== sequence) {
        const found = header === null ? 'no frame' : `${header.kind} ${header.sequence}`;
        throw new InternalError(`rank ${this.rank} expected ${kind} ${sequence} of rank ${peer.rank}, found ${found}`);
      }
      const parts = room(header.bytes);
      if (totalBytes(parts) !== header.bytes) {
        throw new InternalError(`rank ${peer.rank} sent ${header.bytes} bytes, expected were ${totalBytes(parts)}`);
      }
      for (const part of parts) await peer.wire.fill(part);
      return parts;
    } catch (error) {
      throw error instanceof Disconnected ? gone(peer.rank, error) : error;
    }
  }

  protected async send(
    peer: { readonly rank: number; readonly wire: Wire },
    kind: FrameKind,
    sequence: number,
    parts: readonly Uint8Array[],
  ): Promise<void> {
    try {
      await peer.wire.send(kind, sequence, parts);
    } catch (error) {
      throw error instanceof Disconnected ? gone(peer.rank, error) : error;
    }
  }

  /** The bytes for each other rank. A rank's value for itself is not written. */
  protected serializedForOthers(toEach: readonly unknown[]): Uint8Array[] {
    return Array.from({ length: this.size }, (_, rank) =>
      rank === this.rank ? new Uint8Array(0) : serialize(toEach[rank]),
    );
  }

  async barrier(): Promise<void> {
    await this.allGather(null);
  }

  abstract allGather<T>(value: T): Promise<T[]>;
}

/** Parts with their lengths, one for each rank. */
function withLengths(parts: readonly Uint8Array[]): Uint8Array[] {
  const lengths = Float64Array.from(parts, ({ byteLength }) => byteLength);
  return [new Uint8Array(lengths.buffer), ...parts];
}

/** Splits bytes that `withLengths` joined. */
function split(bytes: Uint8Array, ranks: number): Uint8Array[] {
  let at = ranks * Float64Array.BYTES_PER_ELEMENT;
  return Array.from(new Float64Array(bytes.buffer, bytes.byteOffset, ranks), (length) =>
    bytes.subarray(at, (at += length)),
  );
}

const anyRoom = (bytes: number): readonly Uint8Array[] => [new Uint8Array(bytes)];

/** The end of rank 0. */
class Hub extends Connected implements ProcessGroup {
  readonly #peers: readonly { readonly rank: number; readonly wire: Wire }[];
  /** Buffers for each peer's arrays, reused from sum to sum. */
  readonly #received = new Map<number, Float32Array[]>();

  constructor(size: number, wires: ReadonlyMap<number, Wire>) {
    super(0, size);
    this.#peers = [...wires].sort(([a], [b]) => a - b).map(([rank, wire]) => ({ rank, wire }));
  }

  broadcast<T>(value?: T): Promise<T> {
    return this.collective('broadcast', async (sequence) => {
      await this.#sendAll('value', sequence, [serialize(value)]);
      return value as T;
    });
  }

  allGather<T>(value: T): Promise<T[]> {
    return this.collective('allGather', async (sequence) => {
      const parts = [serialize(value) as Uint8Array, ...(await this.#collect(sequence))];
      await this.#sendAll('values', sequence, withLengths(parts));
      return parts.map((part, rank) => (rank === 0 ? value : (deserialize(part) as T)));
    });
  }

  allToAll<T>(toEach: readonly T[]): Promise<T[]> {
    return this.collective('allToAll', async (sequence) => {
      const own = this.serializedForOthers(toEach);
      const all = [own, ...(await this.#collect(sequence)).map((bytes) => split(bytes, this.size))];
      await Promise.all(
        this.#peers.map((peer) =>
          this.send(peer, 'values', sequence, withLengths(all.map((parts) => parts[peer.rank]))),
        ),
      );
      return all.map((parts, rank) => (rank === 0 ? toEach[0] : (deserialize(parts[0]) as T)));
    });
  }

  gather<T>(value: T): Promise<T[]> {
    return this.collective('gather', async (sequence) => {
      return [value, ...(await this.#collect(sequence)).map((part) => deserialize(part) as T)];
    });
  }

  sum(arrays: readonly Float32Array[]): Promise<void> {
    return this.collective('sum', async (sequence) => {
      const others = await Promise.all(
        this.#peers.map(async (peer) => {
          const room = this.#room(peer.rank, arrays);
          await this.receive(peer, 'arrays', sequence, () => room.map(bytesOf));
          return room;
        }),
      );
      const byRank = [arrays, ...others];
      for (let stride = 1; stride < this.size; stride *= 2) {
        for (let rank = 0; rank + stride < this.size; rank += 2 * stride) add(byRank[rank], byRank[rank + stride]);
      }
      await this.#sendAll('arrays', sequence, arrays.map(bytesOf));
    });
  }

  close(): void {
    this.closed = true;
    for (const { wire } of this.#peers) wire.destroy();
  }

  protected async fail(why: string): Promise<void> {
    const text = Buffer.from(why);
    await Promise.allSettled(this.#peers.map(({ wire }) => wire.send('failure', 0, [text])));
  }

  #collect(sequence: number): Promise<Uint8Array[]> {
    return Promise.all(this.#peers.map(async (peer) => (await this.receive(peer, 'value', sequence, anyRoom))[0]));
  }

  async #sendAll(kind: FrameKind, sequence: number, parts: readonly Uint8Array[]): Promise<void> {
    await Promise.all(this.#peers.map((peer) => this.send(peer, kind, sequence, parts)));
  }

  #room(rank: number, like: readonly Float32Array[]): Float32Array[] {
    const known = this.#received.get(rank);
    if (known?.length === like.length && known.every(({ length }, i) => length === like[i].length)) return known;
    const room = like.map(({ length }) => new Float32Array(length));
    this.#received.set(rank, room);
    return room;
  }
}

/** The end of every other rank. */
class Spoke extends Connected implements ProcessGroup {
  readonly #hub: { readonly rank: number; readonly wire: Wire };

  constructor(rank: number, size: number, wire: Wire) {
    super(rank, size);
    this.#hub = { rank: 0, wire };
  }

  broadcast<T>(): Promise<T> {
    return this.collective('broadcast', async (sequence) => {
      const [bytes] = await this.receive(this.#hub, 'value', sequence, anyRoom);
      return deserialize(bytes) as T;
    });
  }

  allGather<T>(value: T): Promise<T[]> {
    return this.collective('allGather', async (sequence) => {
      await this.send(this.#hub, 'value', sequence, [serialize(value)]);
      const [bytes] = await this.receive(this.#hub, 'values', sequence, anyRoom);
      return split(bytes, this.size).map((part, rank) => (rank === this.rank ? value : (deserialize(part) as T)));
    });
  }

  allToAll<T>(toEach: readonly T[]): Promise<T[]> {
    return this.collective('allToAll', async (sequence) => {
      await this.send(this.#hub, 'value', sequence, withLengths(this.serializedForOthers(toEach)));
      const [bytes] = await this.receive(this.#hub, 'values', sequence, anyRoom);
      return split(bytes, this.size).map((part, rank) =>
        rank === this.rank ? toEach[rank] : (deserialize(part) as T),
      );
    });
  }

  gather<T>(value: T): Promise<null> {
    return this.collective('gather', async (sequence) => {
      await this.send(this.#hub, 'value', sequence, [serialize(value)]);
      return null;
    });
  }

  sum(arrays: readonly Float32Array[]): Promise<void> {
    return this.collective('sum', async (sequence) => {
      const bytes = arrays.map(bytesOf);
      await this.send(this.#hub, 'arrays', sequence, bytes);
      await this.receive(this.#hub, 'arrays', sequence, () => bytes);
    });
  }

  close(): void {
    this.closed = true;
    this.#hub.wire.destroy();
  }

  protected async fail(): Promise<void> {
    // Rank 0 sees the connection end and reports it to the others.
  }
}

function add(into: readonly Float32Array[], other: readonly Float32Array[]): void {
  into.forEach((a, i) => {
    const b = other[i];
    for (let j = 0; j < a.length; j++) a[j] += b[j];
  });
}

function gone(rank: number, cause: Error): ProcessGroupError {
  return new ProcessGroupError(`rank ${rank} went away: ${cause.message}`, {
    next: 'Check the last lines of its log. The run can be resumed by its name.',
    cause,
  });
}

function integerOf(env: NodeJS.ProcessEnv, name: string, atLeast: number): number {
  const value = Number(env[name] ?? NaN);
  if (Number.isInteger(value) && value >= atLeast) return value;
  throw new ProcessGroupError(
    `${name} is ${env[name] ?? 'not set'}; it must be a whole number of at least ${atLeast}`,
    {
      next: 'editrl run sets it for its workers. To start workers by hand, set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.',
    },
  );
}

function loopback(address: string): string {
  if (address === 'localhost' || address === '::1' || /^127(\.\d{1,3}){3}$/.test(address)) return address;
  throw new ProcessGroupError(`MASTER_ADDR is ${address}: a process group is local to one machine (127.0.0.1)`, {
    next: "To use more machines, give each run its own (launch.backend 'slurm'), or use a remote engine (policy.engine.type).",
  });
}
