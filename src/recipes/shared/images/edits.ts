/** Opens datasets, vocabulary and image processor for prompts of images with an instruction. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { LRUCache } from 'lru-cache';
import { DataError } from '../../../core/errors.js';
import { encodePng, type RgbImage } from '../../../core/images/image.js';
import { Datasets } from '../../../data/datasets.js';
import {
  firstImageEdits,
  openImageEdits,
  sourceCounts,
  sourceDigest,
  sourcesOf,
  type ImageEditColumns,
  type ImageEdit,
  type SourceList,
} from '../../../data/image_edits.js';
import { readFitted } from '../../../data/image_files.js';
import type { SampleSource } from '../../../data/types.js';
import { KEPT_BYTES } from '../../../models/images/vision_input.js';
import type { RunResolver } from '../../../models/reference.js';
import { sampledSets, type SampledSet, type SampleRow } from '../../../train/scoring/sample_rows.js';
import type { ModelReference } from '../../../config/schema/model.js';
import type { TinyImageEditSettings } from '../../../data/tiny/settings.js';
import { isTiny } from '../../../data/tiny/build.js';
import { imageEditData, imageEditVocabulary } from '../../../data/tiny/image_edits.js';
import { tinyVocabulary } from '../../../data/tiny/edits.js';
import type { TokenPrompt } from '../../../models/tokenizer/format.js';
import type { Check, WantedEdit } from '../../recipe.js';
import { checkOf } from '../checks.js';
import { measuredReward } from '../../../rewards/schema/reward.js';
import { chosenTerms, SHOWN_ALL, showsOne } from '../../../rewards/score/choice.js';
import { openVisionInputs, type VisionInputs } from './vision.js';
import { openWords, bareWords, visionWords } from '../words/vocabulary.js';
import {
  WordsTask,
  type QuestionSource,
  type Question,
  type ShownImages,
  type QuestionImages,
  type TextPrompt,
  type WordsSettings,
} from '../words/task.js';
import type { VisionPolicySettings } from '../../../config/schema/token_policy.js';

/** A dataset of edits and their questions. */
export interface VisionEditSource extends QuestionSource {
  readonly edits: SampleSource<ImageEdit>;
}

interface ListedSource {
  readonly path: string;
  readonly media: string | null;
  readonly coefficient: number | null;
}

/** The settings that the prompts depend on. */
export interface VisionEditSettings extends WordsSettings {
  readonly data: {
    readonly dir: string;
    readonly train: readonly ListedSource[];
    readonly validation: readonly ListedSource[];
    readonly columns: ImageEditColumns;
    readonly tiny: TinyImageEditSettings | null;
  };
  readonly policy: WordsSettings['policy'] &
    Pick<VisionPolicySettings, 'model' | 'init' | 'pixels'> & { readonly tokenizer: ModelReference | null };
  readonly prompt: WordsSettings['prompt'] & { readonly system: string | null; readonly chat: boolean };
}

/** The task of questions with images, and the policy's image inputs. */
export interface VisionEditTask<S extends VisionEditSettings> {
  readonly words: WordsTask<S, VisionEditSource>;
  readonly seeing: VisionInputs;
  readonly images: ImageFiles;
  /**
   * Tokens that the chat template writes before the first image if its variables request them (Qwen's `add_vision_id`).
   * Else empty.
   */
  readonly imageName: readonly number[];
  /** A blank instruction with a prompt's images, as the policy reads it before it answers. */
  readonly blank: (prompt: TextPrompt) => Promise<TokenPrompt>;
}

/** Opens the tokenizer and the image processor. Raises DataError or CheckpointError for missing files. */
export async function openVisionEditTask<S extends VisionEditSettings>(
  settings: S,
  data: Datasets<VisionEditSource>,
  resolveRun: RunResolver,
): Promise<VisionEditTask<S>> {
  const { prompt } = settings;
  const words = openWords(settings, resolveRun, () => visionWords(vocabularyOf(settings), settings));
  const seeing = openVisionInputs(settings.policy, words.tokenizer, resolveRun);
  const images = new ImageFiles();
  const imageInputs = new EditImageReader(seeing, images);
  const task = await WordsTask.open(settings, { words, data, imageInputs });
  return {
    words: task,
    seeing,
    images,
    imageName:
      prompt.variables['add_vision_id'] === true
        ? await words.tokenizer.encode('Picture 1: ', { addSpecial: false })
        : [],
    blank: async ({ row, tokens: { images: shown = [] } }) => {
      const edit = editOf({ row });
      const { where } = edit;
      const ids = await task.idsOf(promptOf(BLANK, sourcesOf(edit).length, prompt), where, shown);
      return { ids, images: shown };
    },
  };
}

