/**
 * Requests to a Tinker server and its replies in both dialects: sequences with the inputs of a loss, and the results of
 * a pass.
 */
import { InternalError } from '../../../core/errors.js';
import type { PiecewiseBody } from '../../../core/http/request.js';
import { BinaryWriter, WireType, BinaryReader } from '@bufbuild/protobuf/wire';
import { z } from 'zod';

/** A piece of a sequence. An image takes `expectedTokens` positions, which the server checks. */
export type Chunk =
  | { readonly type: 'text'; readonly tokens: Int32Array }
  | {
      readonly type: 'image';
      readonly data: Uint8Array;
      readonly format: 'png' | 'jpeg';
      readonly expectedTokens: number;
    };

/** One number per position of the input. Integers are sent as int64, other numbers as float32. */
export type LossInput = Int32Array | Float32Array;

/** A sequence without its last token. `lossInputs.target_tokens` is the sequence without its first token. */
export interface Datum {
  readonly input: readonly Chunk[];
  readonly lossInputs: Readonly<Record<string, LossInput>>;
}

export type LossConfig = Readonly<Record<string, number>>;

export interface Pass {
  readonly modelId: string;
  readonly seqId: number;
  readonly data: readonly Datum[];
  readonly loss: string;
  readonly config: LossConfig;
  /** Whether to compute no gradients. */
  readonly forwardOnly: boolean;
}

/** The outputs of a pass for one datum, by name. */
export type Outputs = Readonly<Record<string, Float64Array>>;

export interface PassResult {
  /** One entry per datum, in order. */
  readonly outputs: readonly Outputs[];
  /** A name may end in `:` and the way in which values of several batches are merged. */
  readonly metrics: Readonly<Record<string, number>>;
}

/** An answer. NaN replaces a value that the server left out. */
export interface SampledSequence {
  readonly tokens: Int32Array;
  /** Null if the server returns none. */
  readonly logProbs: Float64Array | null;
  readonly stopped: boolean;
}

export interface SampleResult {
  readonly sequences: readonly SampledSequence[];
  readonly promptLogProbs: Float64Array | null;
}

/** A reply that cannot be parsed. The message contains the problem and its place. */
export class UnreadableReply extends Error {}

/** Number of positions of a sequence. */
export function positionsOf(input: readonly Chunk[]): number {
  return input.reduce((sum, chunk) => sum + (chunk.type === 'text' ? chunk.tokens.length : chunk.expectedTokens), 0);
}

/** Size of a datum for the limit of a batch in bytes. */
export function bytesOf({ input, lossInputs }: Datum): number {
  const chunks = input.reduce((sum, each) => sum + (each.type === 'text' ? each.tokens : each.data).byteLength, 0);
  const inputs = Object.values(lossInputs).reduce((sum, each) => sum + each.length * (isWhole(each) ? 8 : 4), 0);
  return chunks + inputs;
}

export function isWhole(values: LossInput): values is Int32Array {
  return values instanceof Int32Array;
}

/**
 * Raises InternalError for data that servers never answer or answer wrongly: an empty batch or sequence, missing target
 * tokens, a loss input of another length than its sequence, or a number that is not finite.
 */
export function checkData(data: readonly Datum[]): void {
  if (data.length === 0) throw new InternalError('a batch for Tinker without data');
  data.forEach(({ input, lossInputs }, index) => {
    const positions = checkPrompt(input, `datum ${index}`);
    if (lossInputs['target_tokens'] === undefined) throw new InternalError(`datum ${index} has no target_tokens`);
    for (const [name, values] of Object.entries(lossInputs)) {
      if (values.length !== positions) {
        throw new InternalError(`datum ${index} has ${values.length} ${name} for ${positions} positions`);
      }
      const at = isWhole(values) ? -1 : values.findIndex((value) => !Number.isFinite(value));
      if (at >= 0) throw new InternalError(`datum ${index}: ${name}[${at}] is ${values[at]}`);
    }
  });
}

/** Number of positions. Raises InternalError for an empty sequence. */
export function checkPrompt(input: readonly Chunk[], what: string): number {
  const positions = positionsOf(input);
  if (positions === 0) throw new InternalError(`${what} has no tokens`);
  return positions;
}

