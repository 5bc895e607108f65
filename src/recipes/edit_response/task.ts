/** The task of `edit_response`: prompts of images with text, and an edited image for each response. */
import type { RgbImage } from '../../core/images/image.js';
import { RandomStream } from '../../core/random.js';
import type { TrainingOrder } from '../../data/datasets.js';
import { sourcesOf } from '../../data/image_edits.js';
import type { SamplePlace } from '../../data/sampler.js';
import { judgedImage } from '../../train/environments/image_model.js';
import type { WeightsOf } from '../../train/policies/policy.js';
import type { TokenAnswer } from '../../train/policies/tokens/batch.js';
import type { StatesRequest } from '../../train/policies/tokens/hidden_states.js';
import type { JudgeItem } from '../../rewards/score/types.js';
import type { RecordedEpisode } from '../../run/episodes.js';
import type { EditorSettings } from '../../config/schema/editor.js';
import type { Answers, PromptSource, Rendered, Task } from '../../train/scoring/task.js';
import {
  editOf,
  maxImages,
  firstImageToken,
  type VisionEditSource,
  type ImageFiles,
  type VisionEditTask,
} from '../shared/images/edits.js';
import type { VisionInputs } from '../shared/images/vision.js';
import type { TextPrompt, WordsTask } from '../shared/words/task.js';
import type { BlankEdit, Drawing, ResponseAnswer } from './drawing.js';
import type { EditResponseSettings } from './settings.js';

/** Settings that determine the input of the editing model. */
type EditorInput = Pick<EditorSettings, 'told' | 'same_latent'> & { readonly picture_names?: boolean };

export class ResponseTask implements Task<TextPrompt, ResponseAnswer> {
  readonly validation: readonly PromptSource<TextPrompt>[];
  readonly sources: number;
  readonly #words: WordsTask<EditResponseSettings, VisionEditSource>;
  readonly #seeing: VisionInputs;
  readonly #images: ImageFiles;
  readonly #blank: VisionEditTask<EditResponseSettings>['blank'];
  readonly #name: readonly number[];

  constructor(
    { words, seeing, images, blank, imageName }: VisionEditTask<EditResponseSettings>,
    private readonly input: EditorInput,
    private readonly drawing: Drawing,
  ) {
    this.#words = words;
    this.#seeing = seeing;
    this.#images = images;
    this.#blank = blank;
    this.#name = input.picture_names === true ? imageName : [];
    this.validation = words.validation;
    this.sources = maxImages(words.rowsUsed);
  }

  get order(): TrainingOrder {
    return this.#words.order;
  }

  prompt(position: number | SamplePlace): Promise<TextPrompt> {
    return this.#words.prompt(position);
  }

  /**
   * Generates a chunk's images in one batch. Raises DataError for an image that cannot be read or whose size cannot be
   * edited.
   */
  async render(
    chunk: readonly Answers<TextPrompt, ResponseAnswer>[],
    weights: Exclude<WeightsOf, 'reference'>,
  ): Promise<Rendered[][]> {
    const written = await this.#words.render(chunk);
    const sources = await Promise.all(chunk.map(({ prompt }) => this.#sources(prompt)));
    const blanks = await Promise.all(chunk.map(({ prompt }) => this.#blankOf(prompt)));
    const usesResponse = this.input.told === 'response';
    const edits = chunk.flatMap(({ prompt, answers, keys }, p) =>
      answers.map((answer, g) => ({
        key: keys[g],
        source: sources[p][0],
        further: sources[p].slice(1),
        words: usesResponse ? (written[p][g].item.answer ?? '') : prompt.instruction,
        read: this.#toRead(prompt, answer),
        blank: blanks[p],
        random: this.#noise(prompt, g),
        answer,
      })),
    );
    const drawn = await this.drawing.draw(edits, weights);
    const truths = await Promise.all(chunk.map(({ prompt }) => this.#truth(prompt)));
    let at = 0;
    return written.map((group, p) =>
      group.map((rendered): Rendered => {
        const { instruction, answer } = rendered.item;
        const { image, record } = drawn[at++];
        const [source, ...beside] = sources[p];
        const others = beside.length === 0 ? {} : { beside };
        return {
          ...rendered,
          item: {
            ...rendered.item,
            source,
            ...others,
            ...judgedImage(image),
            truth: truths[p],
            row: editOf(chunk[p].prompt).row,
          },
          record: { ...rendered.record, answer, ...record, ...(beside.length === 0 ? {} : { beside: beside.length }) },
          caption: `${instruction} → ${answer ?? ''}`,
        };
      }),
    );
  }

  async keep(): Promise<void> {
    await this.drawing.keep?.();
  }

  reread(episode: RecordedEpisode): ResponseAnswer {
    return { ...this.#words.reread(episode), ...this.drawing.remembered(episode) };
  }

  async labels(prompt: TextPrompt): Promise<Pick<JudgeItem, 'beside' | 'truth' | 'mask' | 'expected' | 'row'>> {
    const { further = [], where, row } = editOf(prompt);
    const { expected } = prompt;
    const beside = await Promise.all(further.map((file) => this.#fitted(file, where)));
    return {
      ...(beside.length === 0 ? {} : { beside }),
      truth: await this.#truth(prompt),
      ...(expected === undefined ? {} : { expected }),
      row,
    };
  }

  async dispose(): Promise<void> {
    await Promise.all([this.#words.dispose(), this.drawing.dispose()]);
  }

  /**
   * The images, the instruction and exactly the sampled tokens. The policy reads the system message, but its states are
   * left out.
   */
  #toRead({ tokens }: TextPrompt, { ids }: TokenAnswer): StatesRequest {
    const from = firstImageToken(tokens.ids, this.#seeing, this.#name);
    return { prompt: tokens, answer: this.input.told === 'response' ? ids : null, from };
  }

  async #blankOf(prompt: TextPrompt): Promise<BlankEdit | null> {
    if (!this.drawing.asksBlank) return null;
    const tokens = await this.#blank(prompt);
    const from = firstImageToken(tokens.ids, this.#seeing, this.#name);
    return { image: sourcesOf(editOf(prompt)).join('\0'), read: { prompt: tokens, answer: null, from } };
  }

  #noise({ id }: TextPrompt, answer: number): RandomStream {
    return new RandomStream(this.#words.settings.seed, 'edit', id, this.input.same_latent ? 0 : answer);
  }

  async #truth(prompt: TextPrompt): Promise<RgbImage | null> {
    const { target, where } = editOf(prompt);
    return target === null ? null : this.#fitted(target, where);
  }

  #sources(prompt: TextPrompt): Promise<RgbImage[]> {
    const edit = editOf(prompt);
    return Promise.all(sourcesOf(edit).map((file) => this.#fitted(file, edit.where)));
  }

  async #fitted(path: string, where: string): Promise<RgbImage> {
    return this.drawing.fitted(await this.#images.read(path, where), path, where);
  }
}
