/**
 * Converts prompts to chunks of the Tinker API: words as ids, and each image as a PNG at the policy's size, so that the
 * server's processor does not resize it.
 */
import { encodePng } from '../../../core/images/image.js';
import { InternalError, must } from '../../../core/errors.js';
import type { Chunk, Datum } from './wire.js';
import { tokensOf, type VisionInput } from '../../../models/images/vision_input.js';
import type { MarkedImageTokens } from '../../../compute/nets/vision/config.js';
import type { PromptImages } from '../../../models/images/processor.js';
import type { TokenPrompt } from '../../../models/tokenizer/format.js';

/** The image inputs of a policy on a training server. */
export interface ImageInputs {
  readonly processor: PromptImages;
  readonly tokens: MarkedImageTokens;
}

/** A prompt with one answer. */
export interface Sequence {
  /** Contains one placeholder per image token. */
  readonly prompt: readonly number[];
  readonly images?: TokenPrompt['images'];
  readonly answer: Int32Array;
}

export class PromptChunks {
  readonly #files = new WeakMap<VisionInput, Promise<Uint8Array>>();

  /** Null for a policy without images. */
  constructor(private readonly imageInputs: ImageInputs | null) {}

  /** Raises InternalError for a clip, which the API does not support, and for ids that do not match their images. */
  async of({ ids, images = [] }: TokenPrompt): Promise<readonly Chunk[]> {
    if (images.length === 0) return [{ type: 'text', tokens: Int32Array.from(ids) }];
    const { tokens, processor } = must(this.imageInputs, 'how a policy sees whose prompts have images');
    const chunks: Chunk[] = [];
    const waiting = images.values();
    let from = 0;
    for (let at = 0; at < ids.length;) {
      if (ids[at] !== tokens.image_token_id) {
        at += 1;
        continue;
      }
      const image = must(waiting.next().value, 'an image');
      if (image.kind !== 'image') throw new InternalError('a clip for a server that takes images alone');
      if (at > from) chunks.push({ type: 'text', tokens: Int32Array.from(ids.slice(from, at)) });
      const expectedTokens = tokensOf(image.grid, processor.settings.sizes);
      chunks.push({ type: 'image', data: await this.#fileOf(image), format: 'png', expectedTokens });
      at += expectedTokens;
      from = at;
    }
    if (waiting.next().done !== true) throw new InternalError('a prompt with more images than places for them');
    if (from < ids.length) chunks.push({ type: 'text', tokens: Int32Array.from(ids.slice(from)) });
    return chunks;
  }

  /** A prompt and its answer. The answer contains no images. */
  async whole({ prompt: ids, images = [], answer }: Sequence): Promise<readonly Chunk[]> {
    return [...(await this.of({ ids, images })), { type: 'text', tokens: answer }];
  }

  /** A datum for each sequence, with the loss's inputs for its answer. */
  data<S extends Sequence>(
    sequences: readonly S[],
    read: (sequence: S, index: number) => Readonly<Record<string, Float32Array>>,
  ): Promise<Datum[]> {
    return Promise.all(
      sequences.map(async (one, i) => {
        const { prompt: ids, images = [], answer } = one;
        return datumOf(await this.of({ ids, images }), answer, read(one, i));
      }),
    );
  }

  /**
   * Number of tokens of a sampled answer before the first image token. The trainer would look for that image: servers
   * reject such a sequence or use the prompt's images at wrong positions.
   */
  wordsOf(answer: Int32Array): number {
    if (this.imageInputs === null) return answer.length;
    const { image_token_id, video_token_id } = this.imageInputs.tokens;
    const at = answer.findIndex((id) => id === image_token_id || id === video_token_id);
    return at < 0 ? answer.length : at;
  }

  #fileOf(image: VisionInput): Promise<Uint8Array> {
    const known = this.#files.get(image) ?? encodePng(image.frames[0]);
    this.#files.set(image, known);
    return known;
  }
}

/** Target at the positions of image tokens. */
const NO_TARGET = 0;

/**
 * The sequence without its last token, its targets, and the loss's inputs for the answer, which are 0 for the prompt.
 * Raises InternalError for a prompt that ends with an image.
 */
function datumOf(prompt: readonly Chunk[], answer: Int32Array, read: Readonly<Record<string, Float32Array>>): Datum {
  const last = prompt.at(-1);
  if (last?.type !== 'text') throw new InternalError('a prompt that does not end with words');
  const words = new Int32Array(last.tokens.length + answer.length - 1);
  words.set(last.tokens);
  words.set(answer.subarray(0, -1), last.tokens.length);
  const input: Chunk[] = [...prompt.slice(0, -1), { type: 'text', tokens: words }];
  const targets = Int32Array.from([...input.flatMap(idsOf).slice(1), answer[answer.length - 1]]);
  const padded = Object.entries(read).map(([name, values]) => {
    const whole = new Float32Array(targets.length);
    whole.set(values, targets.length - answer.length);
    return [name, whole] as const;
  });
  return { input, lossInputs: { target_tokens: targets, ...Object.fromEntries(padded) } };
}

function idsOf(chunk: Chunk): number[] {
  return chunk.type === 'text'
    ? Array.from(chunk.tokens)
    : Array.from({ length: chunk.expectedTokens }, () => NO_TARGET);
}
