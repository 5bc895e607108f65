/** Labeled edits as inputs of a flow model: hidden states of the instruction, the source image and the target image. */
import { LRUCache } from 'lru-cache';
import { DataError } from '../../core/errors.js';
import type { RgbImage } from '../../core/images/image.js';
import type { Planes } from '../../core/images/planes.js';
import type { ImageCodec } from '../../train/environments/image_codec.js';
import type { FlowTransformerConfig } from '../../compute/nets/flow/config.js';
import { type FlowAnswer, pack, unpack } from '../../train/policies/flow/batch.js';
import { editCondition, type SourceInput } from '../../train/policies/flow/editor.js';
import type { Reader } from '../../train/policies/tokens/hidden_states.js';
import type { RecordedEpisode } from '../../run/episodes.js';
import type { Answers, PromptSource, Rendered, Task } from '../../train/scoring/task.js';
import type { NamedSource, TrainingOrder } from '../../data/datasets.js';
import type { SamplePlace } from '../../data/sampler.js';
import { asRecorded, recordedLatents, type LabeledImages, type ImagePrompt } from '../shared/flow/answers.js';
import {
  editOf,
  firstImageToken,
  requireSingleImage,
  type VisionEditSource,
  type ImageFiles,
} from '../shared/images/edits.js';
import type { VisionInputs } from '../shared/images/vision.js';
import type { TextPrompt, WordsSettings, WordsTask } from '../shared/words/task.js';
import type { ImageEditorSettings } from './settings.js';

export interface EditorPrompt extends ImagePrompt {
  readonly source: RgbImage;
  /** The labeled image. Null if there is none. */
  readonly target: RgbImage | null;
  /** Size of the latents. */
  readonly size: Omit<Planes, 'data'>;
  /** The response given to the model, in words. Null if it only gets the instruction. */
  readonly response: string | null;
}

/** The models that prompts are made with. */
export interface EditorParts {
  readonly words: WordsTask<WordsSettings, VisionEditSource>;
  readonly seeing: VisionInputs;
  readonly images: ImageFiles;
  readonly reader: Reader;
  readonly codec: ImageCodec;
  readonly config: FlowTransformerConfig;
  readonly sourceInput: SourceInput;
}

/** Prompts are cached up to this many bytes, so that small datasets are read and encoded once. */
const KEPT_BYTES = 2 ** 29;

function bytesOf({ source, flow, size }: EditorPrompt): number {
  const latents = size.channels * size.width * size.height;
  return 2 * source.data.length + 4 * (flow.text.length + flow.context.length + 2 * latents);
}

export class EditorTask implements Task<EditorPrompt, FlowAnswer>, LabeledImages<EditorPrompt, VisionEditSource> {
  readonly validation: readonly PromptSource<EditorPrompt>[];
  readonly #kept = new LRUCache<string, EditorPrompt>({ maxSize: KEPT_BYTES, sizeCalculation: bytesOf });

  /** Raises DataError for rows of several images. */
  constructor(
    readonly settings: ImageEditorSettings,
    private readonly parts: EditorParts,
  ) {
    requireSingleImage(parts.words.rowsUsed, {
      why: 'image_editor takes one',
      next: 'Remove such rows.',
    });
    this.validation = parts.words.data.prompts((source, index) => this.promptAt(source, index));
  }

  get predictsSample(): boolean {
    return this.parts.config.prediction === 'sample';
  }

  get heldOut(): readonly NamedSource<VisionEditSource>[] {
    return this.parts.words.data.heldOut;
  }

  get order(): TrainingOrder {
    return this.parts.words.order;
  }

  prompt(position: number | SamplePlace): Promise<EditorPrompt> {
    const { source, index } = this.parts.words.data.at(position);
    return this.promptAt(source, index);
  }

