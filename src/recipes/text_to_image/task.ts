/** Captioned pictures as inputs of a flow model, with its wanted output. */
import { LRUCache } from 'lru-cache';
import { coverImage } from '../../core/image.js';
import { captionedPixels, type CaptionedPicture } from '../../data/captioned.js';
import type { Datasets } from '../../data/datasets.js';
import type { SampleSource } from '../../data/types.js';
import type { PictureCodec } from '../../environments/picture_codec.js';
import type { PromptEncoder } from '../../environments/picture_words.js';
import { flowCondition, latentSize } from '../../policies/flow/image_model.js';
import { pack } from '../../policies/flow/packing.js';
import type { LabelledPictures, PicturePrompt } from '../open_flow_labels.js';
import type { TextToImageSettings } from './settings.js';

type Source = SampleSource<CaptionedPicture>;

/** Latents are cached up to this many bytes, so that small datasets are decoded and encoded once. */
const KEPT_BYTES = 2 ** 28;

export class CaptionedTask implements LabelledPictures<PicturePrompt, Source> {
  /** By the row of a picture. */
  readonly #wanted = new LRUCache<string, Float32Array>({ maxSize: KEPT_BYTES });

  constructor(
    readonly settings: TextToImageSettings,
    private readonly codec: PictureCodec,
    private readonly encoder: PromptEncoder,
    private readonly data: Datasets<Source>,
  ) {}

  get heldOut(): readonly { readonly source: Source }[] {
    return this.data.validation.map((source) => ({ source }));
  }

  get predictsSample(): boolean {
    return this.settings.environment.init.prediction === 'sample';
  }

  prompt(globalIndex: number): Promise<PicturePrompt> {
    const { source, index } = this.data.at(globalIndex);
    return this.promptAt(source, index);
  }

  /** Raises DataError for a picture that cannot be read, when it is needed. */
  async promptAt(source: Source, index: number): Promise<PicturePrompt> {
    const sample = source.read(index);
    const { init } = this.settings.environment;
    const size = latentSize(this.settings.environment, this.codec);
    return {
      id: sample.id,
      instruction: sample.text,
      sourcePng: null,
      flow: flowCondition(await this.encoder.encode(sample.text), size, init.patch),
      wanted: () => this.#wantedOf(sample),
    };
  }

  async #wantedOf(sample: CaptionedPicture): Promise<Float32Array> {
    const known = this.#wanted.get(sample.path);
    if (known !== undefined) return known;
    const { width, height, init } = this.settings.environment;
    const image = await captionedPixels(sample);
    const fits = image.width === width && image.height === height;
    const [planes] = await this.codec.encode([fits ? image : await coverImage(image, width, height)]);
    const wanted = pack(planes, init.patch);
    this.#wanted.set(sample.path, wanted, { size: wanted.byteLength });
    return wanted;
  }

  async dispose(): Promise<void> {
    await Promise.all([this.codec.dispose(), this.encoder.dispose()]);
  }
}
