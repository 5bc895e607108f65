/** Datasets of every kind: reads one completely, so that problems are known before a run needs it, and opens it to compare its samples. */
import { existsSync, readdirSync, realpathSync, statSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { basename, extname, join, relative } from 'node:path';
import pLimit from 'p-limit';
import { DataError, type EditrlError } from '../core/errors.js';
import { decodeImage } from '../core/images/image.js';
import { inBrief } from '../core/text.js';
import { comparedCaption, openCaptioned } from './captioned.js';
import {
  CONVERSATIONS_NAME,
  type UsualSampling,
  type VideoQuestion,
  clipOf,
  holdsQuestions,
  openQuestions,
  readQuestions,
  shownDigest,
} from './conversations.js';
import { DATALIST_NAME, missingFileAdvice, openDatalist } from './datalist.js';
import { comparedEdit, openEditDataset, openImageDataset } from './edits.js';
import { readTriplet } from './inpainting.js';
import { type ComparedSet, pixelDigest } from './overlap.js';
import {
  PICTURED_COLUMNS,
  type PicturedColumns,
  mayHoldRows,
  openPicturedEdits,
  readPicturedEdits,
  shownBefore,
  sourcesOf,
} from './pictured_edits.js';
import { pictureBytes, readFitted } from './pictures.js';
import { checkRows, isSayable, missingColumn, openRows, readRows, shownBeside, valueAt } from './rows.js';
import {
  type PromptCheck,
  SELF_BENCH_NAME,
  SelfBench,
  comparedInpaint,
  openSelfBench,
  readSelfBench,
} from './self_bench.js';

export interface DatasetReport {
  /** The list that was read. */
  readonly path: string;
  readonly kind: 'edits' | 'images' | 'inpainting' | 'videos' | 'pictured' | 'captioned' | 'texts';
  readonly samples: number;
  /** Edits that carry the answer's codes; rows with a response or an edited picture, or with words that are expected. */
  readonly labelled: number;
  /** Height and width in codes or pixels, as `4x4`, of all samples; more than one where they differ. */
  readonly sizes: readonly string[];
  /** What could not be read: of edits and images at most MOST_PROBLEMS, else all. */
  readonly problems: readonly EditrlError[];
  /** A remark for the user about how the list was read. */
  readonly remark: string | null;
}

/** How a run uses a dataset, as far as that decides what is wrong with it. */
export interface DatasetUse {
  /** Checks each prompt of inpainting samples. */
  readonly checkPrompt?: PromptCheck;
  /** The side of the squares that inpainting samples are brought to; they are taken as they are where absent. */
  readonly resolution?: number;
  /** The folder that relative paths of questions about videos and of edits in rows begin at; the list's own where absent. */
  readonly media?: string;
  /** The columns of rows that are called otherwise than by default. */
  readonly columns?: Readonly<Partial<PicturedColumns & TextColumns>>;
  /** Least frames of each segment of a video whose own sample does not say; 1 where absent. */
  readonly minFrames?: number;
  /** Returns the parts of a label that a person should look at, such as "(2023)"; empty if there are none. Asked only for questions about videos. */
  readonly suspects?: (label: string) => readonly string[];
  /** Called with how many of a list's questions about videos have been checked. */
  readonly onProgress?: (done: number, total: number) => void;
}

/** A list with this many unreadable samples is given up. */
export const MOST_PROBLEMS = 20;

const LISTS: readonly string[] = [DATALIST_NAME, SELF_BENCH_NAME, CONVERSATIONS_NAME];

/**
 * The lists below a folder (`<root>/<name>/<split>/list/…`, `<root>/…/self_bench.txt`, `<root>/…/conversations.json`), else the files of
 * rows in it, or the one list that a path names. Raises DataError where there is none.
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

interface Tally {
  labelled: number;
  readonly sizes: Set<string>;
}

async function readEdit(read: () => ReturnType<ReturnType<typeof openEditDataset>['read']>, tally: Tally) {
  const sample = read();
  if (sample.target !== null) tally.labelled += 1;
  tally.sizes.add(`${sample.source.height}x${sample.source.width}`);
  if (sample.target !== null) tally.sizes.add(`${sample.target.height}x${sample.target.width}`);
  for (const png of [sample.sourcePng, sample.targetPng]) {
    if (png !== null) await decodeImage(png, sample.id);
  }
}

/**
 * Reads every sample of a list and decodes its images. Raises DataError where the list itself cannot be read.
 */
export async function checkDataset(path: string, use: DatasetUse = {}): Promise<DatasetReport> {
  if (basename(path) === SELF_BENCH_NAME) return checkSelfBench(path, use);
  if (holdsQuestions(path)) return checkQuestions(path, use);
  if (mayHoldRows(path) || extname(path) === '.txt') {
    const columns = { ...PICTURED_COLUMNS, ...TEXT_COLUMNS, ...use.columns };
    // One message where they are not there, instead of one for each row.
    checkRows(path, Object.values(use.columns ?? {}));
    const kind = kindOfRows(path, columns);
    if (kind === 'pictured') return checkPictured(path, use.media ?? null, columns);
    const sizes = new Set<string>();
    const named = use.columns?.expected !== undefined;
    const look: RowsLook =
      kind === 'texts' ? await checkTexts(path, columns, named) : await checkCaptioned(path, sizes);
    return { path, kind, ...look, sizes: [...sizes].sort(), remark: null };
  }
  const list = openDatalist(path);
  const isImages = list.ids.every((id) => ['.png', '.jpg', '.jpeg', '.webp'].includes(extname(id).toLowerCase()));
  const edits = openEditDataset(path);
  const images = openImageDataset(path);
  const tally: Tally = { labelled: 0, sizes: new Set() };
  const problems: EditrlError[] = [];
  for (let index = 0; index < list.ids.length && problems.length < MOST_PROBLEMS; index++) {
    try {
      if (isImages) {
        const image = await decodeImage(images.read(index).bytes, list.file(index));
        tally.sizes.add(`${image.height}x${image.width}`);
      } else {
        await readEdit(() => edits.read(index), tally);
      }
    } catch (cause) {
      if (!(cause instanceof DataError)) throw cause;
      problems.push(cause);
    }
  }
  return {
    path: list.path,
    kind: isImages ? 'images' : 'edits',
    samples: list.ids.length,
    labelled: tally.labelled,
    sizes: [...tally.sizes].sort(),
    problems,
    remark: list.remark,
  };
}

/** Problems of the list in the order of its lines, then those that its pictures have. */
async function checkSelfBench(path: string, { checkPrompt, resolution }: DatasetUse): Promise<DatasetReport> {
  const list = readSelfBench(path, checkPrompt);
  const source = new SelfBench(path, list);
  const sizes = new Set<string>();
  const problems: EditrlError[] = [...list.problems];
  for (let index = 0; index < source.length; index++) {
    try {
      const { ref } = await readTriplet(source.read(index), resolution);
      sizes.add(`${ref.height}x${ref.width}`);
    } catch (cause) {
      if (!(cause instanceof DataError)) throw cause;
      problems.push(cause);
    }
  }
  return {
    path: list.path,
    kind: 'inpainting',
    samples: list.samples,
    labelled: 0,
    sizes: [...sizes].sort(),
    problems,
    remark: null,
  };
}

/** Problems of the rows in their order, then those that their pictures have. */
async function checkPictured(path: string, media: string | null, columns: PicturedColumns): Promise<DatasetReport> {
  const list = await readPicturedEdits(path, media, columns);
  const sizes = new Set<string>();
  const problems: EditrlError[] = [...list.problems];
  let labelled = 0;
  for (let index = 0; index < list.length; index++) {
    const edit = list.read(index);
    const { target, response, where } = edit;
    if (target !== null || response !== null) labelled += 1;
    for (const file of target === null ? sourcesOf(edit) : [...sourcesOf(edit), target]) {
      try {
        const { image } = await readFitted(file, where, null);
        sizes.add(`${image.height}x${image.width}`);
      } catch (cause) {
        if (!(cause instanceof DataError)) throw cause;
        problems.push(cause);
      }
    }
  }
  const samples = list.length + list.problems.length;
  return { path, kind: 'pictured', samples, labelled, sizes: [...sizes].sort(), problems, remark: list.remark };
}

/** On all cores; problems in the order of the samples, of each the first. */
async function checkQuestions(
  path: string,
  { media, minFrames = 1, suspects, onProgress }: DatasetUse,
): Promise<DatasetReport> {
  const list = readQuestions(path, media);
  const usual: UsualSampling = { minFrames, maxFrames: Math.max(8, minFrames), interval: 2 };
  const sizes = new Set<string>();
  let done = 0;
  const found = await pLimit(availableParallelism()).map(list.samples, async ({ question, place, problem }) => {
    const known = question === null ? problem : await problemOf(question, usual, place, sizes);
    onProgress?.(++done, list.samples.length);
    return known ?? [];
  });
  const problems = found.flat();
  return {
    path: list.path,
    kind: 'videos',
    samples: list.samples.length,
    labelled: 0,
    sizes: [...sizes].sort(),
    problems,
    remark: suspects === undefined ? null : largeNumbers(list.samples, suspects),
  };
}

type Samples = ReturnType<typeof readQuestions>['samples'];

/** Which labels hold numbers in parentheses that are hardly actions, in one sentence; null where none does. */
function largeNumbers(samples: Samples, suspects: (label: string) => readonly string[]): string | null {
  const found = samples.flatMap(({ question, place }) => {
    const numbers = question === null ? [] : suspects(question.expected);
    return numbers.length === 0 ? [] : [`${place}: ${numbers.map((number) => `(${number})`).join(', ')}`];
  });
  if (found.length === 0) return null;
  return `${found.length} of ${samples.length} labelled answers hold a number over 99 in parentheses, the first of them ${found[0]}; reward 'format_accuracy' counts every number in parentheses as an action: take it out of the label, or set the field actions of the term to 'items'`;
}

async function problemOf(
  question: VideoQuestion,
  usual: UsualSampling,
  place: string,
  sizes: Set<string>,
): Promise<DataError | null> {
  try {
    const { frames } = await clipOf(question, usual, place);
    for (const image of question.images) await readFitted(image, place, null);
    sizes.add(`${frames[0].height}x${frames[0].width}`);
    return null;
  } catch (cause) {
    if (!(cause instanceof DataError)) throw cause;
    return cause;
  }
}

/** The columns of prompts in words. */
export interface TextColumns {
  readonly prompt: string;
  readonly expected: string;
}

export const TEXT_COLUMNS: TextColumns = { prompt: 'prompt', expected: 'expected' };

export type RowsKind = 'pictured' | 'captioned' | 'texts';

/** What rows are, by the columns of the first one. Raises DataError where they are nothing that a recipe reads, and as `missingColumn`. */
export function kindOfRows(path: string, columns: PicturedColumns & TextColumns): RowsKind {
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
    `the rows are neither edits (columns ${needed.pictured.join(', ')}), nor captioned pictures (${needed.captioned.join(', ')}), nor prompts (${needed.texts.join(', ')})${found}`,
    {
      where: path,
      next: 'Say what the columns are called: --columns prompt=NAME, or --columns source=NAME --columns instruction=NAME.',
    },
  );
}

