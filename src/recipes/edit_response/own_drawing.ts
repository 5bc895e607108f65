/** A flow model of this process draws, conditioned on hidden states. */
import { InternalError } from '../../core/errors.js';
import type { RgbImage } from '../../core/image.js';
import type { Planes } from '../../core/planes.js';
import { sessionOptions } from '../../engines/onnx/session_options.js';
import type { PictureCodec } from '../../environments/picture_codec.js';
import { modelFolder, type RunResolver } from '../../models/reference.js';
import { FlowEditor, type Edit } from '../../policies/flow/editor.js';
import type { WeightsOf } from '../../policies/policy.js';
import type { RecordedEpisode } from '../../run/episodes.js';
import type { OwnEditor } from '../../schema/editor.js';
import { openCodec } from '../open_flow_parts.js';
import { asRecorded, recordedLatents } from '../open_recorded_latents.js';
import {
  fittedTo,
  type Drawing,
  type DrawnEdit,
  type RecordedDrawing,
  type StatesReader,
  type WantedEdit,
} from './drawing.js';

export interface OwnDrawingParts {
  readonly editor: FlowEditor;
  readonly codec: PictureCodec;
  /** Null without a policy, when pictures come from records. */
  readonly reader: StatesReader | null;
  /** Maximum number of pixels of a picture; null: pictures keep their size. */
  readonly mostPixels: number | null;
}

/** Latents of what an edit begins from. */
type Shown = Pick<Edit, 'source' | 'further'>;

export class OwnDrawing implements Drawing {
  constructor(private readonly parts: OwnDrawingParts) {}

  /** Raises CheckpointError when the model that draws or one of its parts cannot be read, or they do not match. */
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
      next: 'Leave such rows out, or name a transformer of the class QwenImageTransformer2DModel that was trained with several pictures, as those of Qwen-Image-Edit-2509 and -2511 were.',
    };
  }

  fitted(image: RgbImage, path: string, where: string): RgbImage {
    const { editor, codec, mostPixels: most } = this.parts;
    return fittedTo(image, { side: editor.patch * codec.reduction, most }, path, where);
  }

  async draw(edits: readonly WantedEdit[], weights: Exclude<WeightsOf, 'reference'>): Promise<DrawnEdit[]> {
    const { codec } = this.parts;
    const shown = await this.#encoded(edits);
    const kept = (await this.#latents(edits, shown, weights)).map(asRecorded);
    const images = await codec.decode(kept.map(({ latents }, i) => ({ ...shown[i].source, data: latents })));
    return images.map((image, i) => ({ picture: { kind: 'made', image }, record: kept[i].record }));
  }

  remembered(episode: RecordedEpisode): RecordedDrawing {
    return { latents: recordedLatents(episode) };
  }

  async dispose(): Promise<void> {
    const { editor, codec } = this.parts;
    await Promise.all([editor.dispose(), codec.dispose()]);
  }

  /** Latents of the pictures before the edits. Pictures that several edits share are encoded once. */
  async #encoded(edits: readonly WantedEdit[]): Promise<Shown[]> {
    const pictures = [...new Set(edits.flatMap(({ source, further }) => [source, ...further]))];
    const encoded = await this.parts.codec.encode(pictures);
    const of = (picture: RgbImage): Planes => encoded[pictures.indexOf(picture)];
    return edits.map(({ source, further }) => ({
      source: of(source),
      ...(further.length === 0 ? {} : { further: further.map(of) }),
    }));
  }

  /** Latents of the edited pictures. */
  async #latents(
    edits: readonly WantedEdit[],
    shown: readonly Shown[],
    weights: Exclude<WeightsOf, 'reference'>,
  ): Promise<Float32Array[]> {
    const recorded = edits.flatMap(({ answer: { latents } }) => latents ?? []);
    if (recorded.length === edits.length) return recorded;
    const { reader, editor } = this.parts;
    if (reader === null) throw new InternalError('answers without pictures, and no policy to draw them by');
    const told = await reader.read(edits, weights);
    const made = await editor.draw(edits.map(({ random }, i) => ({ ...shown[i], random, ...told[i] })));
    return made.map(({ data }) => data);
  }
}
