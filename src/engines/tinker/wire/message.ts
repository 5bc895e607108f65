/**
 * A Protocol Buffers message as a list of pieces: arrays of numbers stay where they are until they are sent, and no message is ever there as a whole.
 */
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import type { PiecewiseBody } from '../../../http/request.js';

/** Bytes that are there, or that are made of an array when they are sent. */
type Piece = Uint8Array | { readonly byteLength: number; readonly make: () => Uint8Array };

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
