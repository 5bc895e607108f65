/** Results of passes and samples, as JSON (servers write null for a number that is not finite) or as Protocol Buffers. */
import { z } from 'zod';
import { UnreadableReply, type PassResult, type SampleResult, type Outputs, type SampledSequence } from './data.js';
import { BinaryReader } from '@bufbuild/protobuf/wire';
import { DTYPE } from './write.js';

const number = z.number().nullable();
const pass = z.object({
  loss_fn_outputs: z.array(z.record(z.string(), z.object({ data: z.array(number) }))),
  metrics: z.record(z.string(), number).nullish(),
});
const sample = z.object({
  sequences: z.array(
    z.object({
      tokens: z.array(z.int()),
      logprobs: z.array(number).nullish(),
      stop_reason: z.enum(['stop', 'length']),
    }),
  ),
  prompt_logprobs: z.array(number).nullish(),
});

/** Raises UnreadableReply for a value that is no such result. */
export function passFromJson(value: unknown): PassResult {
  const { loss_fn_outputs, metrics } = parseForm(pass, value);
  return {
    outputs: loss_fn_outputs.map((one) =>
      Object.fromEntries(Object.entries(one).map(([name, { data }]) => [name, withoutNulls(data)])),
    ),
    metrics: Object.fromEntries(Object.entries(metrics ?? {}).map(([name, each]) => [name, each ?? NaN])),
  };
}

/** The form that `passFromJson` returns. */
export function sampleFromJson(value: unknown): SampleResult {
  const { sequences, prompt_logprobs } = parseForm(sample, value);
  return {
    sequences: sequences.map(({ tokens, logprobs, stop_reason }) => ({
      tokens: Int32Array.from(tokens),
      logProbs: (logprobs ?? null) === null ? null : withoutNulls(logprobs as (number | null)[]),
      stopped: stop_reason === 'stop',
    })),
    promptLogProbs: (prompt_logprobs ?? null) === null ? null : withoutNulls(prompt_logprobs as (number | null)[]),
  };
}

/** Raises UnreadableReply with the place that is wrong. */
export function parseForm<T extends z.ZodType>(form: T, value: unknown): z.output<T> {
  const found = form.safeParse(value);
  if (found.success) return found.data;
  const [{ path, message }] = found.error.issues;
  throw new UnreadableReply(`${path.join('.')}: ${message}`);
}

function withoutNulls(values: readonly (number | null)[]): Float64Array {
  return Float64Array.from(values, (value) => value ?? NaN);
}

/** How the fields of a message are read; others are skipped. */
type Fields = Readonly<Record<number, (reader: BinaryReader) => void>>;

/** Raises UnreadableReply for bytes that are no such message. */
export function passFromProto(bytes: Uint8Array): PassResult {
  const outputs: Outputs[] = [];
  const metrics: Record<string, number> = {};
  read(bytes, {
    2: (reader) => outputs.push(...records(reader.bytes())),
    3: (reader) => {
      const { key, value } = entry(reader.bytes(), (each) => each.double());
      metrics[key] = value ?? 0;
    },
  });
  return { outputs, metrics };
}

/** The form that `passFromProto` returns. */
export function sampleFromProto(bytes: Uint8Array): SampleResult {
  const sequences: SampledSequence[] = [];
  let promptLogProbs: Float64Array | null = null;
  read(bytes, {
    1: (reader) => sequences.push(sequence(reader.bytes())),
    2: (reader) => (promptLogProbs = numbers(reader.bytes(), DTYPE.float32)),
  });
  return { sequences, promptLogProbs };
}

function sequence(bytes: Uint8Array): SampledSequence {
  let stopped = true;
  let tokens = new Int32Array();
  let logProbs: Float64Array | null = null;
  read(bytes, {
    1: (reader) => (stopped = reader.int32() === 0),
    2: (reader) => (tokens = Int32Array.from(numbers(reader.bytes(), DTYPE.int32))),
    3: (reader) => (logProbs = numbers(reader.bytes(), DTYPE.float32)),
  });
  return { tokens, logProbs, stopped };
}

/** The outputs of several data, which lie one after the other in each of its tensors. */
function records(bytes: Uint8Array): Outputs[] {
  const fields: [name: string, rows: readonly Float64Array[]][] = [];
  let count: number | null = null;
  read(bytes, {
    2: (reader) => {
      const { key, value } = entry(reader.bytes(), (each) => rowsOf(each.bytes()));
      fields.push([key, value ?? []]);
    },
    3: (reader) => (count = reader.int32()),
  });
  return Array.from({ length: count ?? fields[0]?.[1].length ?? 0 }, (_, i) =>
    Object.fromEntries(fields.flatMap(([name, rows]) => (i < rows.length ? [[name, rows[i]] as const] : []))),
  );
}

/** The offsets count bytes: where each datum begins, and where the last one ends. */
function rowsOf(bytes: Uint8Array): readonly Float64Array[] {
  let data: Uint8Array = new Uint8Array();
  let offsets = new Float64Array();
  let dtype: number = DTYPE.float32;
  read(bytes, {
    1: (reader) => (data = reader.bytes()),
    2: (reader) => (offsets = numbers(reader.bytes(), DTYPE.int64)),
    3: (reader) => (dtype = reader.int32()),
  });
  if (offsets.length === 0) return [numbers(data, dtype)];
  const last = offsets[offsets.length - 1];
  if (last !== data.length) throw new UnreadableReply(`a tensor of ${data.length} bytes whose last offset is ${last}`);
  return Array.from(offsets.subarray(1), (end, i) => numbers(data.subarray(offsets[i], end), dtype));
}

const WIDTH: Readonly<Record<number, { readonly bytes: number; readonly at: (view: DataView, at: number) => number }>> =
  {
    [DTYPE.float32]: { bytes: 4, at: (view, at) => view.getFloat32(at, true) },
    [DTYPE.int64]: { bytes: 8, at: (view, at) => Number(view.getBigInt64(at, true)) },
    [DTYPE.int32]: { bytes: 4, at: (view, at) => view.getInt32(at, true) },
    [DTYPE.bfloat16]: { bytes: 2, at: (view, at) => bfloat(view.getUint16(at, true)) },
  };

function bfloat(bits: number): number {
  return new Float32Array(Uint32Array.of(bits << 16).buffer)[0];
}

function numbers(bytes: Uint8Array, dtype: number): Float64Array<ArrayBuffer> {
  const width = WIDTH[dtype];
  if (width === undefined) throw new UnreadableReply(`a tensor of unknown type ${dtype}`);
  if (bytes.length % width.bytes !== 0) {
    throw new UnreadableReply(`a tensor of ${bytes.length} bytes, ${width.bytes} each`);
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const values = new Float64Array(bytes.length / width.bytes);
  for (let i = 0; i < values.length; i++) values[i] = width.at(view, i * width.bytes);
  return values;
}

function entry<T>(bytes: Uint8Array, value: (reader: BinaryReader) => T): { readonly key: string; readonly value?: T } {
  const found: { key: string; value?: T } = { key: '' };
  read(bytes, {
    1: (reader) => (found.key = reader.string()),
    2: (reader) => (found.value = value(reader)),
  });
  return found;
}

function read(bytes: Uint8Array, fields: Fields): void {
  try {
    const reader = new BinaryReader(bytes);
    while (reader.pos < reader.len) {
      const [field, wire] = reader.tag();
      const take = fields[field];
      if (take === undefined) reader.skip(wire, field);
      else take(reader);
    }
  } catch (cause) {
    throw cause instanceof UnreadableReply
      ? cause
      : new UnreadableReply('not the message that was expected', { cause });
  }
}
