/**
 * The only module that calls onnxruntime-node: compiles graphs to sessions and runs them. Buffers are plain typed
 * arrays. A weight is wrapped without a copy, so an optimizer may change it in place between runs.
 */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import type * as Ort from 'onnxruntime-node';
import { EngineError, InternalError, must } from '../../core/errors.js';
import { HalfTensor } from '../../core/half.js';
import { CHECKPOINT_INPUT } from '../graph/checkpoint.js';
import { formatShape, type Graph, sameShape, sizeOf, type Value, type ValueType } from '../graph/ir.js';
import { type HalfInput, type OnnxModel, outputName, packedFile, type RowsInput, toOnnx } from '../graph/onnx.js';
import { canKeepOnDevice, residentTensor, TensorCell, type TensorData } from './tensors.js';

export type Provider = 'cpu' | 'webgpu' | 'cuda';

/** An input of a run, or a buffer for an output. */
export type TensorBinding = TensorData | TensorCell;

export interface SessionOptions {
  readonly provider?: Provider;
  /** Index among the GPUs of this process. Default: the first. Only for `cuda`. */
  readonly device?: number;
  /** Threads within an operator. Default: one for each core of this process. */
  readonly threads?: number;
  /**
   * Parameters that never change. On WebGPU they stay on the device instead of being copied from memory. Default: none.
   */
  readonly frozen?: ReadonlySet<string>;
  /** Frozen parameters that are `HalfTensor`s. Default: none. */
  readonly halves?: ReadonlySet<string>;
  /**
   * Outputs that runs put into cells, and leave on the device if the provider can. Disposing of the session destroys
   * the contents of these cells. Default: none.
   */
  readonly leaves?: (output: string) => boolean;
  /** Writes onnxruntime's per-operator profile to files with this prefix. */
  readonly profilePrefix?: string;
}

/** A provider in onnxruntime's form. */
export function onDevice(provider: Provider, device = 0): Ort.InferenceSession.ExecutionProviderConfig {
  return provider === 'cuda' && device > 0 ? { name: provider, deviceId: device } : provider;
}

let loaded: Promise<typeof Ort> | null = null;

/** Loads the runtime once. Raises EngineError with the remedy if the native library is missing. */
export async function loadRuntime(): Promise<typeof Ort> {
  loaded ??= import('onnxruntime-node');
  try {
    return await loaded;
  } catch (cause) {
    loaded = null;
    throw new EngineError('onnxruntime-node cannot be loaded', {
      next: 'Run `npm ci` again, then `editrl doctor`.',
      cause,
    });
  }
}

/**
 * Numbers below 1e-38 count as 0. The exponentials of masked scores are such numbers, and a processor takes a trap for each.
 * Without the traps, a causal softmax is two to three times as fast. The runtime sets this for its threads and for the one that makes the
 * session, so that JavaScript there does the same from the first session on.
 *
 * A session's threads spin while they wait for its next operator, and stop when its run ends. Otherwise they would take
 * cores from the next session, from JavaScript and from the thread that sends judge requests. Waking several threads costs
 * the next run 0.1 to 1 ms, which only matters for very short runs. These need one thread (`rollout.threads`).
 */
const SESSION_SETTINGS = { session: { set_denormal_as_zero: '1', force_spinning_stop: '1' } } as const;

/** Values of `checkpoint` that every run needs. */
const KEEP = Uint8Array.of(1);

const ARRAY_TYPE = { float32: Float32Array, int64: BigInt64Array, bool: Uint8Array } as const;

/** The time during which at least one of several overlapping works was in progress, in milliseconds. */
export class BusyTime {
  #underWay = 0;
  #since = 0;
  #total = 0;

