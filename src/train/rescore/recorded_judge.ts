/** A judge that answers from a run's records. A real judge gets only requests whose answers are missing there. */
import { hashRequest } from '../../rewards/judge/chat_request.js';
import { dialects, type LeavableField } from '../../rewards/judge/dialect.js';
import type { Judge, JudgeQuery } from '../../rewards/judge/judge.js';
import type { Judgement, JudgementStore, ScoreOptions } from '../../rewards/score/types.js';

export interface RecordedJudgeOptions {
  readonly model: string;
  readonly recorded: Pick<JudgementStore, 'find'>;
  /** Fields that its requests leave out. */
  readonly leaveOut: readonly LeavableField[];
  /** The judge for answers that are not recorded or were recorded without scores. Null to send no requests. */
  readonly judge: Judge | null;
}

/** Numbers of answers by their origin. */
export interface JudgeCounts {
  /** Recorded scores. */
  replayed: number;
  /** Recorded replies without scores that the current parser can parse. */
  parsed_again: number;
  asked: number;
  /** Not recorded, and not requested. */
  missing: number;
}

export class RecordedJudge implements Judge {
  /** Keys of the items with a request that is not recorded. */
  readonly missing = new Set<string>();

  constructor(
    private readonly options: RecordedJudgeOptions,
    private readonly counts: JudgeCounts,
  ) {}

  async ask(query: JudgeQuery, signal?: AbortSignal, options?: ScoreOptions): Promise<Judgement> {
    const { model, judge } = this.options;
    const recorded = this.#find(query);
    if (recorded?.problem === null) {
      this.counts.replayed++;
      return recorded;
    }
    if (recorded !== undefined && recorded.text !== '') {
      const parsed = query.parse(recorded.text, recorded.problem === 'truncated');
      if (parsed.ok) {
        this.counts.parsed_again++;
        return { ...recorded, problem: null, scores: parsed.scores };
      }
    }
    if (judge !== null) {
      this.counts.asked++;
      return judge.ask(query, signal, options);
    }
    if (recorded !== undefined) {
      this.counts.replayed++;
      return recorded;
    }
    this.counts.missing++;
    this.missing.add(itemOf(query.key));
    const none = { requestHash: '', model, text: '', scores: [], attempts: 0, latencyMs: 0 };
    return { ...none, key: query.key, problem: 'aborted', detail: 'not recorded' };
  }

  #find(query: JudgeQuery): Judgement | undefined {
    const { model, recorded, leaveOut } = this.options;
    // A record does not contain the dialect of its request's hash.
    const found = dialects.flatMap((dialect) => {
      const judgement = recorded.find(query.key, hashRequest(query, model, { dialect, leaveOut }));
      return judgement === undefined ? [] : [judgement];
    });
    return found.find(({ problem }) => problem === null) ?? found.at(0);
  }
}

/** A run's recorded replies of reward servers. */
export class RecordedReplies {
  /** Keys of the items without a recorded reply, if no requests may be sent. */
  readonly missing = new Set<string>();

  constructor(
    private readonly recorded: Pick<JudgementStore, 'find'>,
    private readonly offline: boolean,
    private readonly counts: JudgeCounts,
  ) {}

  /** Like `TermRecords.reply`. A record without a score is used only if no requests may be sent. */
  find(key: string, requestHash: string, isUsable: (judgement: Judgement) => boolean): Judgement | undefined {
    const found = this.recorded.find(key, requestHash);
    if (found !== undefined && (this.offline || found.problem === null) && isUsable(found)) {
      this.counts.replayed++;
      return found;
    }
    if (this.offline) {
      this.counts.missing++;
      this.missing.add(itemOf(key));
    } else this.counts.asked++;
    return undefined;
  }
}

/** The key of the item that a request is about. */
function itemOf(key: string): string {
  return key.slice(0, key.lastIndexOf('/'));
}
