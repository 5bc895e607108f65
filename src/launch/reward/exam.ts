/**
 * Examines the judge of a reward and records its replies:
 *
 *   <folder>/judgements.jsonl   every reply, stored before use, so that an interrupted exam continues
 *   <folder>/sample.jsonl       some answers with their scores, about which runs later ask the judge again
 *   <folder>/exam.json          the results, written last
 */
import { join } from 'node:path';
import { InUseError, UsageError } from '../../core/errors.js';
import { writeFileAtomic } from '../../core/files.js';
import { ownerStatus, realLockWorld, takeLock } from '../../core/lock.js';
import { average } from '../../core/statistics.js';
import type { ExamSet } from '../../rewards/exam/cases.js';
import { costsOf } from '../../rewards/exam/costs.js';
import { examine } from '../../rewards/exam/examine.js';
import {
  agreementOf,
  fidelityOf,
  marksOf,
  scoresOf,
  type RepliedCase,
  verdictOf,
} from '../../rewards/exam/findings.js';
import { decidingTerms, rewardName } from '../../rewards/score/choice.js';
import type { RewardSettings } from '../../rewards/schema/reward.js';
import { judgementForm, type Judgement, type JudgementStore } from '../../rewards/score/types.js';
import { answeringModel, EXAM_FILE, examDigest, writeExamSample, type ExamRecord } from '../../run/exams.js';
import { Exchanges } from '../../run/exchanges.js';
import { openServedReward, type ServedRewardOptions } from './server.js';

export interface ExamRequest extends Omit<ServedRewardOptions, 'store'> {
  readonly settings: RewardSettings;
  readonly set: ExamSet;
  readonly repeats: number;
  readonly folder: string;
  readonly onCase?: (done: number) => void;
}

/** Cases scored at once: enough to keep a judge with `concurrency` slots busy. */
const QUESTIONS_OF_A_CASE = 32;

/**
 * Whether the reward's exam uses texts or images: texts if one of its terms reads only text. Raises UsageError for a
 * reward without terms.
 */
export function examReads(settings: RewardSettings): ExamSet['reads'] {
  const terms = decidingTerms(settings);
  if (terms.length > 0) return terms.some(({ kind }) => kind.reads === 'words') ? 'words' : 'image';
  throw new UsageError('found a reward without terms; allowed: terms that read an edited image or an answer');
}

const SHOWN: Readonly<Record<ExamSet['reads'], string>> = { image: 'an edited image', words: 'a text answer' };

/** Raises UsageError for a reward that cannot score the set's answers. */
function requireScorable(settings: RewardSettings, set: ExamSet): void {
  examReads(settings);
  const terms = decidingTerms(settings);
  const other = terms.find(({ kind }) => kind.reads !== 'either' && kind.reads !== set.reads);
  if (other !== undefined) {
    const reads = other.kind.reads === 'words' ? 'reads words' : 'reads images';
    throw new UsageError(
      `found the term '${other.name}', which ${reads}; allowed: terms for ${SHOWN[set.reads]}, which this exam shows`,
    );
  }
  const compares = terms.find(({ kind }) => kind.needs.truth || kind.needs.words === true);
  if (set.labelled || compares === undefined) return;
  const [label, advice] =
    set.reads === 'image'
      ? [
          'labeled result',
          'Leave --pairs out: edits of the tiny world have labeled results. Or name other terms, such as viescore.',
        ]
      : ['labeled answer', 'Give each line a "reference". Or name other terms, such as answer_judge.'];
  throw new UsageError(
    `found the term '${compares.name}', which compares with a ${label}, and these pairs have none; allowed with pairs: terms that do without`,
    { next: advice },
  );
}

/**
 * Runs an exam. Raises the errors of `openServedReward` and `examine`, UsageError for a reward that cannot score the
 * set's answers, and InUseError while another process runs the same exam.
 */
export async function runExam(request: ExamRequest): Promise<ExamRecord> {
  const { settings, set, repeats, folder, signal, onCase, ...opening } = request;
  requireScorable(settings, set);
  const lockPath = join(folder, 'lock');
  const world = realLockWorld();
  const lock = takeLock(
    lockPath,
    ({ owner }) => {
      if (owner !== null && ownerStatus(owner, world) === 'gone') return;
      throw new InUseError('another process makes this exam', {
        where: lockPath,
        next: 'Wait for it, or name another --out.',
      });
    },
    world,
  );
  const kept = new Exchanges(join(folder, 'judgements.jsonl'), judgementForm, { isOwner: true, from: null });
  try {
    const used = new Map<string, Judgement>();
    const store: JudgementStore = {
      find: (key, hash) => {
        const found = kept.find(key, hash);
        if (found !== undefined) used.set(found.key, found);
        return found;
      },
      put: (judgement) => {
        kept.put(judgement);
        used.set(judgement.key, judgement);
      },
    };
    const reward = await openServedReward(settings, { ...opening, signal, store });
    try {
      const cases = await examine(set, {
        repeats,
        signal,
        atOnce: Math.max(1, Math.ceil(settings.concurrency / QUESTIONS_OF_A_CASE)),
        // A case without a score last time may get one now.
        score: async (item, stop, group) => (await reward.scoreTerms(item, stop, { askAgain: true, group })).outcome,
        onCase: (done) => {
          lock.heartbeat();
          onCase?.(done);
        },
      });
      const record = recordOf(request, cases, [...used.values()]);
      // If a reward compares answers, the score of a lone answer differs from its score in a group.
      await writeExamSample(folder, set, reward.compares ? [] : cases);
      writeFileAtomic(join(folder, EXAM_FILE), `${JSON.stringify(record, null, 2)}\n`);
      return record;
    } finally {
      await reward.close();
    }
  } finally {
    kept.close();
    lock.release();
  }
}

/** The model that most replies name. */
function modelOf(settings: RewardSettings, judgements: readonly Judgement[]): string {
  const judgeModel = answeringModel(settings);
  if (settings.endpoint === 'embedded') return judgeModel;
  const named = new Map<string, number>();
  for (const { model, problem } of judgements) if (problem === null) named.set(model, (named.get(model) ?? 0) + 1);
  return [...named].sort(([, a], [, b]) => b - a).at(0)?.[0] ?? judgeModel;
}

const orNull = (value: number): number | null => (Number.isNaN(value) ? null : value);

function recordOf(
  { settings, set, repeats }: ExamRequest,
  cases: readonly RepliedCase[],
  judgements: readonly Judgement[],
): ExamRecord {
  const marks = marksOf(cases);
  const problems: Record<string, number> = {};
  for (const { problem } of judgements) if (problem !== null) problems[problem] = (problems[problem] ?? 0) + 1;
  return {
    format: 1,
    made_at: new Date().toISOString(),
    set: set.name,
    repeats,
    reward: {
      name: rewardName(settings),
      asked: answeringModel(settings),
      model: modelOf(settings, judgements),
      endpoint: settings.endpoint,
      digest: examDigest(settings),
    },
    marks,
    verdict: verdictOf(marks),
    judgements: {
      count: judgements.length,
      mean_seconds: judgements.length === 0 ? 0 : average(judgements.map(({ latencyMs }) => latencyMs)) / 1000,
      requests: judgements.reduce((sum, { attempts }) => sum + attempts, 0),
      problems,
    },
    costs: costsOf(judgements),
    cases: cases.map((replied) => ({
      name: replied.name,
      agreement: orNull(agreementOf(replied)),
      fidelity: orNull(fidelityOf(replied)),
      scores: Object.fromEntries(replied.answers.map(({ name }) => [name, orNull(average(scoresOf(replied, name)))])),
    })),
  };
}
