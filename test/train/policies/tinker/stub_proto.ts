/** The protobuf dialect from the server's side, written down a second time. */
import { BinaryReader, BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import type { StubChunk } from './stub_pictures.js';
import type { StubDatum, StubSample, StubTraining } from './stub_messages.js';

type Fields = Readonly<Record<number, (reader: BinaryReader) => void>>;

function each(message: Uint8Array, fields: Fields): void {
  const reader = new BinaryReader(message);
  while (reader.pos < reader.len) {
    const [field] = reader.tag();
    if (!Object.hasOwn(fields, field)) throw new Error(`unknown field ${field}`);
    fields[field](reader);
  }
}

const copy = (bytes: Uint8Array): ArrayBuffer => Uint8Array.from(bytes).buffer;

export function readTrainingRequest(message: Uint8Array): StubTraining {
  let [model_id, seq_id, loss_fn, forwardOnly] = ['', 0, '', false];
  const data: StubDatum[] = [];
  each(message, {
    1: (r) => (model_id = r.string()),
    2: (r) => (seq_id = r.int32()),
    3: (r) => data.push(readDatum(r.bytes())),
    4: (r) => (loss_fn = r.string()),
    6: (r) => (forwardOnly = r.bool()),
  });
  return { model_id, seq_id, loss_fn, data, forwardOnly };
}

function readDatum(message: Uint8Array): StubDatum {
  const chunks: StubChunk[] = [];
  const inputs: Record<string, number[]> = {};
  each(message, {
    1: (r) =>
      each(r.bytes(), {
        1: (chunk) =>
          each(chunk.bytes(), { 1: (text) => chunks.push({ tokens: Array.from(new Int32Array(copy(text.bytes()))) }) }),
        2: (chunk) => chunks.push(readImage(chunk.bytes())),
      }),
    2: (r) => {
      let name = '';
      each(r.bytes(), { 1: (e) => (name = e.string()), 2: (e) => (inputs[name] = readTensor(e.bytes())) });
    },
  });
  return { chunks, inputs };
}

function readImage(message: Uint8Array): StubChunk {
  let [data, format, expectedTokens] = [Buffer.alloc(0), '', null as number | null];
  each(message, {
    1: (r) => (data = Buffer.from(r.bytes())),
    2: (r) => (format = r.string()),
    3: (r) => (expectedTokens = r.int32()),
  });
  return { data, format, expectedTokens };
}

function readTensor(message: Uint8Array): number[] {
  let [data, dtype, size] = [new ArrayBuffer(0), 0, -1];
  each(message, {
    1: (r) => (data = copy(r.bytes())),
    3: (r) => (dtype = r.int32()),
    4: (r) => (size = Number(new BinaryReader(r.bytes()).int64())),
  });
  const values = dtype === 2 ? Array.from(new BigInt64Array(data), Number) : Array.from(new Float32Array(data));
  if (values.length !== size) throw new Error('data and shape differ');
  return values;
}

function message(writer: BinaryWriter, field: number, write: () => void): void {
  writer.tag(field, WireType.LengthDelimited).fork();
  write();
  writer.join();
}

function bytes(writer: BinaryWriter, field: number, data: Float32Array | Int32Array | BigInt64Array): void {
  writer.tag(field, WireType.LengthDelimited).bytes(new Uint8Array(data.buffer));
}

export function writeTraining(logProbs: readonly (readonly number[])[]): Uint8Array {
  const writer = new BinaryWriter();
  writer.tag(1, WireType.LengthDelimited).string('scalar');
  message(writer, 2, () => {
    message(writer, 2, () => {
      writer.tag(1, WireType.LengthDelimited).string('logprobs');
      message(writer, 2, () => {
        bytes(writer, 1, Float32Array.from(logProbs.flat()));
        let at = 0;
        const offsets = logProbs.map(({ length }) => {
          at += 4 * length;
          return BigInt(at - 4 * length);
        });
        bytes(writer, 2, BigInt64Array.from([...offsets, BigInt(at)]));
        writer.tag(3, WireType.Varint).int32(1);
      });
    });
    writer.tag(3, WireType.Varint).int32(logProbs.length);
  });
  message(writer, 3, () => {
    writer.tag(1, WireType.LengthDelimited).string('tokens:sum');
    writer.tag(2, WireType.Bit64).double(logProbs.flat().length);
  });
  return writer.finish();
}

export function writeSample({ sequences, prompt_logprobs }: StubSample): Uint8Array {
  const writer = new BinaryWriter();
  for (const { tokens, logprobs, stop_reason } of sequences) {
    message(writer, 1, () => {
      if (stop_reason === 'length') writer.tag(1, WireType.Varint).int32(1);
      bytes(writer, 2, Int32Array.from(tokens));
      bytes(writer, 3, Float32Array.from(logprobs));
    });
  }
  if (prompt_logprobs !== null) {
    bytes(
      writer,
      2,
      Float32Array.from(prompt_logprobs, (one) => one ?? NaN),
    );
  }
  return writer.finish();
}
