/**
 * Writes a graph as an ONNX model, in passes over its values: what each is to the model, then its nodes by name, then their messages. Parameters
 * become model inputs, so that their buffers can change between runs. Constants become initializers, and equal ones are written once.
 */
import { InternalError, must } from '../../core/errors.js';
import { type Graph, type NodeOrigin, type OpType, type Shape, topological, type Value, type ValueType } from './ir.js';
import { type InfoMessage, type NodeMessage, printModel, type TensorMessage, widen } from './onnx_messages.js';
import { type OnnxForm, operators, type OperatorSpec } from './operators.js';
import { verifyGraph } from './verify.js';

type ConstantData = Float32Array | BigInt64Array | Uint8Array;

/** Inputs that are fed at every run although they never change: values that depend on sizes, if sizes are free. */
export interface ConstantInput {
  readonly type: ValueType;
  readonly data: ConstantData;
}

/** A model with the names that a session is fed with and asked for. */
export interface OnnxModel {
  readonly bytes: Uint8Array;
  readonly inputs: ReadonlyMap<string, ValueType>;
  readonly parameters: ReadonlyMap<string, ValueType>;
  /** Parameters that are initializers where a product reads them, in the external file `packedFile` of their name. */
  readonly packed: ReadonlyMap<string, ValueType>;
  /** Inputs that take parameters in half precision: each use of such a parameter has one of its own. */
  readonly halves: ReadonlyMap<string, HalfInput>;
  /** Inputs that take some rows of a parameter. */
  readonly rows: ReadonlyMap<string, RowsInput>;
  readonly constants: ReadonlyMap<string, ConstantInput>;
  readonly outputs: ReadonlyMap<string, ValueType>;
}

/** An input that is fed with a parameter in half precision. */
export interface HalfInput {
  readonly parameter: string;
  readonly shape: Shape;
}

/** An input that is fed with rows of a parameter, beginning with its row `first`. */
export interface RowsInput {
  readonly parameter: Value;
  readonly first: number;
  readonly shape: Shape;
}

export interface OnnxOptions {
  /** Parameters that never change: products hold them as initializers, which a runtime packs once; all else reads them as inputs. */
  readonly frozen?: ReadonlySet<string>;
  /**
   * Parameters that are fed in half precision, and widened to float32 right before each use: at most those that are used at the time exist in float32.
   * Nothing holds them as initializers.
   */
  readonly halves?: ReadonlySet<string>;
  /** Whether rows of a parameter are inputs, which are fed without a copy where a parameter lies in memory; else the graph cuts them out. */
  readonly feedsRows?: boolean;
  /** Whether the runtime normalises with one scale and shift for all samples alone: those of each sample are then applied in operators of their own. */
  readonly sharedNorms?: boolean;
  /**
   * Leaves every size of inputs, outputs and constants open: graphs that differ in sizes alone are then the same bytes, and differ in the
   * constants that they feed.
   */
  readonly anySize?: boolean;
}

/** Serializes what `outputs` depend on. Inputs and parameters that nothing depends on are left out. */
export function toOnnx(graph: Graph, outputs: ReadonlyMap<string, Value>, options: OnnxOptions = {}): OnnxModel {
  verifyGraph(graph, outputs);
  const values = topological([...outputs.values()]);
  const lowering = new Lowering(outputs, rolesOf(values, new Set(outputs.values()), options), options);
  for (const value of values) lowering.value(value);
  const printed = {
    name: options.anySize === true ? 'any size' : graph.name,
    outputs: [...outputs].map(([name, value]) => lowering.output(name, value)),
    nodes: [...lowering.widening, ...lowering.nodes],
    constants: lowering.initializers,
    inputs: lowering.declared,
  };
  const { inputs, parameters, packed, halves, rows, constants } = lowering;
  return { bytes: printModel(printed), inputs, parameters, packed, halves, rows, constants, outputs };
}

/**
 * What a computed value is to the model, if not a node of its own: a part of a parameter in half precision, which is cut anew for each use; rows of a
 * parameter, which are an input; or `folded`, a node that follows from frozen parameters alone, which a runtime computes once.
 */
type Role = 'cut' | 'rows' | 'folded';

const formOf = ({ op, inputs, attributes }: NodeOrigin): OnnxForm =>
  (operators[op] as OperatorSpec<OpType>).onnx?.(attributes, inputs) ?? {};

function rolesOf(values: readonly Value[], outputs: ReadonlySet<Value>, options: OnnxOptions): Map<Value, Role> {
  const { frozen, halves, feedsRows = false, anySize = false } = options;
  const roles = new Map<Value, Role>();
  const isFrozen = (value: Value): boolean =>
    value.origin.kind === 'parameter'
      ? frozen?.has(value.name) === true && halves?.has(value.name) !== true
      : roles.get(value) === 'folded';
  for (const value of values) {
    const { origin } = value;
    if (origin.kind !== 'node') continue;
    const [source] = origin.inputs;
    if (origin.op === 'Slice' && source.origin.kind === 'parameter' && !outputs.has(value)) {
      const { axis } = (origin as NodeOrigin<'Slice'>).attributes;
      const role = halves?.has(source.name) === true ? 'cut' : feedsRows && axis === 0 ? 'rows' : null;
      if (role !== null) {
        roles.set(value, role);
        continue;
      }
    }
    // What takes sizes that are fed is computed in every run.
    const isFixed = !anySize || (formOf(origin).sizes ?? []).length === 0;
    if (isFixed && origin.inputs.every(isFrozen)) roles.set(value, 'folded');
  }
  return roles;
}