/** Opens the datasets of edits with their questions. Raises DataError for missing files. */
export function openEditData(
  settings: Pick<VisionEditSettings, 'seed' | 'data' | 'prompt'>,
): Promise<Datasets<VisionEditSource>> {
  const place = imageEditData.placesOf(settings);
  return Datasets.open(settings, async ({ path, media }) =>
    questionsOf(await openImageEdits(place(path), media, settings.data.columns), settings.prompt),
  );
}

/** Writes the rows of an edit with the columns that the run reads. */
export async function writeImageEdit(
  { data: { columns } }: Pick<VisionEditSettings, 'data'>,
  { image, instruction, count, folder }: WantedEdit,
): Promise<string> {
  const path = join(folder, 'edit.jsonl');
  const line = JSON.stringify({ [columns.source]: image, [columns.instruction]: instruction });
  writeFileSync(path, `${line}\n`.repeat(count));
  return path;
}

/**
 * The first edits of each dataset. The answers are the labeled image and the unchanged source. Raises DataError for an
 * invalid edit.
 */
export function sampleVisionEdits(settings: Pick<VisionEditSettings, 'data'>, count: number): Promise<SampledSet[]> {
  const { data } = settings;
  const read = async (path: string | null, where: string): Promise<RgbImage | null> =>
    path === null ? null : (await readFitted(path, where, null)).image;
  return imageEditData.sampled(settings, count, (place) =>
    sampledSets(data, async ({ path, media }) => {
      const edits = await firstImageEdits(place(path), media, data.columns, count);
      return Promise.all(
        edits.map(async (edit): Promise<SampleRow> => {
          const { instruction, response, where, further = [] } = edit;
          const [source, truth] = [await read(edit.source, where), await read(edit.target, where)];
          const beside = await Promise.all(further.map(async (file) => (await readFitted(file, where, null)).image));
          const others = beside.length === 0 ? {} : { beside };
          const label = response === null ? {} : { expected: response };
          const labeled = { what: 'the labeled image', answer: response ?? '', edited: truth };
          return {
            place: where,
            item: { instruction, source, ...others, truth, ...label, row: edit.row },
            answers: [
              ...(truth === null ? [] : [labeled]),
              { what: 'the source, unchanged, without words', answer: '', edited: source },
            ],
          };
        }),
      );
    }),
  );
}

/** Why a row may have only one source image, as the end of a sentence, and advice for rows with several. */
export interface SingleImage {
  readonly why: string;
  readonly next: string;
}

/** Like `SingleImage`, for rows with at most `most` source images. */
export interface SourceLimit extends SingleImage {
  readonly most: number;
}

type SourceCounts = ReturnType<typeof sourceCounts>;

/** The number of source images of each row that a run uses. */
export function imagesIn(rowsUsed: ReadonlyMap<VisionEditSource, number>): SourceCounts {
  return [...rowsUsed].flatMap(([{ edits }, length]) =>
    Array.from({ length }, (_, index) => {
      const edit = edits.read(index);
      return { images: sourcesOf(edit).length, where: edit.where };
    }),
  );
}

/** Raises DataError for the first row with more source images than the limit. */
export function requireSources(rows: SourceCounts, { most, why, next }: SourceLimit): void {
  const several = rows.filter(({ images }) => images > most);
  const [first] = several;
  if (first === undefined) return;
  const found = most === 1 ? 'several' : `more than ${most}`;
  throw new DataError(
    `${several.length} of ${rows.length} rows have ${found} source images (this one has ${first.images}); ${why}`,
    { where: first.where, next },
  );
}

/** A check of the first rows of each dataset. `limitOf` returns the limit in the check, or null if it is not known yet. */
export function sourceChecks<A extends readonly unknown[]>(
  { data }: Pick<VisionEditSettings, 'data'>,
  limitOf: (...known: A) => SourceLimit | null,
  ...known: A
): Check[] {
  const check = checkOf('source images', (list: SourceList, ...args: A) => {
    const limit = limitOf(...args);
    if (limit !== null) requireSources(sourceCounts(list), limit);
  });
  return [...data.train, ...data.validation]
    .filter(({ path }) => !isTiny({ data }, path))
    .map(({ path, media }) => check({ path, media, column: data.columns.source }, ...known));
}

/** Why an instruction can be about one image only if images have no names in the prompt. Null if they have, or for plain text. */
export function unnamedImages({ chat, variables }: VisionEditSettings['prompt']): SingleImage | null {
  if (!chat || variables['add_vision_id'] === true) return null;
  return {
    why: 'images have no names in the prompt, which suits the first Qwen-Image-Edit with its single image',
    next: 'Remove such rows, or use Qwen-Image-Edit-2509 or -2511 with prompt.variables.add_vision_id set to true.',
  };
}

