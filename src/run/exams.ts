/** Records of judge exams, next to the runs: `<runs>/exams/<name>/exam.json`. */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { canonicalJson, countedText, fileDigest } from '../config/hash.js';
import { DataError } from '../core/errors.js';
import { writeFileAtomic } from '../core/files.js';
import { decodeImage, encodePng, sha256, type RgbImage } from '../core/images/image.js';
import { readPlainText } from '../core/plain_file.js';
import { average } from '../core/statistics.js';
import type { ExamCase, ExamSet } from '../rewards/exam/cases.js';
import type { ExamCosts } from '../rewards/exam/costs.js';
import type { RepeatedAnswer } from '../rewards/exam/drift.js';
import { scoresOf, type ExamMarks, type RepliedCase, type Verdict } from '../rewards/exam/findings.js';
import type { Made } from '../rewards/exam/tricks.js';
import { isModel, JUDGE_MODEL } from '../rewards/judge/endpoints.js';
import { loadPrompts, type PromptSet } from '../rewards/judge/prompts.js';
import { reward as rewardSchema, type RewardSettings } from '../rewards/schema/reward.js';
import { decidingTerms } from '../rewards/score/choice.js';
import { leaves } from '../core/schema/walk.js';

/** The results of a case. Null for an answer without a score. */
export interface ExamCaseRecord {
  readonly name: string;
  readonly agreement: number | null;
  readonly fidelity: number | null;
  /** Mean scores from 0 to 1 by answer. */
  readonly scores: Readonly<Record<string, number | null>>;
}

/** The content of `exam.json`. */
export interface ExamRecord {
  readonly format: 1;
  readonly made_at: string;
  readonly set: string;
  readonly repeats: number;
  readonly reward: {
    readonly name: string;
    /** The requested model name. */
    readonly asked: string;
    /** The model name in the judge's replies. */
    readonly model: string;
    /** The endpoint in the reward section. */
    readonly endpoint: RewardSettings['endpoint'];
    /** See `examDigest`. */
    readonly digest: string;
  };
  readonly marks: ExamMarks;
  readonly verdict: Verdict;
  readonly judgements: {
    readonly count: number;
    /** Mean seconds of a judgement over all its requests. */
    readonly mean_seconds: number;
    readonly requests: number;
    /** Judgements without scores by reason. */
    readonly problems: Readonly<Record<string, number>>;
  };
  readonly costs: ExamCosts;
  readonly cases: readonly ExamCaseRecord[];
}

/** Name of the record in an exam's folder. */
export const EXAM_FILE = 'exam.json';
/** Name of the exams folder in a directory of runs. */
export const EXAMS = 'exams';

/** The folder of a reward's exam on a set. */
export function examFolder(runs: string, settings: RewardSettings, set: string): string {
  const model = answeringModel(settings).replace(/[^A-Za-z0-9.]+/g, '_');
  return join(runs, EXAMS, `${model}-${examDigest(settings).slice(0, 8)}-${set}`);
}

/** The judge model of a reward by its settings. The embedded judge accepts any name. */
export function answeringModel({ endpoint, model }: Pick<RewardSettings, 'endpoint' | 'model'>): string {
  return endpoint === 'embedded' ? JUDGE_MODEL : model;
}

/**
 * SHA-256 over the questions of a reward and its weights, independent of the judge. A mode equals its single term with weight 1. Settings that do not
 * affect an exam are left out, such as recorded-only terms and the handling of unfinished answers.
 */
export function examDigest(settings: RewardSettings): string {
  const terms = decidingTerms(settings).map(({ kind: { name }, fields, weight }) => ({
    ...fields,
    name,
    weight,
  }));
  return rewardDigest({
    ...settings,
    mode: null,
    terms: terms as unknown as RewardSettings['terms'],
    also_compute: [],
    zero_if_unfinished: true,
    model: '',
  });
}

/** Whether the judge of an exam may be the judge of a reward. */
function mayAnswer(settings: RewardSettings, { asked, model }: ExamRecord['reward']): boolean {
  const { model_alias: alias, endpoint } = settings;
  const names = [answeringModel(settings), ...(typeof alias === 'boolean' || endpoint === 'embedded' ? [] : alias)];
  return names.some((name) => isModel(model, name)) || (alias === true && asked === names[0]);
}

const estimate = z.looseObject({ mean: z.number().nullable(), stderr: z.number().nullable() });
const tokens = z.looseObject({ prompt: z.number(), completion: z.number() });
const costs = z.looseObject({
  tokens: tokens.extend({ questions: z.number() }).nullable(),
  seconds: z.looseObject({ median: z.number(), p95: z.number() }).nullable(),
});
const recordSchema = z.looseObject({
  format: z.literal(1),
  made_at: z.string(),
  set: z.string(),
  reward: z.looseObject({ digest: z.string(), asked: z.string(), model: z.string() }),
  marks: z.looseObject({
    cases: z.number(),
    signal: estimate,
    findings: z.array(z.looseObject({ name: z.string() })),
  }),
  verdict: z.looseObject({ teaches: z.string(), sentences: z.array(z.string()) }),
  costs,
  cases: z.array(
    z.looseObject({ name: z.string(), agreement: z.number().nullable(), fidelity: z.number().nullable() }),
  ),
});

