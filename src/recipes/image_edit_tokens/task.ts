/** The task of `image_edit_tokens`: connects edit datasets, the joint vocabulary and the vision-token decoder (EARL). */
import { editData } from '../../data/tiny/dataset.js';
import type { ImageEditSettings } from './settings.js';
import { DataError, RunError } from '../../core/errors.js';
import { decodeImage, encodePng, type RgbImage } from '../../core/images/image.js';
import { Datasets, type TrainingOrder } from '../../data/datasets.js';
import { openEditDataset } from '../../data/edits.js';
import type { SamplePlace } from '../../data/sampler.js';
import type { CodeGrid, EditSample, SampleSource } from '../../data/types.js';
import { sessionOptions } from '../../compute/onnx/session.js';
import { loadVisionTokenizer } from '../../train/environments/vision_tokens.js';
import type { VisionTokenizer } from '../../train/environments/vision_tokenizer.js';
import { modelFolder, type RunResolver } from '../../models/reference.js';
import type { TokenAnswer, TokenRequest } from '../../train/policies/tokens/batch.js';
import { type Emu3Prompt, THINKING, TokenSpace } from '../../train/policies/tokens/emu3.js';
import { openTokenizer } from '../../models/tokenizer/open.js';
import type { Tokenizer } from '../../models/tokenizer/tokenizer.js';
import type { RecordedEpisode } from '../../run/episodes.js';
import type { Answers, Prompt, PromptSource, Rendered, Task } from '../../train/scoring/task.js';

/** A prompt of the task, ready for the policy. */
export interface EditPrompt extends Prompt, TokenRequest<Emu3Prompt> {
  readonly sample: EditSample;
}

/** The joint vocabulary of words and image codes. Raises DataError or CheckpointError for missing files. */
export function spaceOf({ policy }: ImageEditSettings, resolveRun: RunResolver): TokenSpace {
  const { chat_words, image_header, end_after_image } = policy;
  const forms = { chatWords: chat_words, imageHeader: image_header, endAfterImage: end_after_image };
  return new TokenSpace(openTokenizer(modelFolder(policy.tokenizer, resolveRun)), forms);
}

export class ImageEditTask implements Task<EditPrompt, TokenAnswer> {
  readonly validation: readonly PromptSource<EditPrompt>[];

  private constructor(
    readonly settings: ImageEditSettings,
    readonly tokenizer: Tokenizer,
    readonly space: TokenSpace,
    readonly environment: VisionTokenizer,
    readonly data: Datasets<SampleSource<EditSample>>,
  ) {
    this.validation = data.prompts(async (source, index) => this.promptOf(source.read(index)));
  }

  /** Opens datasets and loads the frozen models. Raises DataError or CheckpointError for missing files. */
  static open(settings: ImageEditSettings, resolveRun: RunResolver): ImageEditTask {
    const space = spaceOf(settings, resolveRun);
    const environment = loadVisionTokenizer(
      modelFolder(settings.environment.model, resolveRun),
      sessionOptions(settings.environment.engine),
    );
    space.requireCodes(environment.config.codebook_size);
    const placed = editData(environment).placesOf(settings);
    const data = Datasets.of(settings, ({ path }) => openEditDataset(placed(path)));
    for (const source of data.sources) requireCodesOf(environment.id, source);
    return new ImageEditTask(settings, space.tokenizer, space, environment, data);
  }

  /** Whether answers begin with reasoning, because the prefill opens a thinking block. */
  get thinks(): boolean {
    return this.settings.policy.assistant_prefill.includes(THINKING.start);
  }

  /** The sample at a global position of the endless training order, or at a place in a dataset. */
  trainingSample(position: number | SamplePlace): EditSample {
    const { source, index } = this.data.at(position);
    return source.read(index);
  }

  get order(): TrainingOrder {
    return this.data.order;
  }

  async prompt(position: number | SamplePlace): Promise<EditPrompt> {
    return this.promptOf(this.trainingSample(position));
  }

  /** Checks the first sample of every dataset. Raises the DataErrors of `promptOf`. */
  async checkFirst(): Promise<void> {
    for (const source of this.data.sources) await this.promptOf(source.read(0));
  }

