/** The model that the stand-in of vLLM serves, by its folder, with eyes where its config.json says that it has some. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { decodePlainPng } from '../../../../src/core/images/png.js';
import { readSafetensors, type FloatTensor } from '../../../../src/core/safetensors.js';
import type { DecoderConfig } from '../../../../src/compute/nets/decoder/config.js';
import { referenceLogits, type ReferenceSeen } from '../../../compute/nets/reference_decoder.js';
import {
  referencePositions,
  referenceTokens,
  type ReferencePicture,
  type ReferenceVision,
} from '../../../compute/nets/reference_vision.js';
import type { StubEyes, StubPicture } from './stub_pictures.js';

export type StubParameters = ReadonlyMap<string, FloatTensor>;

/** A prompt as it is read, with all tokens of its images. */
export interface StubPrompt {
  readonly ids: readonly number[];
  readonly images: readonly StubPicture[];
}

interface SeeingJson {
  readonly text_config: DecoderConfig & {
    readonly rope_parameters: { readonly rope_theta: number; readonly mrope_section: readonly number[] };
  };
  readonly vision_config: ReferenceVision;
  readonly image_token_id: number;
  readonly video_token_id: number;
  readonly tie_word_embeddings: boolean;
}

interface ImageInputs {
  readonly vision: ReferenceVision;
  /** The axis of each frequency. */
  readonly axes: readonly number[];
}

export class StubModel {
  readonly config: DecoderConfig;
  readonly weights: StubParameters;
  /** Null for a model of words. */
  readonly eyes: StubEyes | null;
  readonly #sight: ImageInputs | null;
  /** What weights made of images. */
  readonly #seen = new WeakMap<StubParameters, Map<StubPicture, number[][]>>();

  constructor(folder: string) {
    const json = JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8')) as DecoderConfig | SeeingJson;
    this.weights = ownNames(readSafetensors(join(folder, 'model.safetensors')));
    if (!('vision_config' in json)) {
      this.config = json;
      this.eyes = null;
      this.#sight = null;
      return;
    }
    const { text_config: text, vision_config, image_token_id, video_token_id, tie_word_embeddings } = json;
    const { rope_theta, mrope_section: sections } = text.rope_parameters;
    const head_dim = text.hidden_size / text.num_attention_heads;
    this.config = { ...text, head_dim, rope_theta, tie_word_embeddings };
    this.eyes = { ...vision_config, image_token_id, video_token_id };
    const file = join(folder, 'preprocessor_config.json');
    const colours = existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as object) : {};
    const axes = sections.flatMap((count, axis) => Array<number>(count).fill(axis));
    this.#sight = { vision: { ...vision_config, ...colours }, axes };
  }

  /** Of the token behind a prompt and what was written since. */
  logits(weights: StubParameters, prompt: StubPrompt, written: readonly number[]): number[] {
    return referenceLogits(this.config, weights, [...prompt.ids, ...written], 1, this.#seenIn(weights, prompt))[0];
  }

  #seenIn(weights: StubParameters, { ids, images }: StubPrompt): ReferenceSeen | undefined {
    const { eyes } = this;
    if (this.#sight === null || eyes === null) return undefined;
    const { vision, axes } = this.#sight;
    const isPicture = (id: number): boolean => id === eyes.image_token_id || id === eyes.video_token_id;
    const positions = referencePositions(vision, ids, isPicture, images.map(decoded));
    const last = positions.reduce((most, place) => Math.max(most, ...place), -1);
    const places = ids.flatMap((id, at) => (isPicture(id) ? [at] : []));
    const rows = images.flatMap((image) => this.#tokensOf(weights, image, vision));
    return {
      rows: new Map(places.map((at, i) => [at, rows[i]])),
      position: (column, frequency) => positions[column]?.[axes[frequency]] ?? last + 1 + column - ids.length,
    };
  }

  #tokensOf(weights: StubParameters, image: StubPicture, vision: ReferenceVision): number[][] {
    const known = this.#seen.get(weights) ?? new Map<StubPicture, number[][]>();
    this.#seen.set(weights, known);
    const tokens = known.get(image) ?? referenceTokens(vision, weights, decoded(image));
    known.set(image, tokens);
    return tokens;
  }
}

function decoded({ frames, width, height, framesPerSecond }: StubPicture): ReferencePicture {
  const files = frames.map((file) => decodePlainPng(file)?.data);
  const bytes = files.filter((data) => data !== undefined);
  if (bytes.length < files.length) throw new Error('a frame is no PNG');
  return { width, height, framesPerSecond, frames: bytes };
}

/** Weights by the names that training knows them by, whatever a writer of files calls them. */
export function ownNames(weights: StubParameters): StubParameters {
  return new Map(
    [...weights].map(([name, tensor]) => [
      name.replace(/^model\.language_model\./, 'model.').replace(/^model\.visual\./, 'visual.'),
      tensor,
    ]),
  );
}
