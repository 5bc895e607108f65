/** Messages of an ONNX model (onnx/onnx, onnx.proto). */
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import type { Dtype, ValueType } from './ir.js';
import type { OnnxForm } from './operators.js';

const IR_VERSION = 10;
const OPSET = 23;

/** The numbers of element types. */
export const ELEMENT_TYPE: Readonly<Record<Dtype | 'float16', number>> = { float32: 1, int64: 7, bool: 9, float16: 10 };
/** The location of a tensor's elements: another file. */
export const EXTERNAL = 1;
/** The numbers of kinds of attributes. */
const ATTRIBUTE = { float: 1, int: 2, text: 3, ints: 7 } as const;

/** Writes a message's fields. */
export type Message = (writer: BinaryWriter) => void;

/** A field that is a message. */
export function message(writer: BinaryWriter, field: number, write: Message): void {
  writer.tag(field, WireType.LengthDelimited).fork();
  write(writer);
  writer.join();
}

/** A field that is a text. */
export function text(writer: BinaryWriter, field: number, value: string): void {
  writer.tag(field, WireType.LengthDelimited).string(value);
}

/** A field that is an integer. */
export function integer(writer: BinaryWriter, field: number, value: number): void {
  writer.tag(field, WireType.Varint).int64(value);
}

/** The bytes of a model with this graph. */
export function model(graph: Uint8Array): Uint8Array {
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

/** A model whose output `y` is its input `x`, of any sizes. */
export function identityModel(dtype: 'float32' | 'float16', rank: number): Uint8Array {
  const writer = new BinaryWriter();
  const sizes = Array.from({ length: rank }, () => null);
  message(writer, 1, (node) => {
    text(node, 1, 'x');
    text(node, 2, 'y');
    text(node, 4, 'Identity');
  });
  text(writer, 2, 'identity');
  message(writer, 11, (info) => valueInfo(info, 'x', dtype, sizes));
  message(writer, 12, (info) => valueInfo(info, 'y', dtype, sizes));
  return model(writer.finish());
}

/** A node that makes float32 of half precision. */
export function widen(target: BinaryWriter, half: string, output: string): void {
  message(target, 1, (writer) => {
    text(writer, 1, half);
    text(writer, 2, output);
    text(writer, 4, 'Cast');
    message(writer, 5, (attribute) => {
      text(attribute, 1, 'to');
      integer(attribute, 3, ELEMENT_TYPE.float32);
      integer(attribute, 20, ATTRIBUTE.int);
    });
  });
}

/** A node without attributes. */
export function plainNode(target: BinaryWriter, op: string, inputs: readonly string[], output: string): void {
  message(target, 1, (writer) => {
    for (const input of inputs) text(writer, 1, input);
    text(writer, 2, output);
    text(writer, 4, op);
  });
}

/** A node of an operator by its form: what that reads besides is among the inputs. */
export function operatorNode(
  target: BinaryWriter,
  {
    op,
    name,
    inputs,
    output,
  }: { readonly op: string; readonly name: string; readonly inputs: readonly string[]; readonly output: string },
  form: OnnxForm,
): void {
  message(target, 1, (writer) => {
    for (const input of inputs) text(writer, 1, input);
    text(writer, 2, output);
    text(writer, 3, name);
    text(writer, 4, op);
    for (const [key, x] of Object.entries(form.attributes ?? {})) {
      message(writer, 5, (attribute) => {
        text(attribute, 1, key);
        if (typeof x === 'number') integer(attribute, 3, x);
        else for (const element of x) integer(attribute, 8, element);
        integer(attribute, 20, typeof x === 'number' ? ATTRIBUTE.int : ATTRIBUTE.ints);
      });
    }
    for (const [key, x] of Object.entries(form.textAttributes ?? {})) {
      message(writer, 5, (attribute) => {
        text(attribute, 1, key);
        text(attribute, 4, x);
        integer(attribute, 20, ATTRIBUTE.text);
      });
    }
    for (const [key, x] of Object.entries(form.floatAttributes ?? {})) {
      message(writer, 5, (attribute) => {
        text(attribute, 1, key);
        attribute.tag(2, WireType.Bit32).float(x);
        integer(attribute, 20, ATTRIBUTE.float);
      });
    }
  });
}

/** A tensor but for its elements. */
export function tensor(writer: BinaryWriter, type: ValueType, name: string): void {
  for (const size of type.shape) integer(writer, 1, size);
  integer(writer, 2, ELEMENT_TYPE[type.dtype]);
  text(writer, 8, name);
}

/** An input or output of a graph; a size of null may be any. */
export function valueInfo(
  writer: BinaryWriter,
  name: string,
  dtype: Dtype | 'float16',
  sizes: readonly (number | null)[],
): void {
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
