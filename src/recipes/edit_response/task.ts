/** The task of `edit_response`: a text task over pictures, and the edited picture that each response leads to. */
import { DataError, InternalError } from '../../core/errors.js';
import type { RgbImage } from '../../core/image.js';
import type { Planes } from '../../core/planes.js';
import { RandomStream } from '../../core/random.js';
import { resizeCubic } from '../../core/resize.js';
import type { PictureCodec } from '../../environments/picture_codec.js';
import { smartSize } from '../../models/pictures/processor.js';
import type { FlowEditor } from '../../policies/flow/editor.js';
import type { WeightsOf } from '../../policies/policy.js';
import type { TokenAnswer } from '../../policies/tokens/batch.js';
import type { HiddenStates, ToRead } from '../../policies/tokens/hidden_states.js';
import type { JudgeItem } from '../../rewards/score/types.js';
import type { RecordedEpisode } from '../../run/episodes.js';
import type { EditorSettings } from '../../schema/editor.js';
import type { Answers, PromptSource, Rendered, Task } from '../../scoring/task.js';
import { editOf, pictureStart, type PicturedSource, type PictureFiles, type PicturedTask } from '../open_pictured.js';
import type { Seeing } from '../open_seeing.js';
import type { TextPrompt, WordsTask } from '../open_words_task.js';
import { asRecorded, recordedLatents } from '../open_recorded_latents.js';
import type { EditResponseSettings } from './settings.js';

/** What a policy answers here; one from a record comes with the picture that it led to. */
export interface ResponseAnswer extends TokenAnswer {
  readonly latents?: Float32Array;
}

/** Reads with the weights that answered; null where there are none any more, and pictures come from records. */
export type ReadStates = (items: readonly ToRead[], of: Exclude<WeightsOf, 'reference'>) => Promise<HiddenStates[]>;

/** What draws. */
export interface Drawing {
  readonly editor: FlowEditor;
  readonly codec: PictureCodec;
  readonly read: ReadStates | null;
}

export class ResponseTask implements Task<TextPrompt, ResponseAnswer> {
  readonly validation: readonly PromptSource<TextPrompt>[];
  readonly #words: WordsTask<EditResponseSettings, PicturedSource>;
  readonly #seeing: Seeing;
  readonly #pictures: PictureFiles;

  constructor(
    { words, seeing, pictures }: PicturedTask<EditResponseSettings>,
    private readonly environment: EditorSettings,
    private readonly drawing: Drawing,
  ) {
    this.#words = words;
    this.#seeing = seeing;
    this.#pictures = pictures;
    this.validation = words.validation;
  }

  get promptsPerIteration(): number {
    return this.#words.promptsPerIteration;
  }

  prompt(globalIndex: number): Promise<TextPrompt> {
    return this.#words.prompt(globalIndex);
  }

  /** A chunk's pictures are drawn together. Raises DataError for a picture that cannot be read, or whose sides the model cannot edit. */
  async render(
    chunk: readonly Answers<TextPrompt, ResponseAnswer>[],
    weights: Exclude<WeightsOf, 'reference'>,
  ): Promise<Rendered[][]> {
    const written = await this.#words.render(chunk);
    const sources = await Promise.all(chunk.map(({ prompt }) => this.#source(prompt)));
    const shown = await this.drawing.codec.encode(sources);
    const drawn = await this.#draw(chunk, shown, weights);
    const kept = drawn.map((group) => group.map(asRecorded));
    const planes = kept.flatMap((group, p) => group.map(({ latents }) => ({ ...shown[p], data: latents })));
    const edited = await this.drawing.codec.decode(planes);
    const truths = await Promise.all(chunk.map(({ prompt }) => this.labels(prompt)));
    let at = 0;
    return written.map((group, p) =>
      group.map((rendered, g): Rendered => {
        const { instruction, answer } = rendered.item;
        const item = { ...rendered.item, source: sources[p], edited: edited[at++], truth: truths[p].truth };
        const record = { ...rendered.record, answer, ...kept[p][g].record };
        return { ...rendered, item, record, caption: `${instruction} → ${answer ?? ''}` };
      }),
    );
  }

  reread(episode: RecordedEpisode): ResponseAnswer {
    return { ...this.#words.reread(episode), latents: recordedLatents(episode) };
  }

  async labels(prompt: TextPrompt): Promise<Pick<JudgeItem, 'truth' | 'expected' | 'row'>> {
    const { target, where } = editOf(prompt);
    const { expected } = prompt;
    return {
      truth: target === null ? null : await this.#fitted(target, where),
      ...(expected === undefined ? {} : { expected }),
      row: prompt.row,
    };
  }

  async dispose(): Promise<void> {
    const { editor, codec } = this.drawing;
    await Promise.all([this.#words.dispose(), editor.dispose(), codec.dispose()]);
  }

  /** Latents of the edited pictures, by prompt and answer. */
  async #draw(
    chunk: readonly Answers<TextPrompt, ResponseAnswer>[],
    shown: readonly Planes[],
    weights: Exclude<WeightsOf, 'reference'>,
  ): Promise<Float32Array[][]> {
    const recorded = chunk.map(({ answers }) => answers.map(({ latents }) => latents ?? null));
    if (recorded.every((group) => group.every((latents) => latents !== null))) return recorded;
    const { read, editor } = this.drawing;
    if (read === null) throw new InternalError('answers without pictures, and no policy to draw them by');
    const perAnswer = chunk.map(({ prompt, answers }) => answers.map((answer) => this.#toRead(prompt, answer)));
    const states = await read(perAnswer.flat(), weights);
    const edits = perAnswer.flatMap((group, p) =>
      group.map((_, g) => ({ source: shown[p], random: this.#noise(chunk[p].prompt, g) })),
    );
    const made = await editor.draw(edits.map((edit, i) => ({ ...edit, told: states[i] })));
    let at = 0;
    return perAnswer.map((group) => group.map(() => made[at++].data));
  }

  /** The picture, the instruction and exactly the tokens that were sampled; what the system says is read, and not told. */
  #toRead({ tokens }: TextPrompt, { ids }: TokenAnswer): ToRead {
    const from = pictureStart(tokens.ids, this.#seeing);
    return { prompt: tokens, answer: this.environment.told === 'response' ? ids : null, from };
  }

  #noise({ id }: TextPrompt, answer: number): RandomStream {
    const { same_latent: same } = this.environment;
    return new RandomStream(this.#words.settings.seed, 'edit', id, same ? 0 : answer);
  }

  #source(prompt: TextPrompt): Promise<RgbImage> {
    const { source, where } = editOf(prompt);
    return this.#fitted(source, where);
  }

  /** A picture as it is edited and judged. */
  async #fitted(path: string, where: string): Promise<RgbImage> {
    const image = await this.#pictures.read(path, where);
    const side = this.drawing.editor.patch * this.drawing.codec.reduction;
    const { max_pixels: most } = this.environment;
    const { width, height } = image;
    const fits = width % side === 0 && height % side === 0;
    if (fits && (most === null || width * height <= most)) return image;
    if (most === null) {
      throw new DataError(`${path}: found ${width}x${height} pixels; allowed: multiples of ${side}`, {
        where,
        next: 'Resize the picture, or set environment.max_pixels, with which pictures are fitted.',
      });
    }
    const size = smartSize(height, width, side, { min_pixels: 1, max_pixels: most });
    return resizeCubic(image, Math.max(side, size.width), Math.max(side, size.height));
  }
}
