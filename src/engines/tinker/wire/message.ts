/**
 * A Protocol Buffers message as a list of pieces: arrays of numbers stay where they are until the whole message is copied once, into the body that is
 * sent.
 */
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';

export class Message {
  readonly #pieces: Uint8Array[] = [];
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

  bytes(field: number, value: Uint8Array): this {
    this.#small.tag(field, WireType.LengthDelimited).uint32(value.length);
    return this.#add([value], value.length);
  }

  message(field: number, value: Message): this {
    const { pieces, length } = value.#finished();
    this.#small.tag(field, WireType.LengthDelimited).uint32(length);
    return this.#add(pieces, length);
  }

  toBuffer(): Buffer {
    const { pieces, length } = this.#finished();
    return Buffer.concat(pieces, length);
  }

  #add(pieces: readonly Uint8Array[], length: number): this {
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

  #finished(): { readonly pieces: readonly Uint8Array[]; readonly length: number } {
    this.#flush();
    return { pieces: this.#pieces, length: this.#length };
  }
}
