/** The task of `image_editor`: an image and an instruction as inputs of a flow model, and its latents as the edited image. */
import { DataError } from '../../core/errors.js';
import { encodePng, type RgbImage } from '../../core/images/image.js';
import type { Planes } from '../../core/images/planes.js';
import type { Datasets } from '../../data/datasets.js';
import { sourcesOf } from '../../data/image_edits.js';
import type { Row } from '../../data/types.js';
import type { FlowTransformerConfig } from '../../compute/nets/flow/config.js';
import type { ImageCodec } from '../../train/environments/image_codec.js';
import { type FlowAnswer, pack, unpack } from '../../train/policies/flow/batch.js';
import { editCondition, type SourceInput } from '../../train/policies/flow/editor.js';
import { takesGuidance } from '../../train/policies/flow/rows.js';
import type { JudgeItem } from '../../rewards/score/types.js';
import type { Answers, Rendered, Task } from '../../train/scoring/task.js';
import { asRecorded, type ImagePrompt } from '../shared/flow/answers.js';
import { FlowTask } from '../shared/flow/task.js';
import { maxImages, rowsUsedOf, type VisionEditSource, type ImageFiles } from '../shared/images/edits.js';
import { fittedTo } from '../shared/images/fit.js';
import type { Instructions } from './instructions.js';
import type { ImageEditorSettings } from './settings.js';

export interface EditorPrompt extends ImagePrompt {
  readonly source: RgbImage;
  /** Further images that the model reads, in order. */
  readonly beside: readonly RgbImage[];
  /** The labeled image. Null if there is none. */
  readonly target: RgbImage | null;
  /** The row of the dataset, for rewards. */
  readonly row: Row;
  /** Size of the latents. */
  readonly size: Omit<Planes, 'data'>;
  /** The response given to the model, in words. Null if it only gets the instruction. */
  readonly response: string | null;
}

/** The models that prompts are made with, and their data. */
export interface EditorParts {
  readonly data: Datasets<VisionEditSource>;
  readonly images: ImageFiles;
  readonly instructions: Instructions;
  readonly codec: ImageCodec;
  readonly config: FlowTransformerConfig;
  readonly sourceInput: SourceInput;
}

const KEPT_BYTES = 2 ** 30;

function bytesOf({ source, beside, flow, size }: EditorPrompt): number {
  const { text, without, context, kept, further = [] } = flow;
  const images = beside.reduce((sum, { data }) => sum + data.length, 2 * source.data.length);
  const shown = further.reduce((sum, one) => sum + one.shown.length, 2 * (kept?.shown.length ?? 0));
  const target = size.channels * size.width * size.height;
  return images + 4 * (text.length + (without?.text.length ?? 0) + context.length + shown + target);
}

/** The further images for a judge. */
function besideOf({ beside }: Pick<EditorPrompt, 'beside'>): Partial<Pick<JudgeItem, 'beside'>> {
  return beside.length === 0 ? {} : { beside };
}

export class EditorTask extends FlowTask<EditorPrompt, VisionEditSource> implements Task<EditorPrompt, FlowAnswer> {
  readonly sources: number;

  constructor(
    readonly settings: ImageEditorSettings,
    private readonly parts: EditorParts,
  ) {
    super(parts.data, parts.config, { maxSize: KEPT_BYTES, sizeCalculation: bytesOf });
    this.sources = maxImages(rowsUsedOf(parts.data, settings.validation.prompts));
  }

  async render(chunk: readonly Answers<EditorPrompt, FlowAnswer>[]): Promise<Rendered[][]> {
    const { codec, sourceInput } = this.parts;
    return Promise.all(
      chunk.map(async ({ prompt, answers, keys }) => {
        const { instruction, source, target, size, response, row } = prompt;
        const beside = besideOf(prompt);
        const kept = answers.map(({ latents }) => asRecorded(latents));
        const edited = await codec.decode(kept.map(({ latents }) => unpack(latents, size, sourceInput.patch)));
        return answers.map(({ finished }, i): Rendered => ({
          item: { key: keys[i], instruction, source, ...beside, truth: target, row, edited: edited[i], finished },
          record: { ...kept[i].record, ...(beside.beside === undefined ? {} : { beside: beside.beside.length }) },
          caption: response === null ? instruction : `${instruction} → ${response}`,
        }));
      }),
    );
  }

  async labels(prompt: EditorPrompt): Promise<Pick<JudgeItem, 'beside' | 'truth' | 'row'>> {
    return { ...besideOf(prompt), truth: prompt.target, row: prompt.row };
  }

  async dispose(): Promise<void> {
    const { instructions, codec } = this.parts;
    await Promise.all([instructions.dispose(), codec.dispose()]);
  }

  /** Also raises DataError for images that cannot be edited. */
  protected override async promptOf(from: VisionEditSource, index: number): Promise<EditorPrompt> {
    const { images, codec, sourceInput, config, instructions } = this.parts;
    const edit = from.edits.read(index);
    const { id, instruction, where, row } = edit;
    const files = await Promise.all(
      sourcesOf(edit).map(async (path) => this.#fitted(await images.read(path, where), path, where)),
    );
    const [source, ...beside] = files;
    const target = edit.target === null ? null : await this.#target(edit.target, source, where);
    const [shown, ...further] = await codec.encode(files);
    const { text, blank, response } = await instructions.read(from, index, this.#asksBlank);
    let wanted: Promise<Float32Array> | null = null;
    return {
      id,
      instruction,
      sourcePng: () => encodePng(source),
      source,
      beside,
      target,
      row,
      size: { channels: shown.channels, width: shown.width, height: shown.height },
      response,
      flow: editCondition(text, [shown, ...further], sourceInput, config, blank),
      wanted: () => (wanted ??= this.#latents(target, where)),
    };
  }

  /**
   * Whether guidance starts from a blank instruction, as in diffusers' pipelines. Supervised training then replaces its share of instructions by a
   * blank one, too. A model that this program trained with zeros in their place continues with zeros.
   */
  get #asksBlank(): boolean {
    const { config } = this.parts;
    const { algorithm, rollout } = this.settings;
    if (config.condition_dropout !== null || takesGuidance(config)) return false;
    return rollout.guidance_scale !== null || (algorithm.type === 'sft' && algorithm.sft.condition_dropout > 0);
  }

  /** The labeled image in the size of the source as it is edited. Raises DataError if they have different sizes to begin with. */
  async #target(path: string, source: RgbImage, where: string): Promise<RgbImage> {
    const target = this.#fitted(await this.parts.images.read(path, where), path, where);
    if (target.width === source.width && target.height === source.height) return target;
    throw new DataError(
      `the source has ${source.width}x${source.height} pixels and the edited image ${target.width}x${target.height}; allowed: equal sizes`,
      { where, next: 'Resize one of them, or remove this row.' },
    );
  }

  async #latents(target: RgbImage | null, where: string): Promise<Float32Array> {
    if (target === null) {
      throw new DataError('the row has no edited image to learn from', {
        where,
        next: 'Name its column in data.columns.target, or remove such rows.',
      });
    }
    const [planes] = await this.parts.codec.encode([target]);
    return pack(planes, this.parts.sourceInput.patch);
  }

  #fitted(image: RgbImage, path: string, where: string): RgbImage {
    const { codec, sourceInput } = this.parts;
    const { max_pixels: most } = this.settings.policy;
    return fittedTo(image, { side: sourceInput.patch * codec.reduction, most, key: 'policy.max_pixels' }, path, where);
  }
}