export interface RowsLook {
  readonly samples: number;
  readonly labelled: number;
  readonly problems: readonly DataError[];
}

/** Prompts in words: each row has one, and what is expected is words where it is there. Raises DataError as `readRows`. */
export async function checkTexts(path: string, columns: TextColumns, named: boolean): Promise<RowsLook> {
  const rows = await readRows(path);
  const problems: DataError[] = [...rows.problems];
  const pictured: string[] = [];
  let labelled = 0;
  for (let index = 0; index < rows.length; index++) {
    const row = rows.read(index);
    const [prompt, expected] = [valueAt(row, columns.prompt), valueAt(row, columns.expected) ?? null];
    const wrong = [
      ...(isPrompt(prompt) ? [] : [wrongColumn(prompt, columns.prompt, 'words, or a list of messages')]),
      ...((expected === null ? named : !isWords(expected) && !isNumber(expected))
        ? [wrongColumn(expected, columns.expected, 'words or a finite number')]
        : []),
    ];
    const beside = shownBeside(row, wordsIn(prompt));
    if (beside !== null) pictured.push(`${rows.place(index)}: ${beside}`);
    if (wrong.length > 0) {
      const next = 'Correct this row, or leave it out.';
      problems.push(new DataError(wrong.join('; '), { where: rows.place(index), next }));
    } else if (expected !== null) labelled += 1;
  }
  if (pictured.length > 0) {
    problems.push(
      new DataError(`${pictured.length} of ${rows.length} prompts show more than words, the first at ${pictured[0]}`, {
        where: path,
        next: 'Recipes that read prompts show the policy no pictures: use a dataset of words.',
      }),
    );
  }
  return { samples: rows.length + rows.problems.length, labelled, problems };
}