/** Gives every value a name, and makes the messages that define it. */
class Lowering {
  readonly nodes: NodeMessage[] = [];
  /**
   * What widens parameters, before all other nodes: onnxruntime orders nodes from the outputs backwards, and of a node's inputs computes that of the
   * lowest place in the file last, which is right before the node.
   */
  readonly widening: NodeMessage[] = [];
  readonly declared: InfoMessage[] = [];
  readonly initializers: TensorMessage[] = [];
  readonly inputs = new Map<string, ValueType>();
  readonly parameters = new Map<string, ValueType>();
  readonly packed = new Map<string, ValueType>();
  readonly halves = new Map<string, HalfInput>();
  readonly rows = new Map<string, RowsInput>();
  readonly constants = new Map<string, ConstantInput>();
  readonly #names = new Map<Value, string>();
  /** For a computed value that is an output, the name of that output (the first one, if there are several). */
  readonly #outputNames = new Map<Value, string>();
  readonly #small = new Map<string, string>();
  /** For each scope of the graph, how many vectors of sizes its nodes have used. */
  readonly #sizesIn = new Map<string, number>();

  constructor(
    outputs: ReadonlyMap<string, Value>,
    private readonly roles: ReadonlyMap<Value, Role>,
    private readonly options: OnnxOptions,
  ) {
    for (const [output, value] of outputs) {
      if (value.origin.kind === 'node' && !this.#outputNames.has(value)) {
        this.#outputNames.set(value, outputName(output));
      }
    }
  }

  value(value: Value): void {
    const { origin } = value;
    if (origin.kind === 'constant') {
      const isFed = this.options.anySize === true && value.shape.length > 0;
      this.#names.set(value, isFed ? this.#fed(value, origin.data) : this.#initializer(value, bytesOf(origin.data)));
    } else if (origin.kind === 'input') {
      this.#declareInput(value, value.name, value);
      this.inputs.set(value.name, value);
    } else if (origin.kind === 'node') this.#node(value, origin);
  }

