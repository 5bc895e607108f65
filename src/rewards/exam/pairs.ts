/** An exam on pairs of edits that somebody has compared: JSON lines of a source, an instruction, a better and a worse edit. */
import { dirname, resolve } from 'node:path';
import { z } from 'zod';
import { DataError } from '../../core/errors.js';
import type { RgbImage } from '../../core/image.js';
import { readFitted } from '../../data/pictures.js';
import { openRows } from '../../data/rows.js';
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

const FORM =
  'Write lines such as {"source": "a.png", "instruction": "make the car red", "better": "b.png", "worse": "c.png"}; "reworded" may say the instruction in other words.';

interface Pair extends Line {
  readonly name: string;
  readonly where: string;
}

/**
 * Opens a file of JSON lines; pictures are found from its folder. Every picture is decoded once, so that nothing is asked about a set with a
 * mistake. Raises DataError, naming the line, for a line of another form, a picture that is gone or cannot be read, and a pair of equal pictures.
 */
export async function openPairs(file: string): Promise<ExamSet> {
  const rows = await openRows(file);
  const folder = dirname(resolve(file));
  const pairs: Pair[] = [];
  for (let i = 0; i < rows.length; i++) {
    const where = rows.place(i);
    const parsed = line.safeParse(rows.read(i));
    if (!parsed.success) {
      const [{ path: at, message }] = parsed.error.issues;
      throw new DataError(`not a pair of edits: ${[...at, message].join(': ')}`, { where, next: FORM });
    }
    const pair = { ...parsed.data, name: String(i), where };
    await readPair(folder, pair);
    pairs.push(pair);
  }
  if (pairs.length === 0) throw new DataError('the file holds no pairs', { where: file, next: FORM });
  return {
    name: `pairs-${rows.digest.ids.slice(0, 8)}`,
    length: pairs.length,
    labelled: false,
    at: (i) => caseOf(folder, pairs[i]),
  };
}

interface Pictures {
  readonly source: RgbImage;
  readonly better: RgbImage;
  readonly worse: RgbImage;
}

async function readPair(folder: string, { where, ...pair }: Pair): Promise<Pictures> {
  const read = async (name: string): Promise<RgbImage> => (await readFitted(resolve(folder, name), where, null)).image;
  const [source, better, worse] = [await read(pair.source), await read(pair.better), await read(pair.worse)];
  if (samePixels(better, worse)) {
    throw new DataError(`'${pair.better}' and '${pair.worse}' are the same picture`, {
      where,
      next: 'A pair has two edits of which one is better; take this line out.',
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
      { name: 'better', truth: 1, picture: better },
      { name: 'worse', truth: 0, picture: worse },
      { name: COPY, truth: null, picture: source },
    ],
    tricked: { not_pay: 'worse', not_move: 'worse' },
    labelled: null,
  };
}

/** The instruction with another first letter and another end: the least that words can differ by. */
function asSentence(instruction: string): string {
  const first = instruction[0];
  const other = first === first.toUpperCase() ? first.toLowerCase() : first.toUpperCase();
  const rest = instruction.slice(1);
  return `${other}${rest.endsWith('.') ? rest.slice(0, -1) : `${rest}.`}`;
}
