/** Exams of judges, which lie beside the runs that the judges score: `<runs>/exams/<name>/exam.json`. */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { DataError } from '../core/errors.js';
import { readPlainText } from '../core/plain_file.js';
import type { ExamCosts } from '../rewards/exam/costs.js';
import type { ExamMarks, Verdict } from '../rewards/exam/findings.js';
import { isModel, JUDGE_MODEL } from '../rewards/judge/endpoints.js';
import type { RewardSettings } from '../rewards/schema/reward.js';
import { decidingTerms } from '../rewards/score/choice.js';
import { rewardDigest } from './reward_digest.js';

/** What was found of a case; null where it has no score. */
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
    /** The name by which the judge was asked. */
    readonly asked: string;
    /** The model that answered, as its replies name it. */
    readonly model: string;
    /** As the reward section has it. */
    readonly endpoint: RewardSettings['endpoint'];
    /** See `examDigest`. */
    readonly digest: string;
  };
  readonly marks: ExamMarks;
  readonly verdict: Verdict;
  readonly judgements: {
    readonly count: number;
    /** Of one judgement, in its slot, over all its requests. */
    readonly mean_seconds: number;
    readonly requests: number;
    /** Judgements without scores by reason. */
    readonly problems: Readonly<Record<string, number>>;
  };
  /** Absent in records that lack it. */
  readonly costs?: ExamCosts;
  readonly cases: readonly ExamCaseRecord[];
}

/** The name of its record in an exam's folder. */
export const EXAM_FILE = 'exam.json';
/** The folder of exams among runs. */
export const EXAMS = 'exams';

/** The folder of a reward's exam on a set among runs. */
export function examFolder(runs: string, settings: RewardSettings, set: string): string {
  const model = answeringModel(settings).replace(/[^A-Za-z0-9.]+/g, '_');
  return join(runs, EXAMS, `${model}-${examDigest(settings).slice(0, 8)}-${set}`);
}

/** The model that answers a reward's questions, as far as its settings say: the embedded judge answers by any name that it is asked by. */
export function answeringModel({ endpoint, model }: Pick<RewardSettings, 'endpoint' | 'model'>): string {
  return endpoint === 'embedded' ? JUDGE_MODEL : model;
}

/**
 * SHA-256 over what a reward asks and how it weighs the replies, whoever answers. A mode equals its term alone with weight 1. Nothing counts that an
 * exam's answers do not depend on: terms that are only recorded, and what becomes of unfinished answers.
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

/** Whether the model that answered at an exam may answer a reward's questions. */
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
  costs: costs.optional(),
  cases: z.array(
    z.looseObject({ name: z.string(), agreement: z.number().nullable(), fidelity: z.number().nullable() }),
  ),
});

/** The record of an exam by its folder or file. Raises DataError where there is none. */
export function readExam(path: string): ExamRecord {
  const file = path.endsWith('.json') ? path : join(path, EXAM_FILE);
  const next = 'Name the folder of an exam that has ended: editrl judge exam prints it.';
  try {
    const parsed = recordSchema.safeParse(JSON.parse(readPlainText(file) ?? ''));
    if (parsed.success) return parsed.data as unknown as ExamRecord;
    throw new DataError('this is no exam', { where: file, next });
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

/** The exams among the runs of a folder that asked this reward's judge what this reward asks, the latest last. Skips folders without a valid exam. */
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
