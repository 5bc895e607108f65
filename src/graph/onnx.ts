/**
 * Writes a graph as an ONNX model (onnx/onnx, onnx.proto). Parameters become model inputs, so that their buffers can change
 * between runs; constants become initializers, equal ones are written once.
 */
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import { InternalError } from '../core/errors.js';
import type { OpType } from './attributes.js';
import type { Dtype, Graph, NodeOrigin, Shape, Value, ValueType } from './ir.js';
import { sizeOf, topological } from './ir.js';
import type { OnnxForm, OperatorSpec } from './operators/spec.js';
import { operators } from './operators/table.js';
import { verifyGraph } from './verify.js';

const IR_VERSION = 10;
const OPSET = 23;

const ELEMENT_TYPE: Readonly<Record<Dtype, number>> = { float32: 1, int64: 7, bool: 9 };
const ATTRIBUTE = { float: 1, int: 2, text: 3, ints: 7 } as const;

/** A model with the names that a session is fed with and asked for. */
export interface OnnxModel {
  readonly bytes: Uint8Array;
  readonly inputs: ReadonlyMap<string, ValueType>;
  readonly parameters: ReadonlyMap<string, ValueType>;
  readonly outputs: ReadonlyMap<string, ValueType>;
}

/** Serialises what `outputs` depend on. Inputs and parameters that nothing depends on are left out. */
export function toOnnx(graph: Graph, outputs: ReadonlyMap<string, Value>): OnnxModel {
  verifyGraph(graph, outputs);
  const writer = new GraphWriter(graph.name, outputs);
  const inputs = new Map<string, ValueType>();
  const parameters = new Map<string, ValueType>();
  for (const value of topological([...outputs.values()])) {
    const { origin } = value;
    if (origin.kind === 'constant') writer.constant(value, origin.data);
    else if (origin.kind === 'node') writer.node(value, origin);
    else {
      writer.input(value);
      (origin.kind === 'input' ? inputs : parameters).set(value.name, value);
    }
  }
  for (const [name, value] of outputs) writer.output(name, value);
  return { bytes: model(writer.finish()), inputs, parameters, outputs };
}

type Message = (writer: BinaryWriter) => void;

function message(writer: BinaryWriter, field: number, write: Message): void {
  writer.tag(field, WireType.LengthDelimited).fork();
  write(writer);
  writer.join();
}

function text(writer: BinaryWriter, field: number, value: string): void {
  writer.tag(field, WireType.LengthDelimited).string(value);
}

function integer(writer: BinaryWriter, field: number, value: number): void {
  writer.tag(field, WireType.Varint).int64(value);
}

function model(graph: Uint8Array): Uint8Array {
  const writer = new BinaryWriter();
  integer(writer, 1, IR_VERSION);
  text(writer, 2, 'editrl');
  writer.tag(7, WireType.LengthDelimited).bytes(graph);
  message(writer, 8, (opset) => {
    text(opset, 1, '');
    integer(opset, 2, OPSET);
  });
  return writer.finish();
}

class GraphWriter {
  readonly #writer = new BinaryWriter();
  readonly #names = new Map<Value, string>();
  readonly #constants = new Map<string, string>();
  #next = 0;

  /** For a computed value that is an output, the name of that output (the first, if it is several). */
  readonly #outputNames = new Map<Value, string>();