  begin(now: number): void {
    if (this.#underWay++ === 0) this.#since = now;
  }

  end(now: number): void {
    if (--this.#underWay === 0) this.#total += now - this.#since;
  }

  /** Time covered by finished work. Time shared with work in progress is added when that ends. */
  get total(): number {
    return this.#total;
  }
}

const busy = new BusyTime();

/**
 * Seconds in which at least one run of a session was in progress in this process. The difference of two readings is a
 * share.
 */
export function runtimeSeconds(): number {
  return busy.total / 1000;
}

let allCompileSeconds = 0;

/** Seconds that this process has spent on writing graphs as ONNX and having the runtime compile them, summed over all sessions. */
export function compileSeconds(): number {
  return allCompileSeconds;
}

/** A compiled graph. Runs may overlap. Each has its own output buffers unless the caller provides some. */
export class Session {
  readonly #model: OnnxModel;
  readonly #session: Ort.InferenceSession;
  readonly #ort: typeof Ort;
  /** Wrapped buffers, so that each weight is wrapped only once. */
  readonly #wrapped = new WeakMap<TensorData | Uint16Array, Ort.Tensor>();
  /** The last used rows of parameters, and the arrays that contain them. */
  readonly #rows = new Map<string, { readonly of: Float32Array; readonly rows: Float32Array }>();
  /** Seconds spent in the runtime, summed over runs. */
  seconds = 0;
  runs = 0;

  readonly #giveBack: () => Promise<void>;
  /** Parameters on the device. */
  readonly #resident: ReadonlySet<string>;
  /** Whether any output stays on the device: the runtime then returns all others in new arrays. */
  readonly #leaves: boolean;

  private constructor(
    ort: typeof Ort,
    model: OnnxModel,
    session: Ort.InferenceSession,
    { resident, leaves }: { readonly resident: ReadonlySet<string>; readonly leaves: boolean },
    giveBack: () => Promise<void>,
  ) {
    this.#ort = ort;
    this.#resident = resident;
    this.#leaves = leaves;
    this.#model = model;
    this.#session = session;
    this.#giveBack = giveBack;
  }

  /**
   * Compiles the dependencies of `outputs`, or shares a session that `pool` has compiled for other sizes. Raises
   * EngineError if the provider is missing or refuses the graph.
   */
  static async compile(
    graph: Graph,
    outputs: Readonly<Record<string, Value>>,
    options: SessionOptions = {},
    pool?: SessionPool,
  ): Promise<Session> {
    const ort = await loadRuntime();
    const { frozen, anySize, owner } =
      pool === undefined
        ? { frozen: new Map() as WeightData, anySize: false, owner: new SessionPool() }
        : { frozen: pool.frozen, anySize: true, owner: pool };
    const start = performance.now();
    const model = toOnnx(graph, new Map(Object.entries(outputs)), {
      frozen: new Set(frozen.keys()),
      anySize,
      // On other devices they would be copied in addition to the parameter.
      feedsRows: (options.provider ?? 'cpu') === 'cpu',
      // WebGPU's kernel only takes vectors.
      sharedNorms: (options.provider ?? 'cpu') !== 'cpu',
      ...(options.halves === undefined ? {} : { halves: options.halves }),
    });
    const provider = options.provider ?? 'cpu';
    const { leaves } = options;
    const locations =
      leaves === undefined || !canKeepOnDevice(options) ? undefined : locationsOf(model.outputs.keys(), leaves);
    const compile = (): Promise<Ort.InferenceSession> =>
      ort.InferenceSession.create(model.bytes, {
        executionProviders: [onDevice(provider, options.device)],
        graphOptimizationLevel: 'all',
        // Otherwise the second run would allocate one block for all of its tensors, in addition to the single
        // allocations of the first run.
        enableMemPattern: false,
        executionMode: 'sequential',
        logSeverityLevel: 3,
        extra: SESSION_SETTINGS,
        externalData: [...model.packed.keys()].map((name) => ({
          path: packedFile(name),
          data: bytesOf(must(frozen.get(name), name).data),
        })),
        intraOpNumThreads: options.threads ?? allCores(),
        ...(locations === undefined ? {} : { preferredOutputLocation: locations }),
        ...(options.profilePrefix === undefined
          ? {}
          : { enableProfiling: true, profileFilePrefix: options.profilePrefix }),
      });
    try {
      const key = keyOf(model.bytes);
      const native = await owner.lend(key, compile);
      allCompileSeconds += (performance.now() - start) / 1000;
      const resident = provider === 'webgpu' ? (options.frozen ?? new Set<string>()) : new Set<string>();
      return new Session(ort, model, native, { resident, leaves: locations !== undefined }, () => owner.giveBack(key));
    } catch (cause) {
      const detail = cause instanceof Error ? cause.message : String(cause);
      throw new EngineError(`provider ${provider} cannot run graph ${graph.name}: ${detail}`, {
        next:
          provider === 'cpu'
            ? 'Report this with the listing of the graph.'
            : "Set policy.engine.provider to 'cpu', or run `editrl doctor`.",
        cause,
      });
    }
  }

  get inputs(): ReadonlyMap<string, ValueType> {
    return this.#model.inputs;
  }

  /** The parameters that runs read, whole or in parts. */
  get parameters(): ReadonlySet<string> {
    const { parameters, rows, halves } = this.#model;
    return new Set([
      ...parameters.keys(),
      ...[...rows.values()].map(({ parameter }) => parameter.name),
      ...[...halves.values()].map(({ parameter }) => parameter),
    ]);
  }

  get outputs(): ReadonlyMap<string, ValueType> {
    return this.#model.outputs;
  }

  /**
   * Runs once. `feeds` must have every input (except that of checkpoints, which is added here), `weights` every
   * parameter. Outputs are written into `into` if it has their names, otherwise into new arrays. Outputs in cells are
   * not returned. Raises EngineError for half precision on a device without support.
   */
  async run(
    feeds: Readonly<Record<string, TensorBinding>>,
    weights: RunWeights = new Map(),
    into: Readonly<Record<string, TensorBinding>> = {},
  ): Promise<Record<string, TensorData>> {
    const tensors: Record<string, Ort.Tensor> = {};
    for (const [name, type] of this.#model.inputs) {
      tensors[name] = this.#tensor(name, type, feeds[name] ?? (name === CHECKPOINT_INPUT ? KEEP : undefined));
    }
    const isResident = (name: string): boolean => this.#resident.has(name);
    for (const [name, type] of this.#model.parameters) {
      const held = weights.get(name);
      const binding = held instanceof TensorCell ? held : held?.data;
      const tensor = this.#tensor(name, type, binding);
      tensors[name] =
        isResident(name) && binding instanceof Float32Array ? await residentTensor(this.#ort, tensor, binding) : tensor;
    }
    for (const [name, input] of this.#model.halves) {
      const { tensor, halves } = this.#half(input, weights);
      tensors[name] = isResident(input.parameter) ? await residentTensor(this.#ort, tensor, halves) : tensor;
    }
    for (const [name, input] of this.#model.rows) {
      tensors[name] = this.#tensor(name, { dtype: 'float32', shape: input.shape }, this.#rowsOf(name, input, weights));
    }
    for (const [name, { type, data }] of this.#model.constants) tensors[name] = this.#tensor(name, type, data);
    const fetches: Record<string, Ort.Tensor | null> = {};
    for (const [name, type] of this.#model.outputs) {
      const given = into[name];
      fetches[outputName(name)] =
        given === undefined || given instanceof TensorCell ? null : this.#tensor(name, type, given);
    }
    const start = performance.now();
    busy.begin(start);
    const results = await this.#session
      .run(tensors, fetches)
      .catch(explain)
      .finally(() => busy.end(performance.now()));
    this.seconds += (performance.now() - start) / 1000;
    this.runs += 1;
    const out: Record<string, TensorData> = {};
    for (const name of this.#model.outputs.keys()) {
      const given = into[name];
      const result = results[outputName(name)];
      if (given instanceof TensorCell) {
        given.put(result);
        continue;
      }
      const data = result.data as TensorData;
      out[name] = given ?? data;
      if (given !== undefined && this.#leaves) (given as Float32Array).set(data as Float32Array);
    }
    return out;
  }

  /**
   * Frees the compiled session if no other session of the pool uses it. No run may be in progress. With profiling this
   * also writes the profile.
   */
  async dispose(): Promise<void> {
    await this.#giveBack();
  }

  #rowsOf(name: string, { parameter, first, shape }: RowsInput, weights: RunWeights): Float32Array {
    const held = must(weights.get(parameter.name), parameter.name);
    if (held instanceof TensorCell) throw new InternalError(`rows of ${parameter.name} are read from a cell`);
    const { data } = held;
    const known = this.#rows.get(name);
    if (known?.of === data) return known.rows;
    // Requested as a whole, so that another size is an error.
    this.#tensor(parameter.name, parameter, data);
    const start = first * sizeOf(shape.slice(1));
    const rows = data.subarray(start, start + sizeOf(shape));
    this.#rows.set(name, { of: data, rows });
    return rows;
  }

  #half(
    { parameter, shape }: HalfInput,
    weights: RunWeights,
  ): { readonly tensor: Ort.Tensor; readonly halves: Uint16Array } {
    const held = weights.get(parameter);
    if (!(held instanceof HalfTensor) || !sameShape(held.shape, shape)) {
      throw new InternalError(`${parameter} needs float16${formatShape(shape)}, but has another type or shape`);
    }
    let tensor = this.#wrapped.get(held.halves);
    if (tensor === undefined) {
      tensor = new this.#ort.Tensor('float16', held.halves, shape);
      // From Node 24 on, onnxruntime makes a Float16Array of the bits, which its native part reads as an empty array.
      Object.defineProperty(tensor, 'data', { value: held.halves });
      this.#wrapped.set(held.halves, tensor);
    }
    return { tensor, halves: held.halves };
  }

  #tensor(name: string, type: ValueType, binding: TensorBinding | undefined): Ort.Tensor {
    if (binding === undefined) {
      throw new InternalError(`input ${name} is missing: ${type.dtype}${formatShape(type.shape)}`);
    }
    const held = binding instanceof TensorCell ? binding.read(name, type) : { elements: binding };
    if ('tensor' in held) return held.tensor;
    const buffer = held.elements;
    if (!(buffer instanceof ARRAY_TYPE[type.dtype]) || buffer.length !== sizeOf(type.shape)) {
      throw new InternalError(
        `${name} needs ${type.dtype}${formatShape(type.shape)}, got ${buffer.constructor.name} of ${buffer.length}`,
      );
    }
    let tensor = this.#wrapped.get(buffer);
    if (tensor === undefined || !sameShape(tensor.dims, type.shape)) {
      tensor = new this.#ort.Tensor(type.dtype, buffer as Float32Array, type.shape);
      this.#wrapped.set(buffer, tensor);
    }
    return tensor;
  }
}

/** The location of each output of a session. */
function locationsOf(
  outputs: Iterable<string>,
  leaves: (output: string) => boolean,
): Record<string, 'gpu-buffer' | 'cpu'> {
  return Object.fromEntries([...outputs].map((name) => [outputName(name), leaves(name) ? 'gpu-buffer' : 'cpu']));
}

/**
 * Some devices do not support half precision, which only a graph's first run shows. Raises EngineError for these,
 * otherwise the given error.
 */
function explain(cause: unknown): never {
  if (!(cause instanceof Error) || !cause.message.includes('requires f16')) throw cause;
  throw new EngineError('this WebGPU device has no float16', { next: "Set policy.engine.dtype to 'float32'.", cause });
}

function bytesOf({ buffer, byteOffset, byteLength }: Float32Array): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength);
}

/** Session options from a config's engine section. `threads` replaces the section's own value unless it is 0. */
export function sessionOptions(
  engine: { readonly provider: string; readonly threads: number; readonly device?: number },
  threads = 0,
): SessionOptions {
  const provider = engine.provider === 'auto' ? 'cpu' : (engine.provider as 'cpu' | 'webgpu' | 'cuda');
  const requestedThreads = threads === 0 ? engine.threads : threads;
  const { device } = engine;
  return {
    provider,
    ...(device === undefined ? {} : { device }),
    ...(requestedThreads === 0 ? {} : { threads: requestedThreads }),
  };
}

/** The file in which Linux lists the threads that share a core. */
const SMT = '/sys/devices/system/cpu/smt/active';

let cores: number | null = null;

/**
 * The number of cores that this process may use. Two hyperthreads count as one. Sessions get this number because by
 * default the runtime pins its threads to one core each, starting with the machine's first core. The threads of two
 * processes would then share cores while others are idle, and would use cores outside the process's affinity.
 */
export function allCores(): number {
  cores ??= hyperthreaded() ? Math.ceil(availableParallelism() / 2) : availableParallelism();
  return cores;
}

function hyperthreaded(): boolean {
  try {
    return readFileSync(SMT, 'utf8').trim() === '1';
  } catch {
    // Another system, or a container that hides the file: every processor counts.
    return false;
  }
}

/** Weights by name. */
export type WeightData = ReadonlyMap<string, { readonly data: Float32Array }>;

/** Weights by name: elements, or the cells that contain them. */
export type RunWeights = ReadonlyMap<string, { readonly data: Float32Array } | TensorCell>;

interface Compiled {
  readonly native: Promise<Ort.InferenceSession>;
  users: number;
}

/**
 * Sessions of one pool leave their sizes open. Graphs that differ only in sizes are compiled once, and the compiled
 * session is freed with its last user. Products hold packed copies of frozen weights, which are made at compilation and
 * shared in the same way. Their results differ from unpacked products in the last bits.
 */
export class SessionPool {
  readonly #compiled = new Map<string, Compiled>();