/** Reads the record of an exam by its folder or file. Raises DataError if there is none. */
export function readExam(path: string): ExamRecord {
  const file = path.endsWith('.json') ? path : join(path, EXAM_FILE);
  const next = 'Name the folder of a finished exam, which `editrl judge exam` prints.';
  try {
    const parsed = recordSchema.safeParse(JSON.parse(readPlainText(file) ?? ''));
    if (parsed.success) return parsed.data as unknown as ExamRecord;
    throw new DataError('not a judge exam', { where: file, next });
  } catch (cause) {
    if (cause instanceof DataError) throw cause;
    throw new DataError('cannot read the exam', { where: file, next, cause });
  }
}

/** An exam with its folder. */
export interface FoundExam {
  readonly folder: string;
  readonly record: ExamRecord;
}

/** The exams in a directory of runs with this reward's questions and judge, the latest last. Skips folders without a valid exam. */
export function examsOf(runs: string, settings: RewardSettings): FoundExam[] {
  const folder = join(runs, EXAMS);
  if (!existsSync(folder)) return [];
  const digest = examDigest(settings);
  return readdirSync(folder)
    .map((name) => join(folder, name))
    .filter((path) => existsSync(join(path, EXAM_FILE)))
    .flatMap((path) => {
      try {
        return [{ folder: path, record: readExam(path) }];
      } catch (error) {
        if (error instanceof DataError) return [];
        throw error;
      }
    })
    .filter(({ record: { reward } }) => reward.digest === digest && mayAnswer(settings, reward))
    .sort((a, b) => (a.record.made_at < b.record.made_at ? -1 : 1));
}

const SAMPLE_FILE = 'sample.jsonl';
/** Number of answers in a sample, from as many different cases as possible. With VIEScore they take forty questions. */
const ANSWERS = 20;

/** One answer of the sample. */
export interface SampledAnswer extends RepeatedAnswer {
  readonly instruction: string;
  /** Null for text answers. */
  readonly source: RgbImage | null;
  readonly made: Made;
  /** The labeled result. Null if there is none. */
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

/** Writes the sample of a finished exam: evenly spread cases with alternating answers. Answers without a score are left out. */
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
  const written = {
    name: `${answer} of case ${exam.name}`,
    before: average(scores),
    repeats: scores.length,
    instruction: exam.instruction,
  };
  if (source === null || typeof found.made === 'string' || typeof labelled === 'string') {
    return { ...written, answer: wordsOf(found.made), expected: labelled === null ? null : wordsOf(labelled) };
  }
  const encoded = async (image: RgbImage): Promise<string> => Buffer.from(await encodePng(image)).toString('base64');
  return {
    ...written,
    source: await encoded(source),
    edited: await encoded(found.made),
    labelled: labelled === null ? null : await encoded(labelled),
  };
}

function wordsOf(made: Made): string {
  if (typeof made === 'string') return made;
  throw new Error('internal: a text exam has an image');
}

/** The sample of an exam. Empty for an exam without a sample. Raises DataError for an invalid file. */
export async function readExamSample(folder: string): Promise<SampledAnswer[]> {
  const file = join(folder, SAMPLE_FILE);
  const next = 'Repeat the exam: editrl judge exam.';
  const decoded = (base64: string): Promise<RgbImage> => decodeImage(Buffer.from(base64, 'base64'), file);
  const read: SampledAnswer[] = [];
  for (const text of (readPlainText(file) ?? '').split('\n').filter(Boolean)) {
    const parsed = line.safeParse(jsonOf(text));
    if (!parsed.success) throw new DataError('not an answer of a judge exam', { where: file, next });
    const { name, before, repeats, instruction } = parsed.data;
    const caseRow = { name, before, repeats, instruction };
    if ('answer' in parsed.data) {
      const { answer, expected } = parsed.data;
      read.push({ ...caseRow, source: null, made: answer, labelled: expected });
      continue;
    }
    const { source, edited, labelled } = parsed.data;
    read.push({
      ...caseRow,
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

/** SHA-256 over everything that affects scores. Servers with equal digests give equal scores. */
export function rewardDigest(settings: RewardSettings, prompts: PromptSet = loadPrompts(settings)): string {
  const deciding = leaves(rewardSchema, settings)
    .filter(({ effect, path }) => effect === 'result' && !path.startsWith('prompts.'))
    // Uses the content of a file, not its path on this machine.
    .map(({ path, value, mark: { file } }) => [
      path,
      file !== undefined && typeof value === 'string' ? countedText(value, fileDigest(file, value)) : value,
    ]);
  const { sc, pq, ground } = prompts;
  return sha256(canonicalJson({ ...(Object.fromEntries(deciding) as object), prompts: { sc, pq, ground } }));
}