  /** Raises DataError for images that cannot be read or edited, and for a row without the label that the model is given. */
  async promptAt(source: VisionEditSource, index: number): Promise<EditorPrompt> {
    const key = `${source.name} ${index}`;
    const known = this.#kept.get(key);
    if (known !== undefined) return known;
    const prompt = await this.#promptOf(await this.parts.words.promptOf(source, index));
    this.#kept.set(key, prompt);
    return prompt;
  }

  async render(chunk: readonly Answers<EditorPrompt, FlowAnswer>[]): Promise<Rendered[][]> {
    const { codec, sourceInput } = this.parts;
    return Promise.all(
      chunk.map(async ({ prompt, answers, keys }) => {
        const { instruction, source, target, size, response } = prompt;
        const kept = answers.map(({ latents }) => asRecorded(latents));
        const edited = await codec.decode(kept.map(({ latents }) => unpack(latents, size, sourceInput.patch)));
        return answers.map(({ finished }, i): Rendered => ({
          item: { key: keys[i], instruction, source, truth: target, edited: edited[i], finished },
          record: kept[i].record,
          caption: response === null ? instruction : `${instruction} → ${response}`,
        }));
      }),
    );
  }

  reread(episode: RecordedEpisode): FlowAnswer {
    const { finished } = episode;
    return { latents: recordedLatents(episode), actions: [], logProbs: new Float32Array(0), finished };
  }

  async labels({ target }: EditorPrompt): Promise<{ truth: RgbImage | null }> {
    return { truth: target };
  }

  async dispose(): Promise<void> {
    const { words, reader, codec } = this.parts;
    await Promise.all([words.dispose(), reader.dispose(), codec.dispose()]);
  }

  async #promptOf(asked: TextPrompt): Promise<EditorPrompt> {
    const { images, codec, sourceInput, config } = this.parts;
    const { id, instruction, sourcePng } = asked;
    const edit = editOf(asked);
    const source = await images.read(edit.source, edit.where);
    this.#requireWhole(source, edit.source, edit.where);
    const target = edit.target === null ? null : await images.read(edit.target, edit.where);
    if (target !== null && (target.width !== source.width || target.height !== source.height)) {
      throw new DataError(
        `the source has ${source.width}x${source.height} pixels and the edited image ${target.width}x${target.height}; allowed: equal sizes`,
        { where: edit.where, next: 'Resize one of them, or remove this row.' },
      );
    }
    const [shown] = await codec.encode([source]);
    let wanted: Promise<Float32Array> | null = null;
    return {
      id,
      instruction,
      sourcePng,
      source,
      target,
      size: { channels: shown.channels, width: shown.width, height: shown.height },
      response: this.settings.reader.told === 'response' ? edit.response : null,
      flow: editCondition(await this.#told(asked, edit.where), [shown], sourceInput, config),
      wanted: () => (wanted ??= this.#latents(target, edit.where)),
    };
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

  /** The frozen model's states for image, instruction and labeled response. The system message is read but left out of the states. */
  async #told({ tokens, expected }: TextPrompt, where: string) {
    const { words, reader, seeing } = this.parts;
    const from = firstImageToken(tokens.ids, seeing);
    const tells = this.settings.reader.told === 'response';
    if (tells && expected === undefined) {
      throw new DataError('the row has no response for the model', {
        where,
        next: "Name its column in data.columns.response, remove such rows, or set reader.told to 'instruction'.",
      });
    }
    const answer = tells && expected !== undefined ? await words.labelIds(expected) : null;
    const [states] = await reader.read([{ prompt: tokens, answer, from }], reader.model.weights);
    return states;
  }

  #requireWhole({ width, height }: RgbImage, path: string, where: string): void {
    const { codec, sourceInput } = this.parts;
    const side = sourceInput.patch * codec.reduction;
    if (width % side === 0 && height % side === 0) return;
    throw new DataError(`${path}: found ${width}x${height} pixels; allowed: multiples of ${side}`, {
      where,
      next: 'Resize the image, or remove this row.',
    });
  }
}
