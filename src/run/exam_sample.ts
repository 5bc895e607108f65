/** `sample.jsonl` of an exam: some of its edits with what the judge said of them, for runs that ask about these again. */
import { join } from 'node:path';
import { z } from 'zod';
import { DataError } from '../core/errors.js';
import { writeFileAtomic } from '../core/files.js';
import { decodeImage, encodePng, type RgbImage } from '../core/image.js';
import { average } from '../core/statistics.js';
import { readPlainText } from '../core/plain_file.js';
import type { ExamCase, ExamSet } from '../rewards/exam/cases.js';
import type { ReaskedEdit } from '../rewards/exam/drift.js';
import { scoresOf, type RepliedCase } from '../rewards/exam/findings.js';

const SAMPLE_FILE = 'sample.jsonl';
/** So many edits, of as many cases if there are so many: forty questions with VIEScore. */
const EDITS = 20;

/** One edit of the sample. */
export interface SampledEdit extends ReaskedEdit {
  readonly instruction: string;
  readonly source: RgbImage;
  readonly edited: RgbImage;
  /** The labelled result; null if there is none. */
  readonly labelled: RgbImage | null;
}

const png = z.string().min(1);
const line = z.strictObject({
  name: z.string(),
  before: z.number(),
  repeats: z.int().min(1),
  instruction: z.string(),
  source: png,
  edited: png,
  labelled: png.nullable(),
});

/** Writes the sample of an exam that has ended: cases spread evenly, with one answer after the other; edits without a score are left out. */
export async function writeExamSample(folder: string, set: ExamSet, cases: readonly RepliedCase[]): Promise<void> {
  const lines: string[] = [];
  for (let i = 0; i < EDITS && cases.length > 0; i++) {
    const at = Math.floor((i * cases.length) / EDITS);
    const replied = cases[at];
    const { name: answer } = replied.answers[i % replied.answers.length];
    const scores = scoresOf(replied, answer);
    if (scores.length === 0) continue;
    lines.push(JSON.stringify(await lineOf(await set.at(at), answer, scores)));
  }
  writeFileAtomic(join(folder, SAMPLE_FILE), lines.map((one) => `${one}\n`).join(''));
}

async function lineOf(exam: ExamCase, answer: string, scores: readonly number[]): Promise<z.infer<typeof line>> {
  const edited = exam.answers.find(({ name }) => name === answer);
  if (edited === undefined) throw new DataError(`the case ${exam.name} of the exam has no answer '${answer}'`);
  const encoded = async (image: RgbImage): Promise<string> => Buffer.from(await encodePng(image)).toString('base64');
  return {
    name: `${answer} of case ${exam.name}`,
    before: average(scores),
    repeats: scores.length,
    instruction: exam.instruction,
    source: await encoded(exam.source),
    edited: await encoded(edited.picture),
    labelled: exam.labelled === null ? null : await encoded(exam.labelled),
  };
}

/** The sample of an exam; empty for one that was made before samples were kept. Raises DataError for a file of another form. */
export async function readExamSample(folder: string): Promise<SampledEdit[]> {
  const file = join(folder, SAMPLE_FILE);
  const next = 'Make the exam again: editrl judge exam.';
  const read: SampledEdit[] = [];
  for (const text of (readPlainText(file) ?? '').split('\n').filter(Boolean)) {
    const parsed = line.safeParse(jsonOf(text));
    if (!parsed.success) throw new DataError('this is no edit of an exam', { where: file, next });
    const { source, edited, labelled, ...rest } = parsed.data;
    const decoded = (base64: string): Promise<RgbImage> => decodeImage(Buffer.from(base64, 'base64'), file);
    read.push({
      ...rest,
      source: await decoded(source),
      edited: await decoded(edited),
      labelled: labelled === null ? null : await decoded(labelled),
    });
  }
  return read;
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return null;
  }
}
