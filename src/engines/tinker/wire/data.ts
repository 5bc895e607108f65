/** Requests to a Tinker server and its answers in either dialect: sequences with the inputs of a loss, and the results of a pass over them. */
import { InternalError } from '../../../core/errors.js';

/** A piece of a sequence. A picture takes this many positions, which the server checks. */
export type Chunk =
  | { readonly type: 'text'; readonly tokens: Int32Array }
  | {
      readonly type: 'image';
      readonly data: Uint8Array;
      readonly format: 'png' | 'jpeg';
      readonly expectedTokens: number;
    };

/** One number for each position of the input: integers are sent as int64, the rest as float32. */
export type LossInput = Int32Array | Float32Array;

/** A sequence without its last token; `lossInputs.target_tokens` is the sequence without its first one. */
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
  /** No gradients. */
  readonly forwardOnly: boolean;
}

/** The outputs of a pass for one datum, by name. */
export type Outputs = Readonly<Record<string, Float64Array>>;

export interface PassResult {
  /** One for each datum, in their order. */
  readonly outputs: readonly Outputs[];
  /** Names may end in `:` and how the values of several batches are merged. */
  readonly metrics: Readonly<Record<string, number>>;
}

/** NaN stands for a value that the server left out. */
export interface SampledSequence {
  readonly tokens: Int32Array;
  /** Null where the server gives none. */
  readonly logProbs: Float64Array | null;
  readonly stopped: boolean;
}

export interface SampleResult {
  readonly sequences: readonly SampledSequence[];
  readonly promptLogProbs: Float64Array | null;
}

/** An answer that cannot be read: what is wrong, and where. */
export class UnreadableReply extends Error {}

/** Positions of a sequence. */
export function positionsOf(input: readonly Chunk[]): number {
  return input.reduce((sum, chunk) => sum + (chunk.type === 'text' ? chunk.tokens.length : chunk.expectedTokens), 0);
}

/** The size of a datum where batches are limited in bytes. */
export function bytesOf({ input, lossInputs }: Datum): number {
  const chunks = input.reduce((sum, each) => sum + (each.type === 'text' ? each.tokens : each.data).byteLength, 0);
  const inputs = Object.values(lossInputs).reduce((sum, each) => sum + each.length * (isWhole(each) ? 8 : 4), 0);
  return chunks + inputs;
}

export function isWhole(values: LossInput): values is Int32Array {
  return values instanceof Int32Array;
}

/**
 * Raises InternalError for what servers answer never, or wrongly: no data, an empty sequence, no target tokens, a loss input of another length than its
 * sequence, a number that is not finite.
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

/** Its positions. Raises InternalError for a sequence that has none. */
export function checkPrompt(input: readonly Chunk[], what: string): number {
  const positions = positionsOf(input);
  if (positions === 0) throw new InternalError(`${what} has no tokens`);
  return positions;
}