const REQUEST = { modelId: 1, seqId: 2, data: 3, loss: 4, config: 5, forwardOnly: 6, typedConfig: 7 } as const;
const DATUM = { input: 1, lossInputs: 2 } as const;
const CHUNK = { text: 1, image: 2 } as const;
const IMAGE = { data: 1, format: 2, expectedTokens: 3 } as const;
const TENSOR = { dense: 1, dtype: 3, shape: 4 } as const;
const ENTRY = { key: 1, value: 2 } as const;
export const DTYPE = { float32: 1, int64: 2, int32: 3, bfloat16: 4 } as const;

/** The body of a proto server's forward_backward. */
export function toProto({ modelId, seqId, data, loss, config, forwardOnly }: Pass): PiecewiseBody {
  const message = new Message().text(REQUEST.modelId, modelId).int(REQUEST.seqId, seqId);
  for (const datum of data) message.message(REQUEST.data, datumMessage(datum));
  message.text(REQUEST.loss, loss);
  for (const [key, value] of Object.entries(config)) {
    // Each server reads one of these two fields.
    message.message(REQUEST.config, new Message().text(ENTRY.key, key).double(ENTRY.value, value));
    const typed = new Message().double(1, value);
    message.message(REQUEST.typedConfig, new Message().text(ENTRY.key, key).message(ENTRY.value, typed));
  }
  if (forwardOnly) message.int(REQUEST.forwardOnly, 1);
  return message.toBody();
}

function datumMessage({ input, lossInputs }: Datum): Message {
  const message = new Message();
  for (const chunk of input) message.message(DATUM.input, chunkMessage(chunk));
  for (const [name, values] of Object.entries(lossInputs)) {
    const entry = new Message().text(ENTRY.key, name).message(ENTRY.value, tensorMessage(values));
    message.message(DATUM.lossInputs, entry);
  }
  return message;
}

function chunkMessage(chunk: Chunk): Message {
  if (chunk.type === 'text') {
    return new Message().message(CHUNK.text, new Message().bytes(1, viewOf(chunk.tokens)));
  }
  const image = new Message().bytes(IMAGE.data, chunk.data).text(IMAGE.format, chunk.format);
  return new Message().message(CHUNK.image, image.int(IMAGE.expectedTokens, chunk.expectedTokens));
}

function tensorMessage(values: LossInput): Message {
  const dense = isWhole(values) ? { byteLength: 8 * values.length, make: () => wide(values) } : viewOf(values);
  const dtype = isWhole(values) ? DTYPE.int64 : DTYPE.float32;
  return new Message().bytes(TENSOR.dense, dense).int(TENSOR.dtype, dtype).ints(TENSOR.shape, [values.length]);
}

function viewOf({ buffer, byteOffset, byteLength }: LossInput): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength);
}

/** Encodes integers as int64. */
function wide(values: Int32Array): Uint8Array {
  const halves = new Int32Array(2 * values.length);
  for (let i = 0; i < values.length; i++) {
    halves[2 * i] = values[i];
    halves[2 * i + 1] = values[i] >> 31;
  }
  return viewOf(halves);
}

/** The body of a JSON server's forward_backward or forward. */
export function toJson({ modelId, seqId, data, loss, config, forwardOnly }: Pass): string {
  const key = forwardOnly ? 'forward_input' : 'forward_backward_input';
  const input = { data: data.map(datumJson), loss_fn: loss, loss_fn_config: config };
  return JSON.stringify({ model_id: modelId, seq_id: seqId, [key]: input });
}

function datumJson({ input, lossInputs }: Datum): object {
  const tensors = Object.entries(lossInputs).map(([name, values]) => {
    const dtype = isWhole(values) ? 'int64' : 'float32';
    return [name, { data: Array.from(values), dtype, shape: [values.length] }] as const;
  });
  return { model_input: inputJson(input), loss_fn_inputs: Object.fromEntries(tensors) };
}

