/** `sample.jsonl` of an exam: some of its answers with what the judge said of them, for runs that ask about these again. */
import { join } from 'node:path';
import { z } from 'zod';
import { DataError } from '../core/errors.js';
import { writeFileAtomic } from '../core/files.js';
import { decodeImage, encodePng, type RgbImage } from '../core/image.js';
import { average } from '../core/statistics.js';
import { readPlainText } from '../core/plain_file.js';
import type { ExamCase, ExamSet } from '../rewards/exam/cases.js';
import type { ReaskedAnswer } from '../rewards/exam/drift.js';
import { scoresOf, type RepliedCase } from '../rewards/exam/findings.js';
import type { Made } from '../rewards/exam/tricks.js';

const SAMPLE_FILE = 'sample.jsonl';
/** So many answers, of as many cases if there are so many: forty questions with VIEScore. */
const ANSWERS = 20;

/** One answer of the sample. */
export interface SampledAnswer extends ReaskedAnswer {
  readonly instruction: string;
  /** Null where the answer is words. */
  readonly source: RgbImage | null;
  readonly made: Made;
  /** The labelled result; null if there is none. */
  readonly labelled: Made | null;
}

const png = z.string().min(1);
const common = {
  name: z.string(),
  before: z.number(),
  repeats: z.int().min(1),
  instruction: z.string(),
};
const pictures = z.strictObject({ ...common, source: png, edited: png, labelled: png.nullable() });
const words = z.strictObject({ ...common, answer: z.string(), expected: z.string().nullable() });
const line = z.union([pictures, words]);

/** Writes the sample of an exam that has ended: cases spread evenly, with one answer after the other; those without a score are left out. */
export async function writeExamSample(folder: string, set: ExamSet, cases: readonly RepliedCase[]): Promise<void> {
  const lines: string[] = [];
  for (let i = 0; i < ANSWERS && cases.length > 0; i++) {
    const at = Math.floor((i * cases.length) / ANSWERS);
    const replied = cases[at];
    const { name: answer } = replied.answers[i % replied.answers.length];
    const scores = scoresOf(replied, answer);
    if (scores.length === 0) continue;
    lines.push(JSON.stringify(await lineOf(await set.at(at), answer, scores)));
  }
  writeFileAtomic(join(folder, SAMPLE_FILE), lines.map((one) => `${one}\n`).join(''));
}

async function lineOf(exam: ExamCase, answer: string, scores: readonly number[]): Promise<z.infer<typeof line>> {
  const found = exam.answers.find(({ name }) => name === answer);
  if (found === undefined) throw new DataError(`the case ${exam.name} of the exam has no answer '${answer}'`);
  const { source, labelled } = exam;
  const asked = {
    name: `${answer} of case ${exam.name}`,
    before: average(scores),
    repeats: scores.length,
    instruction: exam.instruction,
  };
  if (source === null || typeof found.made === 'string' || typeof labelled === 'string') {
    return { ...asked, answer: wordsOf(found.made), expected: labelled === null ? null : wordsOf(labelled) };
  }
  const encoded = async (image: RgbImage): Promise<string> => Buffer.from(await encodePng(image)).toString('base64');
  return {
    ...asked,
    source: await encoded(source),
    edited: await encoded(found.made),
    labelled: labelled === null ? null : await encoded(labelled),
  };
}

function wordsOf(made: Made): string {
  if (typeof made === 'string') return made;
  throw new Error('internal: an exam of words has a picture');
}

/** The sample of an exam; empty for one that was made before samples were kept. Raises DataError for a file of another form. */
export async function readExamSample(folder: string): Promise<SampledAnswer[]> {
  const file = join(folder, SAMPLE_FILE);
  const next = 'Make the exam again: editrl judge exam.';
  const decoded = (base64: string): Promise<RgbImage> => decodeImage(Buffer.from(base64, 'base64'), file);
  const read: SampledAnswer[] = [];
  for (const text of (readPlainText(file) ?? '').split('\n').filter(Boolean)) {
    const parsed = line.safeParse(jsonOf(text));
    if (!parsed.success) throw new DataError('this is no answer of an exam', { where: file, next });
    const { name, before, repeats, instruction } = parsed.data;
    const asked = { name, before, repeats, instruction };
    if ('answer' in parsed.data) {
      const { answer, expected } = parsed.data;
      read.push({ ...asked, source: null, made: answer, labelled: expected });
      continue;
    }
    const { source, edited, labelled } = parsed.data;
    read.push({
      ...asked,
      source: await decoded(source),
      made: await decoded(edited),
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