  /** A computed value is made under its output's name; any other, such as an input or a second name, goes through Identity. */
  output(output: string, value: Value): InfoMessage {
    const name = outputName(output);
    if (this.#outputNames.get(value) !== name) {
      this.nodes.push({ op: 'Identity', inputs: [this.#nameOf(value)], output: name });
    }
    return { name, dtype: value.dtype, sizes: this.#sizes(value.shape) };
  }

  #node(value: Value, origin: NodeOrigin): void {
    const role = this.roles.get(value);
    if (role === 'cut') return;
    const { op, inputs } = origin;
    if (role === 'rows') {
      const name = `${inputs[0].name}@rows${this.rows.size}`;
      const { start } = (origin as NodeOrigin<'Slice'>).attributes;
      this.rows.set(name, { parameter: inputs[0], first: start, shape: value.shape });
      this.#declareInput(value, name, value);
      return;
    }
    const output = this.#outputNames.get(value) ?? `v${value.name}`;
    this.#names.set(value, output);
    // The rows that are looked up are widened, not the table.
    const looksUp = op === 'Gather' && inputs[0].origin.kind === 'parameter' && this.#isHalf(inputs[0]);
    const names = inputs.map((input, i) => {
      if (looksUp && i === 0) return this.#halfInput(input);
      return this.#isHeld(origin, role, i) ? this.#heldName(input) : this.#nameOf(input);
    });
    if (op === 'LayerNormalization' && this.options.sharedNorms === true && inputs[1].shape.length > 1) {
      this.#normalizeThenScale(value, origin, names, output);
    } else if (looksUp) {
      this.nodes.push(this.#operator(value, origin, names, `${output}@half`), widen(`${output}@half`, output));
    } else this.nodes.push(this.#operator(value, origin, names, output));
  }

  /** A normalization whose scale and shift are applied after it. */
  #normalizeThenScale(value: Value, origin: NodeOrigin, [x, scale, shift]: readonly string[], output: string): void {
    const width = must(value.shape.at(-1), 'a width');
    const all = (number: number): string =>
      this.#initializer({ shape: [width], dtype: 'float32' }, bytesOf(new Float32Array(width).fill(number)));
    const [normal, scaled] = [`${output}@normal`, `${output}@scaled`];
    this.nodes.push(
      this.#operator(value, origin, [x, all(1), all(0)], normal),
      { op: 'Mul', inputs: [normal, scale], output: scaled },
      { op: 'Add', inputs: [scaled, shift], output },
    );
  }

  #operator(
    value: Value,
    origin: NodeOrigin,
    names: readonly string[],
    output: string,
    name = value.name,
  ): NodeMessage {
    const form = formOf(origin);
    const integers = (all: readonly number[]): string =>
      this.#initializer({ shape: [all.length], dtype: 'int64' }, bytesOf(BigInt64Array.from(all, BigInt)));
    const sizes = (form.sizes ?? []).map((one) =>
      this.options.anySize === true ? this.#fedSizes(value, one) : integers(one),
    );
    const inputs = [...names, ...sizes, ...(form.extraInputs ?? []).map(integers)];
    return { op: origin.op, name: `${origin.op}:${name}`, inputs, output, form };
  }

  /** Whether the model holds what a node reads as its input `i`: a product's right factor, and what a runtime computes once of such. */
  #isHeld({ op, inputs }: NodeOrigin, role: Role | undefined, i: number): boolean {
    const { origin, name } = inputs[i];
    if (origin.kind !== 'parameter' || this.options.frozen?.has(name) !== true || this.#isHalf(inputs[i])) return false;
    return role === 'folded' || ((op === 'Gemm' || op === 'MatMul') && i === 1);
  }

  #isHalf(value: Value): boolean {
    if (value.origin.kind !== 'parameter') return this.roles.get(value) === 'cut';
    return this.options.halves?.has(value.name) === true;
  }

  /**
   * The name of a half-precision parameter's input for one use. Each use has another, so that a runtime cannot share what was widened for one with a
   * later one, and has to keep it until then.
   */
  #halfInput({ name, shape }: Value): string {
    const input = `${name}@${this.halves.size}`;
    this.halves.set(input, { parameter: name, shape });
    this.declared.push({ name: input, dtype: 'float16', sizes: shape });
    return input;
  }

  /** The name of a half-precision parameter or a part of one, widened for one use. */
  #widened(value: Value): string {
    const { origin } = value;
    const input = this.#halfInput(origin.kind === 'node' ? origin.inputs[0] : value);
    const half = origin.kind === 'node' ? `${input}@part` : input;
    if (origin.kind === 'node') this.widening.push(this.#operator(value, origin, [input], half, half));
    this.widening.push(widen(half, `${input}@wide`));
    return `${input}@wide`;
  }

  #nameOf(value: Value): string {
    const known = this.#names.get(value);
    if (known !== undefined) return known;
    if (this.#isHalf(value)) return this.#widened(value);
    if (value.origin.kind !== 'parameter') throw new InternalError(`${String(value)} is written before it is made`);
    this.#names.set(value, value.name);
    this.parameters.set(value.name, value);
    this.declared.push({ name: value.name, dtype: value.dtype, sizes: value.shape });
    return value.name;
  }

  /** The name of a frozen parameter as an initializer. */
  #heldName(value: Value): string {
    const name = packedFile(value.name);
    if (!this.packed.has(value.name)) this.initializers.push({ name, type: value, bytes: null });
    this.packed.set(value.name, value);
    return name;
  }

  #sizes(shape: Shape): readonly (number | null)[] {
    return this.options.anySize === true ? shape.map(() => null) : shape;
  }

  /** Makes a value an input of the model. */
  #declareInput(value: Value, name: string, { dtype, shape }: ValueType): void {
    this.#names.set(value, name);
    this.declared.push({ name, dtype, sizes: this.#sizes(shape) });
  }

  #fed(type: ValueType, data: ConstantData): string {
    const name = `fed:${this.constants.size}`;
    this.constants.set(name, { type, data });
    this.declared.push({ name, dtype: type.dtype, sizes: this.#sizes(type.shape) });
    return name;
  }

  /** Blocks that repeat take the same sizes in the same places; each such place is fed once for all of them. */
  #fedSizes(value: Value, sizes: readonly number[]): string {
    const scope = value.name.slice(0, Math.max(0, value.name.lastIndexOf('.')));
    const place = this.#sizesIn.get(scope) ?? 0;
    this.#sizesIn.set(scope, place + 1);
    const key = `${scope.replaceAll(/\d+/g, '#')}|${place}|${sizes.join(',')}`;
    const name =
      this.#small.get(key) ?? this.#fed({ shape: [sizes.length], dtype: 'int64' }, BigInt64Array.from(sizes, BigInt));
    this.#small.set(key, name);
    return name;
  }

  #initializer(type: ValueType, bytes: Uint8Array): string {
    const key =
      bytes.length > 256 ? null : `${type.dtype}|${type.shape.join(',')}|${Buffer.from(bytes).toString('base64')}`;
    const known = key === null ? undefined : this.#small.get(key);
    if (known !== undefined) return known;
    const name = `c${this.initializers.length - this.packed.size}`;
    if (key !== null) this.#small.set(key, name);
    this.initializers.push({ name, type, bytes });
    return name;
  }
}

function bytesOf({ buffer, byteOffset, byteLength }: ConstantData): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength);
}

/** The name that a packed parameter has as an initializer, and of the external file that holds it. */
export function packedFile(parameter: string): string {
  return `packed:${parameter}`;
}

/** The name of an output in the model; the prefix distinguishes it from inputs with the same name. */
export function outputName(name: string): string {
  return `out:${name}`;
}
