/** A pass over data as it is sent, in either dialect (package tinker_public; arrays are packed, little-endian). */
import { isWhole, type Chunk, type Datum, type LossInput, type Pass } from './data.js';
import type { PiecewiseBody } from '../../../http/request.js';
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';

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
    // Servers read the one or the other.
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

/** Encoded as 64-bit integers. */
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

/** A sequence as every JSON request has it. */
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

/** Bytes that are there, or that are made of an array when they are sent. */
type Piece = Uint8Array | { readonly byteLength: number; readonly make: () => Uint8Array };

/** A message as a list of pieces: arrays of numbers stay in place until they are sent, and no message is ever in memory as a whole. */
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

  /** Packed; few of them. */
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

  /** Can be sent again: each reading begins anew. */
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
