/** Generates the images that responses describe, with a model of this process or with a server. */
import { LRUCache } from 'lru-cache';
import { DataError, InternalError, RunError } from '../../core/errors.js';
import { encodePng, sha256, type RgbImage } from '../../core/images/image.js';
import type { RandomStream } from '../../core/random.js';
import { SEEDS, type MadeImage } from '../../train/environments/image_model.js';
import { KEPT_BYTES } from '../../models/images/vision_input.js';
import type { WeightsOf } from '../../train/policies/policy.js';
import type { TokenAnswer } from '../../train/policies/tokens/batch.js';
import type { HiddenStates, StatesRequest } from '../../train/policies/tokens/hidden_states.js';
import type { RecordedEpisode } from '../../run/episodes.js';
import {
  SERVED_SIDE,
  type EditorSettings,
  type OwnEditor,
  type RenderEditor,
  type TextPromptEditor,
} from '../../config/schema/editor.js';
import type { SingleImage } from '../shared/images/edits.js';
import type { Planes } from '../../core/images/planes.js';
import { sessionOptions } from '../../compute/onnx/session.js';
import type { ImageCodec } from '../../train/environments/image_codec.js';
import { modelFolder, type RunResolver } from '../../models/reference.js';
import { FlowEditor, type Edit } from '../../train/policies/flow/editor.js';
import { openCodec } from '../shared/flow/parts.js';
import { asRecorded, recordedLatents } from '../shared/flow/answers.js';
import { fittedTo } from '../shared/images/fit.js';
import { resizeCubic } from '../../core/images/resize.js';
import { toStoredBytes, type StoredTensor } from '../../core/safetensors.js';
import { STATES_DTYPES, type RenderRequest, type RenderIdentity } from '../../train/environments/render_server.js';
import type { ServedImages } from '../../train/environments/served.js';
import type { ImagesRequest } from '../../train/environments/images_api.js';
import { parseImageSize, sizeText } from '../../config/schema/images_api.js';

/** An answer of the policy. A recorded one includes the identity of its image. */
export interface ResponseAnswer extends TokenAnswer, RecordedDrawing {}

/** Fields of a recorded answer that identify its image without the policy. */
export interface RecordedDrawing {
  /** Latents of the image itself. */
  readonly latents?: Float32Array;
  /** SHA-256 of the hidden states sent to a server. */
  readonly statesDigest?: string;
  /** SHA-256 of the hidden states of a blank instruction, if these were sent too. */
  readonly blankDigest?: string;
}

/** A requested edit. */
export interface WantedEdit {
  /** The episode's name. */
  readonly key: string;
  /** The image to edit, as `Drawing.fitted` returned it. All edits of a prompt share the object. */
  readonly source: RgbImage;
  /** Further input images in order, also fitted. Empty if `Drawing.onlyOne` is not null. */
  readonly further: readonly RgbImage[];
  /** The instruction as text. */
  readonly words: string;
  /** The instruction as tokens for the policy. */
  readonly read: StatesRequest;
  /** A blank instruction with the same image if `Drawing.asksBlank`, else null. */
  readonly blank: BlankEdit | null;
  /** Random numbers of the initial noise. */
  readonly random: RandomStream;
  readonly answer: ResponseAnswer;
}

export interface BlankEdit {
  /** Identifies the image files. The blank instruction's hidden states depend on nothing else. */
  readonly image: string;
  readonly read: StatesRequest;
}

export interface DrawnEdit {
  readonly image: MadeImage;
  /** Fields for the episode's record. */
  readonly record: Readonly<Record<string, unknown>>;
}

export interface Drawing {
  /** Whether edits need a blank instruction. */
  readonly asksBlank: boolean;
  /** Why an edit takes a single image. Null if it may take several. */
  readonly onlyOne: SingleImage | null;
  /**
   * An image at the size at which it is edited and judged. Raises DataError, with `path` and `where`, for a size that
   * cannot be edited.
   */
  fitted(image: RgbImage, path: string, where: string): RgbImage;
  /** One image for each edit, in order. Raises the errors of `ImageModel.generate`. */
  draw(edits: readonly WantedEdit[], weights: Exclude<WeightsOf, 'reference'>): Promise<DrawnEdit[]>;
  /** The fields of a record that identify images. Raises RunError for a record without them. */
  remembered(episode: RecordedEpisode): RecordedDrawing;
  /** See `ImageModel.keep`. */
  keep?(): Promise<void>;
  dispose(): Promise<void>;
}

