/**
 * Writes a graph as an ONNX model (onnx/onnx, onnx.proto). Parameters become model inputs, so that their buffers can change
 * between runs; constants become initializers, equal ones are written once.
 */
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import { InternalError, must } from '../../core/errors.js';
import {
  type Graph,
  type NodeOrigin,
  type OpType,
  type Shape,
  sizeOf,
  topological,
  type Value,
  type ValueType,
} from './ir.js';
import {
  EXTERNAL,
  integer,
  message,
  model,
  operatorNode,
  plainNode,
  tensor,
  text,
  valueInfo,
  widen,
} from './onnx_messages.js';
import { type OnnxForm, operators, type OperatorSpec } from './operators.js';
import { verifyGraph } from './verify.js';

type ConstantData = Float32Array | BigInt64Array | Uint8Array;

/** Inputs that are fed at every run although they never change: values that depend on sizes, if sizes are free. */
export interface FedConstant {
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
  readonly constants: ReadonlyMap<string, FedConstant>;
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
  /**
   * The elements of every parameter: the model then holds them as initializers and calls its outputs by their own names, as files for other
   * programs do. No output may have an input's name.
   */
  readonly standalone?: ReadonlyMap<string, { readonly data: Float32Array }>;
}

/** Serialises what `outputs` depend on. Inputs and parameters that nothing depends on are left out. */
export function toOnnx(graph: Graph, outputs: ReadonlyMap<string, Value>, options: OnnxOptions = {}): OnnxModel {
  verifyGraph(graph, outputs);
  const writer = new GraphWriter(options.anySize === true ? 'any size' : graph.name, outputs, options);
  const inputs = new Map<string, ValueType>();
  const values = topological([...outputs.values()]);
  for (const value of values) {
    const { origin } = value;
    if (origin.kind === 'constant') writer.constant(value, origin.data);
    else if (origin.kind === 'node') writer.node(value, origin);
    else if (origin.kind === 'input') {
      writer.input(value);
      inputs.set(value.name, value);
    }
  }
  for (const [name, value] of outputs) writer.output(name, value);
  const { parameters, packed, halves, rows, constants } = writer;
  return { bytes: model(writer.finish()), inputs, parameters, packed, halves, rows, constants, outputs };
}

class GraphWriter {
  readonly #writer = new BinaryWriter();
  /**
   * What widens parameters, before all other nodes: onnxruntime orders nodes from the outputs backwards, and of a node's inputs computes that of the
   * lowest place in the file last, which is right before the node.
   */
  readonly #widening = new BinaryWriter();
  readonly #names = new Map<Value, string>();
  readonly #small = new Map<string, string>();
  readonly parameters = new Map<string, ValueType>();
  readonly packed = new Map<string, ValueType>();
  readonly halves = new Map<string, HalfInput>();
  readonly rows = new Map<string, RowsInput>();
  readonly constants = new Map<string, FedConstant>();
  readonly #frozen: ReadonlySet<string>;
  readonly #halfParameters: ReadonlySet<string>;
  /** Parts of parameters in half precision, which are cut anew for each use. */
  readonly #cuts = new Map<Value, NodeOrigin>();
  /** Values that follow from frozen parameters alone. */
  readonly #folded = new Set<Value>();
  readonly #feedsRows: boolean;
  readonly #sharedNorms: boolean;
  readonly #anySize: boolean;
  /** For each scope of the graph, how many vectors of sizes its nodes have used. */
  readonly #sizesIn = new Map<string, number>();
  #next = 0;

  /** For a computed value that is an output, the name of that output (the first one, if there are several). */
  readonly #outputNames = new Map<Value, string>();

  readonly #standalone: OnnxOptions['standalone'];

