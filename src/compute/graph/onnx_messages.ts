/** Prints an ONNX model (onnx/onnx, onnx.proto). */
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import { type Dtype, sizeOf, type ValueType } from './ir.js';
import type { OnnxForm } from './operators.js';

const IR_VERSION = 10;
const OPSET = 23;

/** The numbers of element types. */
const ELEMENT_TYPE: Readonly<Record<Dtype | 'float16', number>> = { float32: 1, int64: 7, bool: 9, float16: 10 };
/** The location of a tensor's elements in another file. */
const EXTERNAL = 1;
/** The numbers of kinds of attributes. */
const ATTRIBUTE = { float: 1, int: 2, text: 3, ints: 7 } as const;

/** A node of an operator. `inputs` includes the inputs that its form adds. */
export interface NodeMessage {
  readonly op: string;
  readonly inputs: readonly string[];
  readonly output: string;
  readonly name?: string;
  readonly form?: OnnxForm;
}

/** An input or output of a graph. A size of null is free. */
export interface InfoMessage {
  readonly name: string;
  readonly dtype: Dtype | 'float16';
  readonly sizes: readonly (number | null)[];
}

/** A constant tensor. If `bytes` is null, they are in an external file with its name. */
export interface TensorMessage {
  readonly name: string;
  readonly type: ValueType;
  readonly bytes: Uint8Array | null;
}

export interface GraphMessage {
  readonly name: string;
  readonly nodes: readonly NodeMessage[];
  readonly constants: readonly TensorMessage[];
  readonly inputs: readonly InfoMessage[];
  readonly outputs: readonly InfoMessage[];
}

/** A node that makes float32 of half precision. */
export function widen(half: string, output: string): NodeMessage {
  return { op: 'Cast', inputs: [half], output, form: { attributes: { to: ELEMENT_TYPE.float32 } } };
}

/** A model whose output `y` is its input `x`, of any sizes. */
export function identityModel(dtype: 'float32' | 'float16', rank: number): Uint8Array {
  const sizes = Array.from({ length: rank }, () => null);
  return printModel({
    name: 'identity',
    nodes: [{ op: 'Identity', inputs: ['x'], output: 'y' }],
    constants: [],
    inputs: [{ name: 'x', dtype, sizes }],
    outputs: [{ name: 'y', dtype, sizes }],
  });
}

/** The bytes of a model with this graph. */
export function printModel({ name, nodes, constants, inputs, outputs }: GraphMessage): Uint8Array {
  const writer = new BinaryWriter();
  integer(writer, 1, IR_VERSION);
  text(writer, 2, 'editrl');
  message(writer, 7, (graph) => {
    for (const node of nodes) message(graph, 1, (one) => writeNode(one, node));
    text(graph, 2, name);
    for (const constant of constants) message(graph, 5, (one) => writeTensor(one, constant));
    for (const input of inputs) message(graph, 11, (one) => writeInfo(one, input));
    for (const output of outputs) message(graph, 12, (one) => writeInfo(one, output));
  });
  message(writer, 8, (opset) => {
    text(opset, 1, '');
    integer(opset, 2, OPSET);
  });
  return writer.finish();
}

function writeNode(writer: BinaryWriter, { op, inputs, output, name, form = {} }: NodeMessage): void {
  for (const input of inputs) text(writer, 1, input);
  text(writer, 2, output);
  if (name !== undefined) text(writer, 3, name);
  text(writer, 4, op);
  const attribute = (key: string, kind: keyof typeof ATTRIBUTE, value: (writer: BinaryWriter) => void): void =>
    message(writer, 5, (one) => {
      text(one, 1, key);
      value(one);
      integer(one, 20, ATTRIBUTE[kind]);
    });
  for (const [key, x] of Object.entries(form.attributes ?? {})) {
    if (typeof x === 'number') attribute(key, 'int', (one) => integer(one, 3, x));
    else attribute(key, 'ints', (one) => x.forEach((element) => integer(one, 8, element)));
  }
  for (const [key, x] of Object.entries(form.textAttributes ?? {})) attribute(key, 'text', (one) => text(one, 4, x));
  for (const [key, x] of Object.entries(form.floatAttributes ?? {})) {
    attribute(key, 'float', (one) => one.tag(2, WireType.Bit32).float(x));
  }
}

function writeTensor(writer: BinaryWriter, { name, type, bytes }: TensorMessage): void {
  for (const size of type.shape) integer(writer, 1, size);
  integer(writer, 2, ELEMENT_TYPE[type.dtype]);
  text(writer, 8, name);
  if (bytes === null) {
    message(writer, 13, (entry) => {
      text(entry, 1, 'location');
      text(entry, 2, name);
    });
    integer(writer, 14, EXTERNAL);
  } else if (sizeOf(type.shape) > 0) writer.tag(9, WireType.LengthDelimited).bytes(bytes);
}

function writeInfo(writer: BinaryWriter, { name, dtype, sizes }: InfoMessage): void {
  text(writer, 1, name);
  message(writer, 2, (typeProto) =>
    message(typeProto, 1, (tensor) => {
      integer(tensor, 1, ELEMENT_TYPE[dtype]);
      message(tensor, 2, (shape) => {
        for (const size of sizes) message(shape, 1, (dim) => (size === null ? dim : integer(dim, 1, size)));
      });
    }),
  );
}

function message(writer: BinaryWriter, field: number, write: (writer: BinaryWriter) => void): void {
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