/** Captioned pictures; each is decoded. Raises DataError as `openCaptioned`. */
export async function checkCaptioned(path: string, sizes: Set<string>): Promise<RowsLook> {
  const list = await openCaptioned(path);
  const problems: DataError[] = [];
  for (let index = 0; index < list.length; index++) {
    try {
      const { path: file, where } = list.read(index);
      const { height, width } = await decodeImage(pictureBytes(file, where), file);
      sizes.add(`${height}x${width}`);
    } catch (cause) {
      if (!(cause instanceof DataError)) throw cause;
      problems.push(cause);
    }
  }
  return { samples: list.length, labelled: list.length - problems.length, problems };
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

type Opener = (path: string, use: DatasetUse) => Promise<Omit<ComparedSet, 'name'>>;

const openers: Readonly<Record<DatasetReport['kind'], Opener>> = {
  edits: async (path) => {
    const source = openEditDataset(path);
    return { length: source.length, at: (index) => comparedEdit(source, index) };
  },
  images: async (path) => {
    const source = openImageDataset(path);
    return {
      length: source.length,
      at: (index) => {
        const { id, bytes, path: file } = source.read(index);
        return { id, words: '', picture: () => pixelDigest(bytes, file) };
      },
    };
  },
  inpainting: async (path) => {
    const source = openSelfBench(path);
    return { length: source.length, at: (index) => comparedInpaint(source, index) };
  },
  videos: async (path, { media }) => {
    const source = openQuestions(path, media);
    return {
      length: source.length,
      at: (index) => {
        const question = source.read(index);
        return { id: source.id(index), words: JSON.stringify(question.turns), picture: () => shownDigest(question) };
      },
    };
  },
  pictured: async (path, { media, columns }) => {
    const source = await openPicturedEdits(path, media ?? null, { ...PICTURED_COLUMNS, ...columns });
    return {
      length: source.length,
      at: (index) => {
        const edit = source.read(index);
        return { id: edit.id, words: edit.instruction, picture: () => shownBefore(edit) };
      },
    };
  },
  captioned: async (path) => {
    const source = await openCaptioned(path);
    return { length: source.length, at: (index) => comparedCaption(source, index) };
  },
  texts: async (path, { columns }) => {
    const source = await openRows(path);
    const { prompt } = { ...TEXT_COLUMNS, ...columns };
    return {
      length: source.length,
      at: (index) => {
        const words = valueAt(source.read(index), prompt);
        return {
          id: source.id(index),
          words: typeof words === 'string' ? words : JSON.stringify(words),
          picture: null,
        };
      },
    };
  },
};

/** Opens a dataset that was read through. Raises DataError as its kind's opener does, for one that has problems. */
export async function openCompared({ path, kind }: DatasetReport, use: DatasetUse): Promise<ComparedSet> {
  return { name: path, ...(await openers[kind](path, use)) };
}