/** A policy that returns hidden states. */
interface ReadingPolicy {
  read(items: readonly StatesRequest[], of: WeightsOf): Promise<HiddenStates[]>;
}

/** Whether the image model is conditioned on states of the starting weights. */
export function isReadByStart(environment: EditorSettings): boolean {
  return 'read_by' in environment && environment.read_by === 'start';
}

/** Whether a run needs the starting weights, even if only for blank instructions. */
export function keepsStart(environment: EditorSettings): boolean {
  return isReadByStart(environment) || ('read_by' in environment && environment.guidance_scale !== null);
}

/** The states for an edit, and those for its blank instruction if it has one. */
export interface EditStates {
  readonly states: HiddenStates;
  readonly blank: HiddenStates | null;
}

/** Computes the hidden states of edits with a policy's weights. */
export class StatesReader {
  /** States of blank instructions by image. They never change, because they come from the starting weights. */
  readonly #blanks = new LRUCache<string, HiddenStates>({
    maxSize: KEPT_BYTES,
    sizeCalculation: ({ states }) => states.byteLength,
  });

  constructor(
    private readonly environment: EditorSettings,
    private readonly policy: ReadingPolicy,
  ) {}

  /**
   * The states of the edits, in order. The settings choose between the weights that answered and the starting weights.
   */
  async read(
    edits: readonly Pick<WantedEdit, 'read' | 'blank'>[],
    weights: Exclude<WeightsOf, 'reference'>,
  ): Promise<EditStates[]> {
    const states = await this.policy.read(
      edits.map(({ read }) => read),
      isReadByStart(this.environment) ? 'reference' : weights,
    );
    const withBlanks: EditStates[] = [];
    for (const [i, { blank }] of edits.entries()) {
      withBlanks.push({ states: states[i], blank: blank === null ? null : await this.#blank(blank) });
    }
    return withBlanks;
  }

  async #blank({ image, read }: BlankEdit): Promise<HiddenStates> {
    const known = this.#blanks.get(image);
    if (known !== undefined) return known;
    const [states] = await this.policy.read([read], 'reference');
    this.#blanks.set(image, states);
    return states;
  }
}

/** The setting that limits the size of an edited image. */
const MAX_PIXELS = 'environment.max_pixels';

export interface OwnDrawingParts {
  readonly editor: FlowEditor;
  readonly codec: ImageCodec;
  /** Null without a policy, when latents come from records. */
  readonly reader: StatesReader | null;
  /** Maximum number of pixels of an image. Null keeps its size. */
  readonly mostPixels: number | null;
}

/** Latents of the source images of an edit. */
type Shown = Pick<Edit, 'source' | 'further'>;

export class OwnDrawing implements Drawing {
  constructor(private readonly parts: OwnDrawingParts) {}

  /** Raises CheckpointError when the image model or one of its parts cannot be read, or when they do not match. */
  static open(environment: OwnEditor, reader: StatesReader | null, resolveRun: RunResolver): OwnDrawing {
    const { model, model_type: type, parts, num_steps: steps, guidance_scale: guidance, engine } = environment;
    const codec = openCodec(parts.vae, engine, resolveRun);
    const options = {
      type,
      steps,
      guidance,
      batch: environment.pictures_at_once,
      session: sessionOptions(engine),
      held: engine.dtype,
    };
    const editor = FlowEditor.open(modelFolder(model, resolveRun), codec, options);
    return new OwnDrawing({ codec, reader, editor, mostPixels: environment.max_pixels });
  }

  get asksBlank(): boolean {
    return this.parts.editor.asksBlank;
  }

