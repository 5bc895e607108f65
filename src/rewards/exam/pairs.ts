/**
 * An exam on pairs that a person has compared. JSON lines of a source, an instruction, a better and a worse edit, or of a question, a
 * better and a worse answer in words.
 */
import { existsSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { z } from 'zod';
import { DataError } from '../../core/errors.js';
import type { RgbImage } from '../../core/images/image.js';
import { readFitted } from '../../data/image_files.js';
import { openRows, type RowSource } from '../../data/rows.js';
import { COPY, type ExamCase, type ExamSet } from './cases.js';

const path = z.string().min(1);
const line = z.strictObject({
  source: path,
  instruction: z.string().trim().min(1),
  better: path,
  worse: path,
  reworded: z.string().trim().min(1).optional(),
});
type Line = z.infer<typeof line>;

const words = z.string().regex(/\S/, 'found no words');
const wordLine = z.strictObject({
  question: z.string().trim().min(1),
  better: words,
  worse: words,
  reference: words.optional(),
  reworded: z.string().trim().min(1).optional(),
});
type WordLine = z.infer<typeof wordLine>;

const FORM =
  'Write lines such as {"source": "a.png", "instruction": "make the car red", "better": "b.png", "worse": "c.png"}, or {"question": "What is 2 + 3?", "better": "5", "worse": "6"} for answers in words; "reworded" may give the instruction or the question in other words, "reference" a right answer.';

interface Named {
  readonly name: string;
  readonly where: string;
}
type Pair = Line & Named;
type WordPair = WordLine & Named;

/**
 * Opens a file of JSON lines, all of one kind. Paths of images are relative to its folder. Every image is decoded once, so that nothing is
 * asked about a set with a mistake. Raises DataError, naming the line, for a line of another form, an image that is missing or cannot be
 * read, and a pair of equal images or answers.
 */
export async function openPairs(file: string): Promise<ExamSet> {
  if (!existsSync(file)) throw new DataError('there is no such file of pairs', { where: file, next: FORM });
  const rows = await openRows(file);
  if (rows.length === 0) throw new DataError('the file contains no pairs', { where: file, next: FORM });
  const set = { name: `pairs-${rows.digest.ids.slice(0, 8)}`, length: rows.length };
  if ('question' in rows.read(0)) {
    const pairs = readLines(rows, wordLine);
    pairs.forEach(requireDifferent);
    const labeled = pairs.every(({ reference }) => reference !== undefined);
    return { ...set, reads: 'words', labelled: labeled, at: async (i) => wordCaseOf(pairs[i]) };
  }
  const folder = dirname(resolve(file));
  const pairs = readLines(rows, line);
  for (const pair of pairs) await readPair(folder, pair);
  return { ...set, reads: 'image', labelled: false, at: (i) => caseOf(folder, pairs[i]) };
}

function readLines<L>(rows: RowSource, form: z.ZodType<L>): (L & Named)[] {
  return Array.from({ length: rows.length }, (_, i) => {
    const where = rows.place(i);
    const parsed = form.safeParse(rows.read(i));
    if (parsed.success) return { ...parsed.data, name: String(i), where };
    const [{ path: at, message }] = parsed.error.issues;
    throw new DataError(`not a pair to compare: ${[...at, message].join(': ')}`, { where, next: FORM });
  });
}

function requireDifferent({ better, worse, where }: WordPair): void {
  if (better.trim() !== worse.trim()) return;
  throw new DataError('the two answers are the same', {
    where,
    next: 'A pair has two answers of which one is better; remove this line.',
  });
}

interface PairImages {
  readonly source: RgbImage;
  readonly better: RgbImage;
  readonly worse: RgbImage;
}

async function readPair(folder: string, { where, ...pair }: Pair): Promise<PairImages> {
  const read = async (name: string): Promise<RgbImage> => (await readFitted(resolve(folder, name), where, null)).image;
  const [source, better, worse] = [await read(pair.source), await read(pair.better), await read(pair.worse)];
  if (samePixels(better, worse)) {
    throw new DataError(`'${pair.better}' and '${pair.worse}' are the same image`, {
      where,
      next: 'A pair has two edits of which one is better; remove this line.',
    });
  }
  return { source, better, worse };
}

function samePixels(a: RgbImage, b: RgbImage): boolean {
  return a.width === b.width && a.height === b.height && Buffer.from(a.data).equals(Buffer.from(b.data));
}

async function caseOf(folder: string, pair: Pair): Promise<ExamCase> {
  const { source, better, worse } = await readPair(folder, pair);
  const { instruction, name } = pair;
  return {
    name,
    instruction,
    reworded: pair.reworded ?? asSentence(instruction),
    source,
    answers: [
      { name: 'better', truth: 1, made: better },
      { name: 'worse', truth: 0, made: worse },
      { name: COPY, truth: null, made: source },
    ],
    tricked: { not_pay: 'worse', not_move: 'worse' },
    labelled: null,
  };
}

function wordCaseOf({ name, question, reworded, better, worse, reference }: WordPair): ExamCase {
  return {
    name,
    instruction: question,
    reworded: reworded ?? asSentence(question),
    source: null,
    answers: [
      { name: 'better', truth: 1, made: better },
      { name: 'worse', truth: 0, made: worse },
    ],
    tricked: { not_pay: 'worse', not_move: 'worse' },
    labelled: reference ?? null,
  };
}

/** The instruction with another first letter and, unless it is a question, another end: the smallest difference of words. */
function asSentence(instruction: string): string {
  const first = instruction[0];
  const other = first === first.toUpperCase() ? first.toLowerCase() : first.toUpperCase();
  const rest = instruction.slice(1);
  if (/[?!]$/.test(rest)) return `${other}${rest}`;
  return `${other}${rest.endsWith('.') ? rest.slice(0, -1) : `${rest}.`}`;
}
