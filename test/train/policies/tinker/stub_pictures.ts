/**
 * What a stand-in of a training server makes of a sequence: every token reads a row of its table of bigrams, and behind an image another one, which
 * follows from the image. It reads image chunks as SkyRL does, and refuses what that refuses.
 */
import { createHash } from 'node:crypto';

export type StubChunk =
  | { readonly tokens: readonly number[] }
  | { readonly data: Buffer; readonly format: string; readonly expectedTokens: number | null };

/** The positions of a sequence. */
export interface StubInput {
  /** 0 in the place of an image. */
  readonly tokens: readonly number[];
  readonly rows: readonly number[];
  readonly isPicture: readonly boolean[];
  /** The row that a token reads which is sampled behind it. */
  readonly rowOf: (token: number) => number;
}

export interface StubEyes {
  readonly vocabulary: number;
  /** Side in pixels of what becomes one token; null: it takes words alone, and says so. */
  readonly side: number | null;
}

/** What is wrong with an image; a server answers with status 400. */
export class BadPicture extends Error {}

export function positionsOf(chunks: readonly StubChunk[], eyes: StubEyes): StubInput {
  const { vocabulary, side } = eyes;
  const [tokens, rows]: [number[], number[]] = [[], []];
  const isPicture: boolean[] = [];
  let [shift, images] = [0, 0];
  for (const chunk of chunks) {
    if ('tokens' in chunk) {
      for (const token of chunk.tokens) {
        tokens.push(token);
        rows.push((token + shift) % vocabulary);
        isPicture.push(false);
      }
      continue;
    }
    if (side === null) throw new BadPicture('image chunks are not supported: only encoded_text prompts are');
    const count = countOf(chunk.data, chunk.format, side);
    if (chunk.expectedTokens !== count) {
      throw new BadPicture(
        `Image ${images}: expected_tokens=${chunk.expectedTokens} but render returned ${count} placeholder tokens`,
      );
    }
    images += 1;
    const content = createHash('sha256').update(chunk.data).digest()[0] % (vocabulary - 1);
    shift = (shift + 1 + content) % vocabulary;
    for (let i = 0; i < count; i++) {
      tokens.push(0);
      rows.push(shift);
      isPicture.push(true);
    }
  }
  if (isPicture.at(-1) === true) throw new BadPicture('the last chunk has to be encoded_text');
  return { tokens, rows, isPicture, rowOf: (token) => (token + shift) % vocabulary };
}

const PNG = Buffer.from('\x89PNG\r\n\x1a\n', 'latin1');

function countOf(data: Buffer, format: string, side: number): number {
  if (format !== 'png' || !PNG.equals(data.subarray(0, PNG.length))) throw new BadPicture(`no ${format} can be read`);
  const [width, height] = [16, 20].map((at) => data.readUInt32BE(at));
  if (width % side !== 0 || height % side !== 0) {
    throw new BadPicture(
      `an image of ${width}x${height}, which would be resized: its sides are no multiples of ${side}`,
    );
  }
  return (width * height) / side ** 2;
}

/** Raises BadPicture where what a loss reads is not that of the sequence, or reads something of an image. */
export function checkInputs(
  { tokens, isPicture }: StubInput,
  inputs: Readonly<Record<string, readonly number[]>>,
): void {
  for (const [name, values] of Object.entries(inputs)) {
    if (values.length !== tokens.length) throw new BadPicture(`${name} has another length`);
    const read = values.findIndex(
      (value, i) => isPicture[i] && value !== 0 && (name !== 'target_tokens' || (isPicture[i + 1] ?? false)),
    );
    if (read >= 0) throw new BadPicture(`${name} is ${values[read]} at position ${read}, where there is an image`);
  }
  const wrong = tokens.findIndex((token, i) => i > 0 && inputs['target_tokens'][i - 1] !== token);
  if (wrong > 0) throw new BadPicture(`the target at position ${wrong - 1} is not the token behind it`);
}

/** Chunks of a JSON request. */
export function chunksFromJson(input: unknown): StubChunk[] {
  return (input as { chunks: Record<string, unknown>[] }).chunks.map((chunk) => {
    if (chunk['type'] === 'encoded_text') return { tokens: chunk['tokens'] as number[] };
    if (chunk['type'] !== 'image') throw new BadPicture(`chunk type ${String(chunk['type'])}`);
    return {
      data: Buffer.from(String(chunk['data']), 'base64'),
      format: String(chunk['format']),
      expectedTokens: (chunk['expected_tokens'] as number | undefined) ?? null,
    };
  });
}
