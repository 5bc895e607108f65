/** TensorBoard's event files: records in the framing of TFRecord, each an `Event` of tensorflow/core/util/event.proto. */
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import { createCRC32 } from 'hash-wasm';

/** Numbers of one step by name; `at` in seconds since 1970. */
export interface StepOfScalars {
  readonly at: number;
  readonly step: number;
  readonly scalars: Readonly<Record<string, number>>;
}

/** Field numbers of the messages. */
const EVENT = { wallTime: 1, step: 2, fileVersion: 3, summary: 5, sessionLog: 7 } as const;
const VALUE = { tag: 1, simpleValue: 2 } as const;
const SUMMARY = { value: 1 } as const;
const SESSION = { status: 1, start: 1 } as const;

export type EventEncoder = Readonly<{
  /** The first record of a file. */
  version(at: number): Uint8Array;
  scalars(step: StepOfScalars): Uint8Array;
  /** A record that training restarts before this step: what was recorded for it and later steps no longer holds. */
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
    scalars: ({ at, step, scalars }) => {
      const writer = event(at, step).tag(EVENT.summary, WireType.LengthDelimited).fork();
      for (const [name, value] of Object.entries(scalars)) {
        writer.tag(SUMMARY.value, WireType.LengthDelimited).fork();
        writer.tag(VALUE.tag, WireType.LengthDelimited).string(name);
        writer.tag(VALUE.simpleValue, WireType.Bit32).float(toFloat(value)).join();
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

/** The format has single precision; larger values become infinite. */
function toFloat(value: number): number {
  return Math.fround(value);
}