/** A sequence in the form of JSON requests. */
export function inputJson(input: readonly Chunk[]): object {
  return {
    chunks: input.map((chunk) => {
      if (chunk.type === 'text') return { type: 'encoded_text', tokens: Array.from(chunk.tokens) };
      const { data, format, expectedTokens } = chunk;
      const base64 = Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString('base64');
      return { type: 'image', data: base64, format, expected_tokens: expectedTokens };
    }),
  };
}

/** Bytes, or a function that creates them when they are sent. */
type Piece = Uint8Array | { readonly byteLength: number; readonly make: () => Uint8Array };

/**
 * A protobuf message as a list of pieces. Arrays of numbers stay in place until they are sent, so that no whole message
 * is ever in memory.
 */
export class Message {
  readonly #pieces: Piece[] = [];
  readonly #small = new BinaryWriter();
  #length = 0;

  text(field: number, value: string): this {
    this.#small.tag(field, WireType.LengthDelimited).string(value);
    return this;
  }

  int(field: number, value: number): this {
    this.#small.tag(field, WireType.Varint).int32(value);
    return this;
  }

  double(field: number, value: number): this {
    this.#small.tag(field, WireType.Bit64).double(value);
    return this;
  }

  /** A packed field. For few values. */
  ints(field: number, values: readonly number[]): this {
    this.#small.tag(field, WireType.LengthDelimited).fork();
    for (const value of values) this.#small.int64(value);
    this.#small.join();
    return this;
  }

  bytes(field: number, value: Piece): this {
    this.#small.tag(field, WireType.LengthDelimited).uint32(value.byteLength);
    return this.#add([value], value.byteLength);
  }

  message(field: number, value: Message): this {
    const { pieces, byteLength } = value.#finished();
    this.#small.tag(field, WireType.LengthDelimited).uint32(byteLength);
    return this.#add(pieces, byteLength);
  }

  /** A body that can be sent again, because each reading starts over. */
  toBody(): PiecewiseBody {
    const { pieces, byteLength } = this.#finished();
    return {
      byteLength,
      *[Symbol.iterator]() {
        for (const piece of pieces) yield piece instanceof Uint8Array ? piece : piece.make();
      },
    };
  }

  #add(pieces: readonly Piece[], length: number): this {
    this.#flush();
    for (const piece of pieces) this.#pieces.push(piece);
    this.#length += length;
    return this;
  }

  #flush(): void {
    const small = this.#small.finish();
    if (small.length > 0) this.#pieces.push(small);
    this.#length += small.length;
  }

  #finished(): { readonly pieces: readonly Piece[]; readonly byteLength: number } {
    this.#flush();
    return { pieces: this.#pieces, byteLength: this.#length };
  }
}

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

/** Raises UnreadableReply for a value that is not such a result. */
export function passFromJson(value: unknown): PassResult {
  const { loss_fn_outputs, metrics } = parseForm(pass, value);
  return {
    outputs: loss_fn_outputs.map((one) =>
      Object.fromEntries(Object.entries(one).map(([name, { data }]) => [name, withoutNulls(data)])),
    ),
    metrics: Object.fromEntries(Object.entries(metrics ?? {}).map(([name, each]) => [name, each ?? NaN])),
  };
}

/** Parses a sampling result. Raises UnreadableReply for any other value. */
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

/** Parses a value. Raises UnreadableReply with the place of the first problem. */
export function parseForm<T extends z.ZodType>(form: T, value: unknown): z.output<T> {
  const found = form.safeParse(value);
  if (found.success) return found.data;
  const [{ path, message }] = found.error.issues;
  throw new UnreadableReply(`${path.join('.')}: ${message}`);
}

function withoutNulls(values: readonly (number | null)[]): Float64Array {
  return Float64Array.from(values, (value) => value ?? NaN);
}

/** Readers of a message's fields by number. Other fields are skipped. */
type Fields = Readonly<Record<number, (reader: BinaryReader) => void>>;

/** Raises UnreadableReply for bytes that are not such a message. */
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

/** Parses a sampling result. Raises UnreadableReply for other bytes. */
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

/** The outputs of several data, which are consecutive in each tensor. */
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

/** Offsets are in bytes: the start of each datum and the end of the last one. */
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
