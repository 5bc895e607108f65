/** Writes TensorBoard's event files: TFRecord-framed `Event` messages of tensorflow/core/util/event.proto. */
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import { createCRC32 } from 'hash-wasm';

/** The values of one step, by name. `at` is in seconds since 1970. */
export interface Step {
  readonly at: number;
  readonly step: number;
  readonly scalars?: Readonly<Record<string, number>>;
  readonly images?: Readonly<Record<string, StepImages>>;
  /** Tables of Markdown cells by row. The first row is the header. */
  readonly tables?: Readonly<Record<string, readonly (readonly string[])[]>>;
}

/** PNG files, and the size of the first one. */
export interface StepImages {
  readonly width: number;
  readonly height: number;
  readonly pngs: readonly Uint8Array[];
}

/** Field numbers of the messages. */
const EVENT = { wallTime: 1, step: 2, fileVersion: 3, summary: 5, sessionLog: 7 } as const;
const VALUE = { tag: 1, simpleValue: 2, tensor: 8, metadata: 9 } as const;
const METADATA = { pluginData: 1 } as const;
const PLUGIN_DATA = { name: 1 } as const;
const TENSOR = { dtype: 1, shape: 2, strings: 8 } as const;
const SHAPE = { dim: 2 } as const;
const DIM = { size: 1 } as const;
const STRING_TYPE = 7;
const SUMMARY = { value: 1 } as const;
const SESSION = { status: 1, start: 1 } as const;

export type EventEncoder = Readonly<{
  /** The first record of a file. */
  version(at: number): Uint8Array;
  step(step: Step): Uint8Array;
  /** A record that training restarts before this step. It invalidates this and later steps. */
  restart(at: number, step: number): Uint8Array;
}>;

/** Asynchronous, because CRC-32C has to be compiled first. */
export async function eventEncoder(): Promise<EventEncoder> {
  const crc = await createCRC32(0x82f63b78);
  const masked = (bytes: Uint8Array): number => {
    const sum = Buffer.from(crc.init().update(bytes).digest('binary')).readUInt32BE(0);
    return (((sum >>> 15) | (sum << 17)) + 0xa282ead8) >>> 0;
  };
  const framed = (data: Uint8Array): Uint8Array => {
    const out = Buffer.alloc(data.length + 16);
    out.writeBigUInt64LE(BigInt(data.length), 0);
    out.writeUInt32LE(masked(out.subarray(0, 8)), 8);
    out.set(data, 12);
    out.writeUInt32LE(masked(data), 12 + data.length);
    return out;
  };
  return {
    version: (at) =>
      framed(event(at, 0).tag(EVENT.fileVersion, WireType.LengthDelimited).string('brain.Event:2').finish()),
    step: ({ at, step, scalars = {}, images = {}, tables = {} }) => {
      const writer = event(at, step).tag(EVENT.summary, WireType.LengthDelimited).fork();
      const value = (name: string): BinaryWriter =>
        nested(writer, SUMMARY.value).tag(VALUE.tag, WireType.LengthDelimited).string(name);
      for (const [name, number] of Object.entries(scalars)) {
        value(name).tag(VALUE.simpleValue, WireType.Bit32).float(toFloat(number)).join();
      }
      for (const [name, { width, height, pngs }] of Object.entries(images)) {
        const sizes = [width, height].map((size) => Buffer.from(String(size)));
        tensor(value(name), [2 + pngs.length], [...sizes, ...pngs], 'images').join();
      }
      for (const [name, rows] of Object.entries(tables)) {
        const cells = rows.flat().map((cell) => Buffer.from(cell, 'utf8'));
        tensor(value(name), [rows.length, rows[0]?.length ?? 0], cells, 'text').join();
      }
      return framed(writer.join().finish());
    },
    restart: (at, step) => {
      const writer = event(at, step).tag(EVENT.sessionLog, WireType.LengthDelimited).fork();
      return framed(writer.tag(SESSION.status, WireType.Varint).int32(SESSION.start).join().finish());
    },
  };
}

function event(at: number, step: number): BinaryWriter {
  const writer = new BinaryWriter().tag(EVENT.wallTime, WireType.Bit64).double(at);
  return step === 0 ? writer : writer.tag(EVENT.step, WireType.Varint).int64(step);
}

/** Begins a nested message. `join` ends it. */
function nested(writer: BinaryWriter, field: number): BinaryWriter {
  return writer.tag(field, WireType.LengthDelimited).fork();
}

/** Writes a tensor of texts and the name of the plugin that shows it. */
function tensor(
  writer: BinaryWriter,
  shape: readonly number[],
  strings: readonly Uint8Array[],
  plugin: string,
): BinaryWriter {
  nested(writer, VALUE.tensor).tag(TENSOR.dtype, WireType.Varint).int32(STRING_TYPE);
  nested(writer, TENSOR.shape);
  for (const size of shape) nested(writer, SHAPE.dim).tag(DIM.size, WireType.Varint).int64(size).join();
  writer.join();
  for (const text of strings) writer.tag(TENSOR.strings, WireType.LengthDelimited).bytes(text);
  writer.join();
  nested(nested(writer, VALUE.metadata), METADATA.pluginData)
    .tag(PLUGIN_DATA.name, WireType.LengthDelimited)
    .string(plugin);
  return writer.join().join();
}

/** Converts to single precision, which the format requires. Larger values become infinite. */
function toFloat(value: number): number {
  return Math.fround(value);
}