  /**
   * Builds a prompt. Raises DataError for codes that the image tokenizer does not have, and when the context leaves no
   * room for an image.
   */
  async promptOf(sample: EditSample): Promise<EditPrompt> {
    for (const { codes } of sample.target === null ? [sample.source] : [sample.source, sample.target]) {
      const wrong = codes.find((code) => code >= this.space.visionCount);
      if (wrong === undefined) continue;
      throw new DataError(`there is no code ${wrong}: the image tokenizer has ${this.space.visionCount}`, {
        where: sample.id,
        next: 'Name the image tokenizer that wrote the samples in environment.model, and its vocabulary in policy.tokenizer.',
      });
    }
    const { assistant_prefill, model_context_size } = this.settings.policy;
    const ids = this.space.prompt(sample.source, await this.space.words(sample.instruction, assistant_prefill));
    const { height, width } = sample.source;
    const imageOpen = this.space.opensImage(ids);
    const needed = this.space.answer(sample.source, [], imageOpen).length;
    if (ids.length + needed > model_context_size) {
      throw new DataError(
        `a prompt of ${ids.length} tokens and an image of ${needed} exceed model_context_size ${model_context_size}`,
        { where: sample.id, next: 'Raise policy.model_context_size, or leave this sample out.' },
      );
    }
    const { id, instruction } = sample;
    const tokens = { ids, height, width, imageOpen };
    return { id, instruction, sourcePng: () => this.#sourcePng(sample), sample, tokens };
  }

  render(chunk: readonly Answers<EditPrompt, TokenAnswer>[]): Promise<Rendered[][]> {
    return Promise.all(chunk.map((group) => this.#renderGroup(group)));
  }

  reread({ key, tokens, finished }: RecordedEpisode): TokenAnswer {
    if (tokens === undefined) throw new RunError('the record of an episode has no tokens', { where: key });
    return { ids: Int32Array.from(tokens), logProbs: new Float32Array(tokens.length), finished };
  }

  async labels({ sample }: EditPrompt): Promise<{ truth: RgbImage | null }> {
    return { truth: await this.#image(sample.targetPng, sample.target, sample.id) };
  }

  async dispose(): Promise<void> {
    await this.environment.dispose();
  }

  async #sourcePng({ source, sourcePng }: EditSample): Promise<Uint8Array> {
    if (sourcePng !== null) return sourcePng;
    const [image] = await this.environment.decode([source]);
    return encodePng(image);
  }

  /** Decodes the image file, or else the codes. Null without either. */
  async #image(png: Uint8Array | null, codes: CodeGrid | null, id: string): Promise<RgbImage | null> {
    if (png !== null) return decodeImage(png, id);
    return codes === null ? null : (await this.environment.decode([codes]))[0];
  }

  async #renderGroup({ prompt, answers, keys }: Answers<EditPrompt, TokenAnswer>): Promise<Rendered[]> {
    const { sample, instruction } = prompt;
    const parsed = answers.map(({ ids }) => this.space.parse(ids, prompt.tokens.imageOpen));
    const grids = parsed.flatMap(({ grid }) => (grid === null ? [] : [grid]));
    const decoded = await this.environment.decode(grids);
    const source = await this.#image(sample.sourcePng, sample.source, sample.id);
    const { truth } = await this.labels(prompt);
    let next = 0;
    return parsed.map(({ text, grid }, i): Rendered => {
      const edited = grid === null ? null : decoded[next++];
      const { ids, finished } = answers[i];
      return {
        item: { key: keys[i], instruction, source, truth, edited, finished },
        record: {
          text,
          tokens: [...ids],
          grid: grid === null ? null : { height: grid.height, width: grid.width, codes: [...grid.codes] },
        },
        caption: this.thinks ? withThought(instruction, text) : instruction,
      };
    });
  }
}

/** The instruction, followed in brackets by the text that the policy wrote before the image. */
export function withThought(instruction: string, text: string): string {
  const words = text.replaceAll(/<\|[^|]*\|>/g, '').trim();
  return words === '' ? instruction : `${instruction} (${words})`;
}

/** Raises DataError when a dataset's codes come from another tokenizer, because they would decode to other images. */
function requireCodesOf(id: string, { tokenizer, name }: SampleSource<EditSample>): void {
  if ((tokenizer ?? id) === id) return;
  throw new DataError('the samples are written in the codes of another image tokenizer than environment.model', {
    where: name,
    next: 'Name the tokenizer that they were packed with, or pack them in the codes of this one (editrl data pack --tokenizer, with another --out).',
  });
}