/** The reason if a reward of a run shows its judge only one source image. Null if none does. */
export function judgedAlone(settings: Parameters<typeof measuredReward>[0]): SingleImage | null {
  const blind = chosenTerms(measuredReward(settings)).find((term) => showsOne(term, settings.reward));
  return blind === undefined ? null : { why: `reward '${blind.name}' shows the judge only one`, next: SHOWN_ALL };
}

/** Number of rows of each source that a run uses, from the first one. Held-out sources have as many as are evaluated. */
export function rowsUsedOf(
  { train, validation }: Pick<Datasets<VisionEditSource>, 'train' | 'validation'>,
  prompts: number,
): ReadonlyMap<VisionEditSource, number> {
  return new Map([
    ...train.map((source) => [source, source.length] as const),
    ...validation.map((source) => [source, Math.min(source.length, prompts)] as const),
  ]);
}

/** Maximum number of source images among the rows that a run uses. 1 without rows. */
export function maxImages(rowsUsed: ReadonlyMap<VisionEditSource, number>): number {
  return imagesIn(rowsUsed).reduce((most, { images }) => Math.max(most, images), 1);
}

/** The edit of a prompt of such a task. */
export function editOf({ row }: Pick<TextPrompt, 'row'>): ImageEdit {
  return row as unknown as ImageEdit;
}

/**
 * Index in a prompt at which its first image begins, or at which `name` begins if that precedes the image. Everything
 * before belongs to the system message or to no turn.
 */
export function firstImageToken(
  ids: readonly number[],
  { tokens }: Pick<VisionInputs, 'tokens'>,
  name: readonly number[] = [],
): number {
  const start = ids.indexOf(tokens.vision_start_token_id);
  const named = start - name.length;
  return named >= 0 && name.every((id, i) => ids[named + i] === id) ? named : start;
}

/** The vocabulary of the tiny world's grid. */
function vocabularyOf({ data }: Pick<VisionEditSettings, 'data'>): readonly string[] {
  if (data.tiny === null) return tinyVocabulary();
  const { grid, cell, names } = data.tiny;
  return imageEditVocabulary({ columns: grid, rows: grid, cell }, names);
}

function questionsOf(edits: SampleSource<ImageEdit>, prompt: VisionEditSettings['prompt']): VisionEditSource {
  return {
    name: edits.name,
    length: edits.length,
    remark: edits.remark,
    digest: edits.digest,
    id: (index) => edits.read(index).id,
    place: (index) => edits.read(index).where,
    edits,
    ask: (index) => questionOf(edits.read(index), prompt),
    row: (index) => ({ ...edits.read(index) }),
    shown: (index) => sourceDigest(edits.read(index)),
  };
}

function questionOf(edit: ImageEdit, prompt: VisionEditSettings['prompt']): Question {
  const { instruction, response } = edit;
  const label = response === null ? {} : { expected: response };
  return { prompt: promptOf(instruction, sourcesOf(edit).length, prompt), instruction, ...label };
}

/** The empty instruction of classifier-free guidance. The pipeline of Qwen-Image-Edit uses a space. */
const BLANK = ' ';

function promptOf(
  instruction: string,
  images: number,
  { system, chat }: VisionEditSettings['prompt'],
): Question['prompt'] {
  const shown = Array.from({ length: images }, () => ({ type: 'image' }) as const);
  const parts = [...shown, { type: 'text', text: instruction } as const];
  const first = system === null ? [] : [{ role: 'system', content: system }];
  return chat ? [...first, { role: 'user', content: [...parts] }] : bareWords(parts);
}

/** Reads image files and caches the latest ones. */
export class ImageFiles {
  readonly #kept = new LRUCache<string, RgbImage>({
    maxSize: KEPT_BYTES,
    sizeCalculation: ({ data }) => data.length,
  });

  /** Raises DataError with `where`. */
  async read(path: string, where: string): Promise<RgbImage> {
    const known = this.#kept.get(path);
    if (known !== undefined) return known;
    const { image } = await readFitted(path, where, null);
    this.#kept.set(path, image);
    return image;
  }
}

/** Puts the images before the words. */
class EditImageReader implements QuestionImages<VisionEditSource> {
  constructor(
    readonly inputs: VisionInputs,
    private readonly images: ImageFiles,
  ) {}

  maxSideTokens({ edits }: VisionEditSource, index: number): number {
    return sourcesOf(edits.read(index)).length * this.inputs.processor.mostImageTokens;
  }

  async show({ edits }: VisionEditSource, index: number): Promise<ShownImages> {
    const edit = edits.read(index);
    const { where } = edit;
    const pixels = await Promise.all(sourcesOf(edit).map((file) => this.images.read(file, where)));
    const images = pixels.flatMap((image) => this.inputs.processor.inputs(image, where));
    return {
      images,
      png: () => encodePng(pixels[0]),
    };
  }
}