  get onlyOne(): Drawing['onlyOne'] {
    if (this.parts.editor.takesSeveral) return null;
    return {
      why: 'the model of environment.model is shown one',
      next: 'Remove such rows, or use a QwenImageTransformer2DModel that was trained with several images, such as Qwen-Image-Edit-2509 or -2511.',
    };
  }

  fitted(image: RgbImage, path: string, where: string): RgbImage {
    const { editor, codec, mostPixels: most } = this.parts;
    return fittedTo(image, { side: editor.patch * codec.reduction, most, key: MAX_PIXELS }, path, where);
  }

  async draw(edits: readonly WantedEdit[], weights: Exclude<WeightsOf, 'reference'>): Promise<DrawnEdit[]> {
    const { codec } = this.parts;
    const shown = await this.#encoded(edits);
    const kept = (await this.#latents(edits, shown, weights)).map(asRecorded);
    const images = await codec.decode(kept.map(({ latents }, i) => ({ ...shown[i].source, data: latents })));
    return images.map((image, i) => ({ image: { kind: 'made', image }, record: kept[i].record }));
  }

  remembered(episode: RecordedEpisode): RecordedDrawing {
    return { latents: recordedLatents(episode) };
  }

  async dispose(): Promise<void> {
    const { editor, codec } = this.parts;
    await Promise.all([editor.dispose(), codec.dispose()]);
  }

  /** Latents of the source images. Images that several edits share are encoded once. */
  async #encoded(edits: readonly WantedEdit[]): Promise<Shown[]> {
    const images = [...new Set(edits.flatMap(({ source, further }) => [source, ...further]))];
    const encoded = await this.parts.codec.encode(images);
    const of = (image: RgbImage): Planes => encoded[images.indexOf(image)];
    return edits.map(({ source, further }) => ({
      source: of(source),
      ...(further.length === 0 ? {} : { further: further.map(of) }),
    }));
  }

  /** Latents of the edited images. */
  async #latents(
    edits: readonly WantedEdit[],
    shown: readonly Shown[],
    weights: Exclude<WeightsOf, 'reference'>,
  ): Promise<Float32Array[]> {
    const recorded = edits.flatMap(({ answer: { latents } }) => latents ?? []);
    if (recorded.length === edits.length) return recorded;
    const { reader, editor } = this.parts;
    if (reader === null) throw new InternalError('answers without images, and no policy to draw them by');
    const states = await reader.read(edits, weights);
    const made = await editor.draw(edits.map(({ random }, i) => ({ ...shown[i], random, ...states[i] })));
    return made.map(({ data }) => data);
  }
}

/** In a run, sends hidden states to the server. From records, looks up stored images and computes no states. */
export type RenderSource =
  | { readonly images: ServedImages<RenderRequest>; readonly reader: StatesReader }
  | { readonly images: ServedImages<RenderIdentity>; readonly reader: null };

/** Digests of the states that an image was generated from. */
type Digests = Pick<RenderIdentity, 'statesDigest' | 'blankDigest'>;

export class RenderDrawing implements Drawing {
  readonly onlyOne = {
    why: "the protocol of environment.type 'render_server' has one",
    next: "Remove such rows, or set environment.type to 'model'.",
  };

  constructor(
    private readonly environment: Pick<RenderEditor, 'max_pixels' | 'states_dtype' | 'guidance_scale'>,
    private readonly from: RenderSource,
  ) {}

  get asksBlank(): boolean {
    return this.environment.guidance_scale !== null;
  }

  fitted(image: RgbImage, path: string, where: string): RgbImage {
    return fittedTo(image, { side: SERVED_SIDE, most: this.environment.max_pixels, key: MAX_PIXELS }, path, where);
  }

