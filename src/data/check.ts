/**
 * Datasets of every kind: reads one completely, so that problems are known before a run needs it, and opens it to
 * compare its samples.
 */
import { existsSync, readdirSync, realpathSync, statSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { basename, extname, join, relative } from 'node:path';
import pLimit from 'p-limit';
import { DataError } from '../core/errors.js';
import { decodeImage, type RgbImage } from '../core/images/image.js';
import { inBrief } from '../core/text.js';
import { comparedCaption, openCaptioned } from './captioned.js';
import {
  CONVERSATIONS_NAME,
  type UsualSampling,
  type VideoQuestion,
  clipOf,
  isQuestionList,
  readQuestions,
  inputDigest,
} from './conversations.js';
import { DATALIST_NAME, missingFileAdvice, openDatalist } from './datalist.js';
import { comparedEdit, openEditDataset, openImageDataset } from './edits.js';
import { readTriplet } from './inpainting.js';
import { type ComparedSample, type ComparedSet, pixelDigest } from './overlap.js';
import {
  IMAGE_EDIT_COLUMNS,
  type ImageEditColumns,
  mayHoldRows,
  readImageEdits,
  sourceDigest,
  sourcesOf,
} from './image_edits.js';
import { imageBytes, readFitted } from './image_files.js';
import { type RowSource, checkRows, isSayable, missingColumn, readRows, mediaBeside, valueAt } from './rows.js';
import { type PromptCheck, SELF_BENCH_NAME, SelfBench, comparedInpaint, readSelfBench } from './self_bench.js';
import { type SampleSource, oneOf } from './types.js';

export interface DatasetReport {
  /** The list that was read. */
  readonly path: string;
  readonly kind: 'edits' | 'images' | 'inpainting' | 'videos' | 'pictured' | 'captioned' | 'texts';
  readonly samples: number;
  /** Edits with the answer's codes. Rows with a response or an edited image, or with expected words. */
  readonly labelled: number;
  /** Width and height in codes or pixels, as `6x4`, of all samples. Several if they differ. */
  readonly sizes: readonly string[];
  /** The problems found: of edits and images at most MAX_PROBLEMS, otherwise all. */
  readonly problems: readonly DataError[];
  /** A remark for the user about how the list was read. */
  readonly remark: string | null;
}

/** The use of a dataset in a run, as far as it affects the checks. */
export interface DatasetUse {
  /** Checks each prompt of inpainting samples. */
  readonly checkPrompt?: PromptCheck;
  /** The side of the squares to which inpainting samples are resized. Absent: no resizing. */
  readonly resolution?: number;
  /** The folder to which paths of questions about videos and of edits in rows are relative. Absent: the list's own. */
  readonly media?: string;
  /** The columns of rows that are called otherwise than by default. */
  readonly columns?: Readonly<Partial<ImageEditColumns & TextColumns>>;
  /** The minimum of frames of each segment of a video whose own sample has none. Absent: 1. */
  readonly minFrames?: number;
  /**
   * Returns the parts of a label that a person should check, such as "(2023)". Empty without any. Called only for
   * questions about videos.
   */
  readonly suspects?: (label: string) => readonly string[];
  /** Called with how many of a list's questions about videos have been checked. */
  readonly onProgress?: (done: number, total: number) => void;
}

/** The check of lists of these kinds stops at this number of unreadable samples. */
const MAX_PROBLEMS = 20;
const GIVEN_UP: readonly DatasetReport['kind'][] = ['edits', 'images'];

const LISTS: readonly string[] = [DATALIST_NAME, SELF_BENCH_NAME, CONVERSATIONS_NAME];

/**
 * The lists below a folder (`<root>/<name>/<split>/list/…`, `<root>/…/self_bench.txt`, `<root>/…/conversations.json`),
 * otherwise the files of rows in it, or the one list at a path. Raises DataError without any.
 */
export function findDatalists(path: string): string[] {
  if (!existsSync(path)) {
    throw new DataError('there is no dataset here', { where: path, next: missingFileAdvice(path) });
  }
  if (!statSync(path).isDirectory()) return [path];
  const own = [join('list', DATALIST_NAME), SELF_BENCH_NAME, CONVERSATIONS_NAME]
    .map((name) => join(path, name))
    .filter((list) => existsSync(list));
  if (own.length > 0) return own;
  const found = readdirSync(path, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && LISTS.includes(entry.name))
    .map((entry) => join(entry.parentPath, entry.name));
  // Node 24 follows links to folders, Node 20 does not: a list that a link leads to is counted once.
  const top = realpathSync(path);
  const lists = found.filter((list) => realpathSync(list) === join(top, relative(path, list))).sort();
  const rows = readdirSync(path).filter(mayHoldRows).sort();
  if (lists.length === 0 && rows.length > 0) return rows.map((name) => join(path, name));
  if (lists.length === 0) {
    throw new DataError(`no ${LISTS.join(', ')} below this folder, and no .jsonl or .parquet in it`, {
      where: path,
      next: missingFileAdvice(path),
    });
  }
  return lists;
}

/** The findings of reading a whole dataset. */
class Tally {
  labelled = 0;
  readonly sizes = new Set<string>();
  readonly #problems = new Map<number, DataError[]>();

  /** Does a part of the work on sample `index` and records its DataError. Raises other errors. */
  async try(index: number, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (cause) {
      if (!(cause instanceof DataError)) throw cause;
      this.#problems.set(index, [...(this.#problems.get(index) ?? []), cause]);
    }
  }

  size({ height, width }: { readonly height: number; readonly width: number }): void {
    this.sizes.add(`${width}x${height}`);
  }

  /** In the order of the samples. */
  get problems(): readonly DataError[] {
    return [...this.#problems].sort(([a], [b]) => a - b).flatMap(([, problems]) => problems);
  }
}

/** A dataset of any kind, opened to be read through or compared. */
interface OpenedList {
  readonly path: string;
  /** All samples, including broken ones that cannot be read. */
  readonly samples: number;
  readonly length: number;
  readonly remark: string | null;
  /** Problems that show without reading samples. */
  readonly problems: readonly DataError[];
  /** Reads a sample completely and records the findings. May raise DataError. */
  readonly check: (index: number, tally: Tally) => Promise<void>;
  readonly compare: (index: number) => ComparedSample;
}

/** Opens a dataset of each kind. They raise DataError if the list itself cannot be read. */
const openers: Readonly<Record<DatasetReport['kind'], (path: string, use: DatasetUse) => Promise<OpenedList>>> = {
  edits: async (path) => {
    const source = openEditDataset(path);
    return {
      ...whole(source, openDatalist(path).path),
      check: async (index, tally) => {
        const { id, source: grid, target, sourcePng, targetPng } = source.read(index);
        if (target !== null) tally.labelled += 1;
        for (const one of [grid, target]) if (one !== null) tally.size(one);
        for (const png of [sourcePng, targetPng]) if (png !== null) await decodeImage(png, id);
      },
      compare: (index) => comparedEdit(source, index),
    };
  },
  images: async (path) => {
    const source = openImageDataset(path);
    return {
      ...whole(source, openDatalist(path).path),
      check: async (index, tally) => {
        const { bytes, path: file } = source.read(index);
        tally.size(await decodeImage(bytes, file));
      },
      compare: (index) => {
        const { id, bytes, path: file } = source.read(index);
        return { id, words: '', image: () => pixelDigest(bytes, file) };
      },
    };
  },
  inpainting: async (path, { checkPrompt, resolution }) => {
    const list = readSelfBench(path, checkPrompt);
    const source = new SelfBench(path, list);
    const { samples, problems } = list;
    return {
      ...{ path: list.path, samples, length: source.length, remark: null, problems },
      check: async (index, tally) => tally.size((await readTriplet(source.read(index), resolution)).ref),
      compare: (index) => comparedInpaint(source, index),
    };
  },
  videos: async (path, { media, minFrames = 1, suspects }) => {
    const { path: file, samples, problems } = readQuestions(path, media);
    const usual: UsualSampling = { minFrames, maxFrames: Math.max(8, minFrames), interval: 2 };
    const questions = samples.flatMap(({ question, place }) => (question === null ? [] : [{ question, place }]));
    const length = questions.length;
    return {
      ...{ path: file, samples: samples.length, length, problems },
      remark: suspects === undefined ? null : largeNumbers(questions, suspects),
      check: async (index, tally) => {
        const { question, place } = questions[index];
        const frames = question.video === null ? [] : (await clipOf(question, usual, place)).frames;
        const images: RgbImage[] = [];
        for (const image of question.images) images.push((await readFitted(image, place, null)).image);
        tally.size([...frames, ...images][0]);
      },
      compare: (index) => {
        const { question, place } = questions[index];
        return { id: place, words: JSON.stringify(question.turns), image: () => inputDigest(question) };
      },
    };
  },
  pictured: async (path, { media, columns }) => {
    const list = await readImageEdits(path, media ?? null, { ...IMAGE_EDIT_COLUMNS, ...columns });
    return {
      ...whole(list, path),
      samples: list.length + list.problems.length,
      problems: list.problems,
      check: async (index, tally) => {
        const edit = list.read(index);
        const { target, response, where } = edit;
        if (target !== null || response !== null) tally.labelled += 1;
        for (const file of target === null ? sourcesOf(edit) : [...sourcesOf(edit), target]) {
          await tally.try(index, async () => tally.size((await readFitted(file, where, null)).image));
        }
      },
      compare: (index) => {
        const edit = list.read(index);
        return { id: edit.id, words: edit.instruction, image: () => sourceDigest(edit) };
      },
    };
  },
  captioned: async (path) => {
    const list = await openCaptioned(path);
    return {
      ...whole(list, path),
      check: async (index, tally) => {
        const { path: file, where } = list.read(index);
        tally.size(await decodeImage(imageBytes(file, where), file));
        tally.labelled += 1;
      },
      compare: (index) => comparedCaption(list, index),
    };
  },
  texts: async (path, { columns: named }) => {
    const columns = { ...TEXT_COLUMNS, ...named };
    const rows = await readRows(path);
    return {
      ...whole(rows, path),
      samples: rows.length + rows.problems.length,
      problems: [...rows.problems, ...shownProblems(rows, path, columns)],
      check: async (index, tally) => {
        const row = rows.read(index);
        const [prompt, expected] = [valueAt(row, columns.prompt), valueAt(row, columns.expected) ?? null];
        const isWrong = expected === null ? named?.expected !== undefined : !isWords(expected) && !isNumber(expected);
        const wrong = [
          ...(isPrompt(prompt) ? [] : [wrongColumn(prompt, columns.prompt, 'words, or a list of messages')]),
          ...(isWrong ? [wrongColumn(expected, columns.expected, 'words or a finite number')] : []),
        ];
        if (wrong.length > 0) {
          const next = 'Correct this row, or leave it out.';
          throw new DataError(wrong.join('; '), { where: rows.place(index), next });
        }
        if (expected !== null) tally.labelled += 1;
      },
      compare: (index) => {
        const words = valueAt(rows.read(index), columns.prompt);
        return {
          ...{ id: rows.id(index), image: null },
          words: typeof words === 'string' ? words : JSON.stringify(words),
        };
      },
    };
  },
};

function whole({ length, remark }: Pick<SampleSource<unknown>, 'length' | 'remark'>, path: string) {
  return { path, samples: length, length, remark, problems: [] };
}

/** The kind of a dataset by its name and its first rows. Raises the DataErrors of `kindOfRows`. */
function kindOf(path: string, { columns: named = {} }: DatasetUse): DatasetReport['kind'] {
  if (basename(path) === SELF_BENCH_NAME) return 'inpainting';
  if (isQuestionList(path)) return 'videos';
  if (mayHoldRows(path) || extname(path) === '.txt') {
    // One message for columns that are missing, instead of one for each row.
    checkRows(path, Object.values(named));
    return kindOfRows(path, { ...IMAGE_EDIT_COLUMNS, ...TEXT_COLUMNS, ...named });
  }
  const isImage = (id: string): boolean => ['.png', '.jpg', '.jpeg', '.webp'].includes(extname(id).toLowerCase());
  return openDatalist(path).ids.every(isImage) ? 'images' : 'edits';
}

/**
 * Reads every sample of a list and decodes its images, videos on all cores. Raises DataError if the list itself cannot be read.
 */
export async function checkDataset(path: string, use: DatasetUse = {}): Promise<DatasetReport> {
  const kind = kindOf(path, use);
  const list = await openers[kind](path, use);
  const tally = new Tally();
  const broken = list.samples - list.length;
  let done = 0;
  await pLimit(kind === 'videos' ? availableParallelism() : 1).map(Array(list.length).fill(0), async (_, index) => {
    if (GIVEN_UP.includes(kind) && tally.problems.length >= MAX_PROBLEMS) return;
    await tally.try(index, () => list.check(index, tally));
    if (kind === 'videos') use.onProgress?.(broken + ++done, list.samples);
  });
  return {
    ...{ path: list.path, kind, samples: list.samples, labelled: tally.labelled },
    sizes: [...tally.sizes].sort(),
    problems: [...list.problems, ...tally.problems],
    remark: list.remark,
  };
}

/** Opens a dataset that was read through. Raises one DataError with all problems of its list. */
export async function openCompared({ path, kind }: DatasetReport, use: DatasetUse): Promise<ComparedSet> {
  const { length, problems, compare } = await openers[kind](path, use);
  if (problems.length > 0) throw oneOf(path, problems);
  return { name: path, length, at: compare };
}

/** A sentence about labels with numbers in parentheses that are probably not actions. Null without any. */
function largeNumbers(
  questions: readonly { readonly question: VideoQuestion; readonly place: string }[],
  suspects: (label: string) => readonly string[],
): string | null {
  const found = questions.flatMap(({ question, place }) => {
    const numbers = suspects(question.expected);
    return numbers.length === 0 ? [] : [`${place}: ${numbers.map((number) => `(${number})`).join(', ')}`];
  });
  if (found.length === 0) return null;
  return `${found.length} of ${questions.length} labels contain a number over 99 in parentheses, the first of them ${found[0]}; reward 'format_accuracy' counts every number in parentheses as an action: remove it from the label, or set the field actions of the term to 'items'`;
}

/** One problem for all prompts that show images or videos. */
function shownProblems(rows: RowSource, path: string, { prompt }: TextColumns): DataError[] {
  const shown = Array.from({ length: rows.length }, (_, index) => {
    const row = rows.read(index);
    const beside = mediaBeside(row, wordsIn(valueAt(row, prompt)));
    return beside === null ? [] : [`${rows.place(index)}: ${beside}`];
  }).flat();
  if (shown.length === 0) return [];
  return [
    new DataError(`${shown.length} of ${rows.length} prompts contain more than words, the first at ${shown[0]}`, {
      where: path,
      next: "Recipes with prompts do not show images to the policy. Use a dataset of words, or task 'video_actions'.",
    }),
  ];
}

/** The columns of prompts in words. */
export interface TextColumns {
  readonly prompt: string;
  readonly expected: string;
}

export const TEXT_COLUMNS: TextColumns = { prompt: 'prompt', expected: 'expected' };

type RowsKind = 'pictured' | 'captioned' | 'texts';

/**
 * The kind of the rows, by the columns of the first one. Raises DataError if no recipe reads them, and as
 * `missingColumn`.
 */
function kindOfRows(path: string, columns: ImageEditColumns & TextColumns): RowsKind {
  const needed: Readonly<Record<RowsKind, readonly string[]>> = {
    pictured: [columns.source, columns.instruction],
    captioned: ['file_name', 'text'],
    texts: [columns.prompt],
  };
  const kinds = Object.keys(needed) as RowsKind[];
  const kind = kinds.find((each) => missingColumn(path, needed[each]) === null);
  if (kind !== undefined) return kind;
  const found = missingColumn(path, needed.texts)?.found ?? '';
  throw new DataError(
    `the rows are neither edits (columns ${needed.pictured.join(', ')}), nor captioned images (${needed.captioned.join(', ')}), nor prompts (${needed.texts.join(', ')})${found}`,
    {
      where: path,
      next: 'Name the columns: --columns prompt=NAME, or --columns source=NAME --columns instruction=NAME.',
    },
  );
}

function isWords(value: unknown): boolean {
  return typeof value === 'string' && value.trim() !== '';
}

function isNumber(value: unknown): boolean {
  return typeof value === 'number' && Number.isFinite(value);
}

function isPrompt(value: unknown): boolean {
  return isWords(value) || (Array.isArray(value) && value.length > 0 && isSayable(value));
}

/** The words of a prompt, or of the messages of a conversation. */
function wordsIn(prompt: unknown): string {
  if (typeof prompt === 'string') return prompt;
  if (!Array.isArray(prompt)) return '';
  return prompt.map((turn: unknown) => String((turn as { readonly content?: unknown } | null)?.content)).join('\n');
}

function wrongColumn(value: unknown, column: string, allowed: string): string {
  return `column '${column}': found ${inBrief(value)}; allowed: ${allowed}`;
}