  constructor(name: string, outputs: ReadonlyMap<string, Value>, options: OnnxOptions) {
    const { frozen = new Set(), halves = new Set(), anySize = false, standalone } = options;
    const { feedsRows = false, sharedNorms = false } = options;
    this.#frozen = frozen;
    this.#halfParameters = halves;
    this.#feedsRows = feedsRows;
    this.#sharedNorms = sharedNorms;
    this.#anySize = anySize;
    this.#standalone = standalone;
    text(this.#writer, 2, name);
    for (const [output, value] of outputs) {
      if (value.origin.kind === 'node' && !this.#outputNames.has(value)) {
        this.#outputNames.set(value, this.#nameOfOutput(output));
      }
    }
  }

  finish(): Uint8Array {
    return Buffer.concat([this.#widening.finish(), this.#writer.finish()]);
  }

  #nameOfOutput(name: string): string {
    return this.#standalone === undefined ? outputName(name) : name;
  }

  constant(value: Value, data: ConstantData): void {
    const fed = this.#anySize && value.shape.length > 0;
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    this.#names.set(value, fed ? this.#fed(value, data) : this.#initializer(value, bytes));
  }

  input(value: Value): void {
    this.#names.set(value, value.name);
    this.#declareInput(value.name, value, this.#anySize);
  }

  /** A computed value is made under its output's name; any other, such as an input or a second name, goes through Identity. */
  output(name: string, value: Value): void {
    const { shape } = value;
    message(this.#writer, 12, (writer) =>
      valueInfo(writer, this.#nameOfOutput(name), value.dtype, this.#anySize ? shape.map(() => null) : shape),
    );
    if (this.#outputNames.get(value) === this.#nameOfOutput(name)) return;
    // Before the node is begun: the name may be that of an input, which is declared beside it.
    const read = this.#nameOf(value);
    plainNode(this.#writer, 'Identity', [read], this.#nameOfOutput(name));
  }

  node(value: Value, origin: NodeOrigin): void {
    const { op, inputs } = origin;
    if (op === 'Slice' && inputs[0].origin.kind === 'parameter' && !this.#outputNames.has(value)) {
      if (this.#isHalf(inputs[0])) {
        this.#cuts.set(value, origin);
        return;
      }
      if (this.#feedsRows && this.#readsRows(value, origin as NodeOrigin<'Slice'>)) return;
    }
    const form: OnnxForm = (operators[op] as OperatorSpec<OpType>).onnx?.(origin.attributes, inputs) ?? {};
    // What takes sizes that are fed is computed in every run.
    const isFixed = !this.#anySize || (form.sizes ?? []).length === 0;
    if (isFixed && inputs.every((input) => this.#isFrozen(input))) this.#folded.add(value);
    const output = this.#outputNames.get(value) ?? `v${value.name}`;
    this.#names.set(value, output);
    // The rows that are looked up are widened, not the table.
    const looksUp = op === 'Gather' && inputs[0].origin.kind === 'parameter' && this.#isHalf(inputs[0]);
    const names = inputs.map((input, i) => {
      if (looksUp && i === 0) return this.#halfInput(input);
      return this.#isHeld(value, i) ? this.#heldName(input) : this.#nameOf(input);
    });
    if (op === 'LayerNormalization' && this.#sharedNorms && inputs[1].shape.length > 1) {
      this.#normaliseThenScale(value, origin, names, output);
      return;
    }
    const made = looksUp ? `${output}@half` : output;
    this.#write(this.#writer, value, origin, { names, output: made, name: value.name });
    if (looksUp) widen(this.#writer, made, output);
  }

  /** Writes a normalisation whose scale and shift are applied after it. */
  #normaliseThenScale(value: Value, origin: NodeOrigin, [x, scale, shift]: readonly string[], output: string): void {
    const width = must(value.shape.at(-1), 'a width');
    const all = (number: number): string => {
      const { buffer } = new Float32Array(width).fill(number);
      return this.#initializer({ shape: [width], dtype: 'float32' }, new Uint8Array(buffer));
    };
    const [normal, scaled] = [`${output}@normal`, `${output}@scaled`];
    this.#write(this.#writer, value, origin, { names: [x, all(1), all(0)], output: normal, name: value.name });
    plainNode(this.#writer, 'Mul', [normal, scale], scaled);
    plainNode(this.#writer, 'Add', [scaled, shift], output);
  }

  /** Makes rows of a parameter an input; false if they are not whole rows. */
  #readsRows(value: Value, { inputs: [parameter], attributes: { axis, start } }: NodeOrigin<'Slice'>): boolean {
    if (axis !== 0) return false;
    const name = `${parameter.name}@rows${this.rows.size}`;
    this.rows.set(name, { parameter, first: start, shape: value.shape });
    this.#names.set(value, name);
    this.#declareInput(name, value, this.#anySize);
    return true;
  }

  #write(
    target: BinaryWriter,
    value: Value,
    { op, inputs, attributes }: NodeOrigin,
    { names, output, name }: { readonly names: string[]; readonly output: string; readonly name: string },
  ): void {
    const form: OnnxForm = (operators[op] as OperatorSpec<OpType>).onnx?.(attributes, inputs) ?? {};
    for (const sizes of form.sizes ?? []) {
      names.push(this.#anySize ? this.#fedSizes(value, sizes) : this.#integers(sizes));
    }
    for (const extra of form.extraInputs ?? []) names.push(this.#integers(extra));
    operatorNode(target, { op, name: `${op}:${name}`, inputs: names, output }, form);
  }

  /** Whether a value follows from frozen parameters alone. */
  #isFrozen(value: Value): boolean {
    if (value.origin.kind === 'parameter') return this.#frozen.has(value.name) && !this.#isHalf(value);
    return this.#folded.has(value);
  }

  /** Whether the model holds what a node reads as its input `i`: a product's right factor, and what a runtime computes once of such. */
  #isHeld(node: Value, i: number): boolean {
    const { op, inputs } = node.origin as NodeOrigin;
    if (inputs[i].origin.kind !== 'parameter' || !this.#isFrozen(inputs[i])) return false;
    return this.#folded.has(node) || ((op === 'Gemm' || op === 'MatMul') && i === 1);
  }

  #isHalf(value: Value): boolean {
    return value.origin.kind === 'parameter' ? this.#halfParameters.has(value.name) : this.#cuts.has(value);
  }

  /**
   * The name of a half-precision parameter's input for one use. Each use has another, so that a runtime cannot share what was widened for one with a
   * later one, and has to keep it until then.
   */
  #halfInput({ name, shape }: Value): string {
    const input = `${name}@${this.halves.size}`;
    this.halves.set(input, { parameter: name, shape });
    message(this.#writer, 11, (writer) => valueInfo(writer, input, 'float16', shape));
    return input;
  }

  /** The name of a half-precision parameter or a part of one, widened for one use. */
  #widened(value: Value): string {
    const cut = this.#cuts.get(value);
    const input = this.#halfInput(cut === undefined ? value : cut.inputs[0]);
    const half = cut === undefined ? input : `${input}@part`;
    if (cut !== undefined) this.#write(this.#widening, value, cut, { names: [input], output: half, name: half });
    widen(this.#widening, half, `${input}@wide`);
    return `${input}@wide`;
  }

  #nameOf(value: Value): string {
    const name = this.#names.get(value);
    if (name !== undefined) return name;
    if (this.#isHalf(value)) return this.#widened(value);
    if (value.origin.kind !== 'parameter') throw new InternalError(`${String(value)} is written before it is made`);
    if (this.#standalone !== undefined) {
      const { data } = must(this.#standalone.get(value.name), value.name);
      const name = this.#initializer(value, new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
      this.#names.set(value, name);
      return name;
    }
    this.#names.set(value, value.name);
    this.parameters.set(value.name, value);
    this.#declareInput(value.name, value, false);
    return value.name;
  }

  /** The name of a frozen parameter as an initializer. */
  #heldName(value: Value): string {
    const name = packedFile(value.name);
    if (this.packed.has(value.name)) return name;
    this.packed.set(value.name, value);
    message(this.#writer, 5, (writer) => {
      tensor(writer, value, name);
      message(writer, 13, (entry) => {
        text(entry, 1, 'location');
        text(entry, 2, name);
      });
      integer(writer, 14, EXTERNAL);
    });
    return name;
  }

  #declareInput(name: string, { dtype, shape }: ValueType, anySize: boolean): void {
    message(this.#writer, 11, (writer) => valueInfo(writer, name, dtype, anySize ? shape.map(() => null) : shape));
  }

  #fed(type: ValueType, data: ConstantData): string {
    const name = `fed:${this.constants.size}`;
    this.constants.set(name, { type, data });
    this.#declareInput(name, type, true);
    return name;
  }

  /** Blocks that repeat take the same sizes in the same places; each such place is fed once for all of them. */
  #fedSizes(value: Value, sizes: readonly number[]): string {
    const scope = value.name.slice(0, Math.max(0, value.name.lastIndexOf('.')));
    const place = this.#sizesIn.get(scope) ?? 0;
    this.#sizesIn.set(scope, place + 1);
    const key = `${scope.replaceAll(/\d+/g, '#')}|${place}|${sizes.join(',')}`;
    const known = this.#small.get(key);
    if (known !== undefined) return known;
    const name = this.#fed({ shape: [sizes.length], dtype: 'int64' }, BigInt64Array.from(sizes, BigInt));
    this.#small.set(key, name);
    return name;
  }

  #integers(values: readonly number[]): string {
    const data = BigInt64Array.from(values, BigInt);
    return this.#initializer({ shape: [values.length], dtype: 'int64' }, new Uint8Array(data.buffer));
  }

  #initializer(type: ValueType, bytes: Uint8Array): string {
    const small = bytes.length <= 256;
    const key = `${type.dtype}|${type.shape.join(',')}|${Buffer.from(bytes.buffer, bytes.byteOffset, small ? bytes.length : 0).toString('base64')}`;
    const known = small ? this.#small.get(key) : undefined;
    if (known !== undefined) return known;
    const name = `c${this.#next++}`;
    if (small) this.#small.set(key, name);
    message(this.#writer, 5, (writer) => {
      tensor(writer, type, name);
      if (sizeOf(type.shape) > 0) writer.tag(9, WireType.LengthDelimited).bytes(bytes);
    });
    return name;
  }
}

/** The name that a packed parameter has as an initializer, and of the external file that holds it. */
export function packedFile(parameter: string): string {
  return `packed:${parameter}`;
}

/** The name of an output in the model; the prefix distinguishes it from inputs with the same name. */
export function outputName(name: string): string {
  return `out:${name}`;
}
