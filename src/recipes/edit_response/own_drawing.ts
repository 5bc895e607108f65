/** A flow model of this process draws, conditioned on hidden states. */
import { InternalError } from '../../core/errors.js';
import type { RgbImage } from '../../core/image.js';
import { sessionOptions } from '../../engines/onnx/session_options.js';
import type { PictureCodec } from '../../environments/picture_codec.js';
import { modelFolder, type RunResolver } from '../../models/reference.js';
import { FlowEditor } from '../../policies/flow/editor.js';
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

export class OwnDrawing implements Drawing {
  constructor(private readonly parts: OwnDrawingParts) {}

  /** Raises CheckpointError when the model that draws or one of its parts cannot be read, or they do not match. */
  static open(environment: OwnEditor, reader: StatesReader | null, resolveRun: RunResolver): OwnDrawing {
    const { model, model_type: type, parts, num_steps: steps, guidance_scale: guidance, engine } = environment;
    const codec = openCodec(parts.vae, engine, resolveRun);
    const options = { type, steps, guidance, batch: environment.pictures_at_once, session: sessionOptions(engine) };
    const editor = FlowEditor.open(modelFolder(model, resolveRun), codec, options);
    return new OwnDrawing({ codec, reader, editor, mostPixels: environment.max_pixels });
  }

  get asksBlank(): boolean {
    return this.parts.editor.asksBlank;
  }

  fitted(image: RgbImage, path: string, where: string): RgbImage {
    const { editor, codec, mostPixels: most } = this.parts;
    return fittedTo(image, { side: editor.patch * codec.reduction, most }, path, where);
  }

  async draw(edits: readonly WantedEdit[], weights: Exclude<WeightsOf, 'reference'>): Promise<DrawnEdit[]> {
    const { codec } = this.parts;
    const sources = [...new Set(edits.map(({ source }) => source))];
    const encoded = await codec.encode(sources);
    const shown = edits.map(({ source }) => encoded[sources.indexOf(source)]);
    const kept = (await this.#latents(edits, shown, weights)).map(asRecorded);
    const images = await codec.decode(kept.map(({ latents }, i) => ({ ...shown[i], data: latents })));
    return images.map((image, i) => ({ picture: { kind: 'made', image }, record: kept[i].record }));
  }

  remembered(episode: RecordedEpisode): RecordedDrawing {
    return { latents: recordedLatents(episode) };
  }

  async dispose(): Promise<void> {
    const { editor, codec } = this.parts;
    await Promise.all([editor.dispose(), codec.dispose()]);
  }

  /** Latents of the edited pictures. */
  async #latents(
    edits: readonly WantedEdit[],
    shown: Awaited<ReturnType<PictureCodec['encode']>>,
    weights: Exclude<WeightsOf, 'reference'>,
  ): Promise<Float32Array[]> {
    const recorded = edits.flatMap(({ answer: { latents } }) => latents ?? []);
    if (recorded.length === edits.length) return recorded;
    const { reader, editor } = this.parts;
    if (reader === null) throw new InternalError('answers without pictures, and no policy to draw them by');
    const told = await reader.read(edits, weights);
    const made = await editor.draw(edits.map(({ random }, i) => ({ source: shown[i], random, ...told[i] })));
    return made.map(({ data }) => data);
  }
}