  /** `frozen`: weights that never change between the first and the last use of a session of the pool. */
  constructor(readonly frozen: WeightData = new Map()) {}

  /** Lends the compiled session of a model, or compiles it. */
  async lend(key: string, compile: () => Promise<Ort.InferenceSession>): Promise<Ort.InferenceSession> {
    const entry = this.#compiled.get(key) ?? { native: compile(), users: 0 };
    this.#compiled.set(key, entry);
    entry.users += 1;
    try {
      return await entry.native;
    } catch (error) {
      // Others may have failed with it before and started over.
      if (this.#compiled.get(key) === entry) this.#compiled.delete(key);
      throw error;
    }
  }

  async giveBack(key: string): Promise<void> {
    const entry = must(this.#compiled.get(key), key);
    entry.users -= 1;
    if (entry.users > 0) return;
    this.#compiled.delete(key);
    const native = await entry.native;
    if ('endProfiling' in native) (native as { endProfiling(): void }).endProfiling();
    await native.release();
  }
}

/** Whether a session computes on the CPU. */
export function isOnCpu({ provider = 'cpu' }: { readonly provider?: string }): boolean {
  return provider === 'cpu';
}

/**
 * A pool for sessions with these options, each of which would otherwise hold the memory of its own largest run. There
 * is none on an accelerator, which would copy tensors that depend on sizes in every run.
 */
export function poolFor(options: { readonly provider?: string }, frozen?: WeightData): SessionPool | undefined {
  return isOnCpu(options) ? new SessionPool(frozen) : undefined;
}

/** Identifies a model. */
export function keyOf(model: Uint8Array): string {
  return createHash('sha256').update(model).digest('base64');
}