  async draw(edits: readonly WantedEdit[], weights: Exclude<WeightsOf, 'reference'>): Promise<DrawnEdit[]> {
    const { images, reader } = this.from;
    const files = new Map<RgbImage, Uint8Array>();
    for (const { source } of edits) if (!files.has(source)) files.set(source, await encodePng(source));
    const wanted = edits.map(({ key, source, random }) => ({
      key,
      source: files.get(source) as Uint8Array,
      size: { width: source.width, height: source.height },
      seed: random.integer(SEEDS),
    }));
    if (reader === null) {
      const digests = edits.map(({ answer }) => digestsOf(answer));
      return drawn(await images.generate(wanted.map((one, i) => ({ ...one, ...digests[i] }))), digests);
    }
    const sent = (await reader.read(edits, weights)).map(({ states, blank }) => {
      const of = { states: this.#sent(states), blank: blank === null ? null : this.#sent(blank) };
      const digests = { statesDigest: sha256(of.states.bytes) };
      return { of, digests: of.blank === null ? digests : { ...digests, blankDigest: sha256(of.blank.bytes) } };
    });
    const digests = sent.map((one) => one.digests);
    const requests = wanted.map((one, i) => ({ ...one, ...sent[i].of, ...digests[i] }));
    return drawn(await images.generate(requests), digests);
  }

  remembered({ key, states, blank_states: blank }: RecordedEpisode): RecordedDrawing {
    if (states === undefined) throw new RunError('the episode record has no digest of states', { where: key });
    return blank === undefined ? { statesDigest: states } : { statesDigest: states, blankDigest: blank };
  }

  async keep(): Promise<void> {
    await this.from.images.keep?.();
  }

  dispose(): Promise<void> {
    return this.from.images.close();
  }

  #sent({ states, width }: HiddenStates): StoredTensor {
    const dtype = STATES_DTYPES[this.environment.states_dtype];
    return { dtype, shape: [states.length / width, width], bytes: toStoredBytes(states, dtype) };
  }
}

/**
 * The recorded digests. An answer from before the run used guidance has no digest of a blank instruction, so its image
 * is not found, as after any other change that affects images.
 */
function digestsOf({ statesDigest, blankDigest }: RecordedDrawing): Digests {
  if (statesDigest === undefined) throw new InternalError('an answer without its states, and no policy to read it');
  return blankDigest === undefined ? { statesDigest } : { statesDigest, blankDigest };
}

function drawn(
  made: Awaited<ReturnType<ServedImages<RenderIdentity>['generate']>>,
  digests: readonly Digests[],
): DrawnEdit[] {
  return made.map((image, i) => {
    const { statesDigest: states, blankDigest } = digests[i];
    return { image, record: blankDigest === undefined ? { states } : { states, blank_states: blankDigest } };
  });
}

export class TextPromptDrawing implements Drawing {
  readonly asksBlank = false;
  readonly onlyOne = {
    why: "a server of environment.type 'images_api_text_prompt' is sent one",
    next: "Remove such rows, or set environment.type to 'model'.",
  };

  constructor(
    private readonly environment: Pick<TextPromptEditor, 'size' | 'max_pixels'>,
    private readonly images: ServedImages<ImagesRequest>,
  ) {}

  fitted(image: RgbImage, path: string, where: string): RgbImage {
    const { size, max_pixels: most } = this.environment;
    if (size === null) return fittedTo(image, { side: SERVED_SIDE, most, key: MAX_PIXELS }, path, where);
    const { width, height } = parseImageSize(size);
    if (image.width * height !== image.height * width) {
      throw new DataError(`${path}: found ${image.width}x${image.height} pixels; allowed: the shape of ${size}`, {
        where,
        next: 'Crop the image. If the server takes any size, set environment.size to null instead.',
      });
    }
    return image.width === width ? image : resizeCubic(image, width, height);
  }

  async draw(edits: readonly WantedEdit[]): Promise<DrawnEdit[]> {
    const files = new Map<RgbImage, Promise<Uint8Array>>();
    const requests = edits.map(async ({ key, source, words: prompt, random }) => {
      const file = files.get(source) ?? encodePng(source);
      files.set(source, file);
      return { key, prompt, seed: random.integer(SEEDS), source: await file, size: sizeText(source) };
    });
    const made = await this.images.generate(await Promise.all(requests));
    return made.map((image) => ({ image, record: {} }));
  }

  /** Empty, because images are found by their text. */
  remembered(): RecordedDrawing {
    return {};
  }

  async keep(): Promise<void> {
    await this.images.keep?.();
  }

  dispose(): Promise<void> {
    return this.images.close();
  }
}
