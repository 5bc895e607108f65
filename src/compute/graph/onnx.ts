/**
 * Writes a graph as an ONNX model, in passes over its values: the role of each value, then node names, then messages.
 * Parameters become model inputs, so that their buffers can change between runs. Constants become initializers, and
 * equal ones are written once.
 */
import { InternalError, must } from '../../core/errors.js';
import { type Graph, type NodeOrigin, type OpType, type Shape, topological, type Value, type ValueType } from './ir.js';
import { type InfoMessage, type NodeMessage, printModel, type TensorMessage, widen } from './onnx_messages.js';
import { type OnnxForm, operators, type OperatorSpec } from './operators.js';
import { verifyGraph } from './verify.js';

type ConstantData = Float32Array | BigInt64Array | Uint8Array;

/** Inputs with the same value in every run: values that depend on sizes, if sizes are free. */
export interface ConstantInput {
  readonly type: ValueType;
  readonly data: ConstantData;
}

/** A model with the names of its session's inputs and outputs. */
export interface OnnxModel {
  readonly bytes: Uint8Array;
  readonly inputs: ReadonlyMap<string, ValueType>;
  readonly parameters: ReadonlyMap<string, ValueType>;
  /** Parameters that a product reads as initializers, from the external file `packedFile` of their name. */
  readonly packed: ReadonlyMap<string, ValueType>;
  /** Inputs for parameters in half precision. Each use of such a parameter has its own input. */
  readonly halves: ReadonlyMap<string, HalfInput>;
  /** Inputs for some rows of a parameter. */
  readonly rows: ReadonlyMap<string, RowsInput>;
  readonly constants: ReadonlyMap<string, ConstantInput>;
  readonly outputs: ReadonlyMap<string, ValueType>;
}

/** An input for a parameter in half precision. */
export interface HalfInput {
  readonly parameter: string;
  readonly shape: Shape;
}

/** An input for rows of a parameter, starting at row `first`. */
export interface RowsInput {
  readonly parameter: Value;
  readonly first: number;
  readonly shape: Shape;
}

export interface OnnxOptions {
  /**
   * Parameters that never change. Products read them as initializers, which a runtime packs once. Other operators read
   * them as inputs.
   */
  readonly frozen?: ReadonlySet<string>;
  /**
   * Parameters in half precision, which are widened to float32 directly before each use. Only those in use exist in
   * float32. No initializer holds them.
   */
  readonly halves?: ReadonlySet<string>;
  /**
   * Whether rows of a parameter are inputs, which need no copy if the parameter is in memory. Otherwise the graph
   * slices the parameter.
   */
  readonly feedsRows?: boolean;
  /**
   * Whether the runtime normalizes only with one scale and shift for all samples. Scales and shifts of each sample are
   * then separate operators.
   */
  readonly sharedNorms?: boolean;
  /**
   * Leaves every size of inputs, outputs and constants open. Graphs that differ only in sizes then have the same bytes,
   * and differ in the constants of their runs.
   */
  readonly anySize?: boolean;
}

/** Serializes the dependencies of `outputs`. Other inputs and parameters are left out. */
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
 * The role of a computed value that is not an ordinary node. `cut`: a part of a half-precision parameter, sliced again for
 * each use. `rows`: rows of a parameter, which are an input. `folded`: a node that depends only on frozen parameters, which
 * a runtime computes once.
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
    // Values that depend on free sizes are computed in every run.
    const isFixed = !anySize || (formOf(origin).sizes ?? []).length === 0;
    if (isFixed && origin.inputs.every(isFrozen)) roles.set(value, 'folded');
  }
  return roles;
}

/** Gives every value a name, and makes the messages that define it. */
class Lowering {
  readonly nodes: NodeMessage[] = [];
  /**
   * The nodes that widen parameters, before all other nodes. onnxruntime orders nodes from the outputs backwards, and
   * computes last the input with the lowest place in the file, which is directly before the node.
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

  /**
   * A computed value takes its output's name. Any other value, such as an input or a second name, goes through
   * Identity.
   */
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
    // Widens the gathered rows, not the table.
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

  /**
   * Whether the model holds input `i` of a node: a product's right factor, and values that a runtime computes once from
   * one.
   */
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
   * The name of a half-precision parameter's input for one use. Each use has its own name, so that a runtime cannot
   * share a widened copy between uses and keep it in memory.
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

  /** Repeated blocks use the same sizes in the same places, so each such place has one input for all blocks. */
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

/** The name of a packed parameter's initializer and of its external file. */
export function packedFile(parameter: string): string {
  return `packed:${parameter}`;
}

/** The name of an output in the model. The prefix distinguishes it from inputs of the same name. */
export function outputName(name: string): string {
  return `out:${name}`;
}
