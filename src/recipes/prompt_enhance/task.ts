/** The task of `prompt_enhance`: prompts and text answers, and an image of every answer. */
import { DataError } from '../../core/errors.js';
import type { RgbImage } from '../../core/images/image.js';
import { RandomStream } from '../../core/random.js';
import type { TrainingOrder } from '../../data/datasets.js';
import type { Row } from '../../data/rows.js';
import type { SamplePlace } from '../../data/sampler.js';
import { judgedImage, SEEDS, type ImageModel } from '../../train/environments/image_model.js';
import type { TokenAnswer } from '../../train/policies/tokens/batch.js';
import type { RecordedEpisode } from '../../run/episodes.js';
import type { Answers, PromptSource, Rendered, Task } from '../../train/scoring/task.js';
import type { QuestionSource, TextPrompt, WordsTask } from '../shared/words/task.js';
import { wordAnswers, type SampledSet } from '../../train/scoring/sample_rows.js';
import { parseImageSize } from '../../config/schema/images_api.js';
import { questionOf, sampleRowsOf } from '../text_answers/task.js';
import { rewriteOf } from './rewrite.js';
import type { PromptEnhanceSettings } from './settings.js';

/**
 * The first rows of each dataset. The rewrites are the user's own words, the label, and nothing, each with a gray
 * image.
 */
export function sampleRewrites(settings: PromptEnhanceSettings, count: number): Promise<SampledSet[]> {
  const gray = grayImage(settings.environment);
  return sampleRowsOf(settings, count, (row, place) => {
    const { expected } = questionOf(row, settings, place);
    const labeled = { instruction: ownWords(row, settings, place), ...(expected === undefined ? {} : { expected }) };
    const answers = wordAnswers(labeled, gray).map((one) => ({ ...one, what: `${one.what}, with a gray image` }));
    return { place, item: { ...labeled, source: null, truth: null, row }, answers };
  });
}

/** A gray image at the size of the environment. */
function grayImage(environment: PromptEnhanceSettings['environment']): RgbImage {
  const { width, height } = environment.type === 'model' ? environment : parseImageSize(environment.size);
  return { width, height, data: new Uint8Array(width * height * 3).fill(128) };
}

export class EnhanceTask implements Task<TextPrompt, TokenAnswer> {
  readonly validation: readonly PromptSource<TextPrompt>[];

  constructor(
    readonly settings: PromptEnhanceSettings,
    readonly words: WordsTask,
    private readonly images: ImageModel,
  ) {
    this.validation = words.validation.map((source) => ({
      ...source,
      prompt: async (index) => this.#withOwnWords(await source.prompt(index)),
    }));
  }

  get order(): TrainingOrder {
    return this.words.order;
  }

  async prompt(position: number | SamplePlace): Promise<TextPrompt> {
    return this.#withOwnWords(await this.words.prompt(position));
  }

  /** Generates a chunk's images in one batch. */
  async render(chunk: readonly Answers<TextPrompt, TokenAnswer>[]): Promise<Rendered[][]> {
    const written = await this.words.render(chunk);
    const rewritten = written.map((group) => group.map(({ item, thought }) => rewriteOf(item.answer ?? '', thought)));
    const made = await this.images.generate(
      chunk.flatMap(({ prompt, keys }, p) =>
        keys.map((key, g) => ({ key, prompt: rewritten[p][g].prompt, seed: this.seedOf(prompt, g) })),
      ),
    );
    let at = 0;
    return written.map((group, p) =>
      group.map((rendered, g): Rendered => {
        const { prompt, stripped } = rewritten[p][g];
        const image = made[at++];
        const unread = image.kind === 'made' && image.unread !== undefined ? { unread: image.unread } : {};
        return {
          ...rendered,
          item: { ...rendered.item, answer: prompt, ...judgedImage(image) },
          record: { ...rendered.record, answer: prompt, stripped, ...unread },
          caption: `${rendered.item.instruction} → ${prompt}`,
        };
      }),
    );
  }

  async keep(): Promise<void> {
    await this.images.keep?.();
  }

  reread(episode: RecordedEpisode): TokenAnswer {
    return this.words.reread(episode);
  }

  async labels(prompt: TextPrompt): ReturnType<Task<TextPrompt, TokenAnswer>['labels']> {
    return { ...(await this.words.labels(prompt)), row: prompt.row };
  }

  async dispose(): Promise<void> {
    await Promise.all([this.words.dispose(), this.images.close()]);
  }

  /** Replaces the instruction by the user's own words, which rewards compare with whatever the template is. */
  #withOwnWords(prompt: TextPrompt): TextPrompt {
    return { ...prompt, instruction: ownWords(prompt.row, this.settings, prompt.id) };
  }

  /** Seed of the initial noise of an answer's image. */
  seedOf({ id }: TextPrompt, answer: number): number {
    const { seed, rollout } = this.settings;
    return new RandomStream(seed, 'picture', id, rollout.same_latent ? 0 : answer).integer(SEEDS);
  }
}

/**
 * The user's last words in a row. Raises DataError, with `where`, for a row without the prompt column or with another
 * form.
 */
function ownWords(row: Row, { prompt, data }: OwnWords, where: string): string {
  const alone = { ...prompt, template: null, system: null, examples: [], chat: true };
  return questionOf(row, { prompt: alone, data: { columns: { ...data.columns, expected: null } } }, where).instruction;
}

type OwnWords = Pick<PromptEnhanceSettings, 'prompt' | 'data'>;

/** Raises DataError for a row that the run uses without words of the user, even if a template adds other columns. */
export function checkPrompts(settings: OwnWords, rowsUsed: ReadonlyMap<QuestionSource, number>): void {
  for (const [source, rows] of rowsUsed) {
    for (let index = 0; index < rows; index++) {
      const where = source.place(index);
      if (ownWords(source.row(index), settings, where).trim() !== '') continue;
      throw new DataError('the prompt is empty', { where, next: 'Remove this row.' });
    }
  }
}