  constructor(name: string, outputs: ReadonlyMap<string, Value>) {
    text(this.#writer, 2, name);
    for (const [output, value] of outputs) {
      if (value.origin.kind === 'node' && !this.#outputNames.has(value)) {
        this.#outputNames.set(value, outputName(output));
      }
    }
  }

  finish(): Uint8Array {
    return this.#writer.finish();
  }

  constant(value: Value, data: Float32Array | BigInt64Array | Uint8Array): void {
    this.#names.set(value, this.#initializer(value, new Uint8Array(data.buffer, data.byteOffset, data.byteLength)));
  }

  input(value: Value): void {
    this.#names.set(value, value.name);
    message(this.#writer, 11, (writer) => valueInfo(writer, value.name, value));
  }

  /** A computed value is made under its output's name; any other, such as an input or a second name, goes through Identity. */
  output(name: string, value: Value): void {
    message(this.#writer, 12, (writer) => valueInfo(writer, outputName(name), value));
    if (this.#outputNames.get(value) === outputName(name)) return;
    message(this.#writer, 1, (writer) => {
      text(writer, 1, this.#nameOf(value));
      text(writer, 2, outputName(name));
      text(writer, 4, 'Identity');
    });
  }

  node(value: Value, { op, inputs, attributes }: NodeOrigin): void {
    const form: OnnxForm = (operators[op] as OperatorSpec<OpType>).onnx?.(attributes, inputs) ?? {};
    const names = inputs.map((input) => this.#nameOf(input));
    for (const extra of form.extraInputs ?? []) names.push(this.#integers(extra));
    const output = this.#outputNames.get(value) ?? `v${value.name}`;
    this.#names.set(value, output);
    message(this.#writer, 1, (writer) => {
      for (const name of names) text(writer, 1, name);
      text(writer, 2, output);
      text(writer, 3, `${op}:${value.name}`);
      text(writer, 4, op);
      for (const [name, x] of Object.entries(form.attributes ?? {})) {
        message(writer, 5, (attribute) => {
          text(attribute, 1, name);
          if (typeof x === 'number') integer(attribute, 3, x);
          else for (const element of x) integer(attribute, 8, element);
          integer(attribute, 20, typeof x === 'number' ? ATTRIBUTE.int : ATTRIBUTE.ints);
        });
      }
      for (const [name, x] of Object.entries(form.textAttributes ?? {})) {
        message(writer, 5, (attribute) => {
          text(attribute, 1, name);
          text(attribute, 4, x);
          integer(attribute, 20, ATTRIBUTE.text);
        });
      }
      for (const [name, x] of Object.entries(form.floatAttributes ?? {})) {
        message(writer, 5, (attribute) => {
          text(attribute, 1, name);
          attribute.tag(2, WireType.Bit32).float(x);
          integer(attribute, 20, ATTRIBUTE.float);
        });
      }
    });
  }

  #nameOf(value: Value): string {
    const name = this.#names.get(value);
    if (name === undefined) throw new InternalError(`${String(value)} is written before it is made`);
    return name;
  }

  #integers(values: readonly number[]): string {
    const data = BigInt64Array.from(values, BigInt);
    return this.#initializer({ shape: [values.length], dtype: 'int64' }, new Uint8Array(data.buffer));
  }

  #initializer(type: ValueType, bytes: Uint8Array): string {
    const small = bytes.length <= 256;
    const key = `${type.dtype}|${type.shape.join(',')}|${Buffer.from(bytes.buffer, bytes.byteOffset, small ? bytes.length : 0).toString('base64')}`;
    const known = small ? this.#constants.get(key) : undefined;
    if (known !== undefined) return known;
    const name = `c${this.#next++}`;
    if (small) this.#constants.set(key, name);
    message(this.#writer, 5, (writer) => {
      for (const size of type.shape) integer(writer, 1, size);
      integer(writer, 2, ELEMENT_TYPE[type.dtype]);
      text(writer, 8, name);
      if (sizeOf(type.shape) > 0) writer.tag(9, WireType.LengthDelimited).bytes(bytes);
    });
    return name;
  }
}

/** What an output is called in the model; the prefix keeps it apart from inputs of the same name. */
export function outputName(name: string): string {
  return `out:${name}`;
}

function valueInfo(writer: BinaryWriter, name: string, type: ValueType): void {
  text(writer, 1, name);
  message(writer, 2, (typeProto) =>
    message(typeProto, 1, (tensor) => {
      integer(tensor, 1, ELEMENT_TYPE[type.dtype]);
      message(tensor, 2, (shape) => writeShape(shape, type.shape));
    }),
  );
}

function writeShape(writer: BinaryWriter, shape: Shape): void {
  for (const size of shape) message(writer, 1, (dim) => integer(dim, 1, size));
}
