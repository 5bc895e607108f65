/** The contract between the training loop and every reward: what is judged, and the result. */
import { lineForm, type ExchangeStore, type RemoteExchange } from '../../core/remote/exchange.js';
import type { RgbImage } from '../../core/images/image.js';

/** One finished answer as a reward sees it. Rewards know no policy: only pixels and words. */
export interface JudgeItem {
  /**
   * Unique within a run: names the episode in records and lets stored judgements be replayed. Keys of a held-out evaluation begin with `validation/`;
   * those of other answers to one prompt differ in what follows their last slash.
   */
  readonly key: string;
  /** The request: the instruction of an edit, the user's own prompt for a generated image, or the question for an answer in words. */
  readonly instruction: string;
  /** The image that was edited; null where the artifact was made from words alone. */
  readonly source: RgbImage | null;
  /** Images that were given beside the one that was edited, in their order; absent where there are none. */
  readonly beside?: readonly RgbImage[];
  /** The image that the policy made; null when its answer does not decode to one, or is words alone. */
  readonly edited: RgbImage | null;
  /** The labelled result, where the dataset has one (ground score needs it). */
  readonly truth: RgbImage | null;
  /**
   * White inside the region of `edited` that was painted, black outside it; absent if the whole image was. It is stretched to the size of `edited`.
   */
  readonly mask?: RgbImage;
  /** The answer's own words, where a reward reads them. */
  readonly answer?: string;
  /** The labelled answer in words, where the dataset has one. */
  readonly expected?: string;
  /** The dataset's row with all its columns, where a recipe's data have rows: for modules of the user's own. */
  readonly row?: Readonly<Record<string, unknown>>;
  /** Why there is no picture of the answer, if that is not the answer's fault: it is then unscored. */
  readonly unavailable?: { readonly reason: UnscoredReason; readonly detail: string };
  /** Whether the answer ended by itself (a stop token) instead of by the length limit. */
  readonly finished: boolean;
}

/** Whether an episode of this key belongs to a held-out evaluation. */
export function isHeldOut({ key }: Pick<JudgeItem, 'key'>): boolean {
  return key.startsWith('validation/');
}

export const unscoredReasons = [
  'timeout',
  'connection',
  'rate_limited',
  'server_error',
  'bad_request',
  'unparsable',
  'truncated',
  'refused',
  'empty',
  'out_of_range',
  'aborted',
  'own_code',
] as const;
/**
 * Why an item has no score. `own_code` is the fault of the user's own reward code: it threw, or returned what is no outcome. All others are
 * the fault of whoever was asked.
 */
export type UnscoredReason = (typeof unscoredReasons)[number];

/**
 * What scoring one episode gave. `value` is on the reward's native scale, whose worst value is 0, and `normalised` in [0, 1]: an answer that
 * is zero by rule counts as 0 beside them, and must not be worth more than one that was scored.
 * `zero_by_rule` is about the answer (it does not decode, it did not stop); `unscored` is everything on the judge's side
 * and is never a number.
 */
export type Outcome = Measured &
  (
    | {
        readonly kind: 'scored';
        readonly value: number;
        readonly normalised: number;
        readonly parts: ScoreParts;
        /** The terms of a weighted sum, in order; absent if a single term decides. */
        readonly terms?: readonly TermScore[];
      }
    | { readonly kind: 'zero_by_rule'; readonly reason: 'undecodable' | 'unfinished'; readonly parts: ScoreParts }
    | {
        readonly kind: 'unscored';
        readonly reason: UnscoredReason;
        readonly detail: string;
        readonly parts: ScoreParts;
      }
  );

interface Measured {
  /** What the terms of `validation.measure` say of a held-out answer, by name; absent without such terms. */
  readonly measures?: Readonly<Record<string, Outcome>>;
}

/** One term's share of a weighted sum. */
export interface TermScore {
  readonly name: string;
  readonly weight: number;
  /** In [0, 1]; 0 where the term is zero by rule. */
  readonly normalised: number;
}

/** Named parts of a score, such as `viescore/edit_success`; only parts that were really obtained. */
export type ScoreParts = Readonly<Record<string, number>>;

export interface ScoreOptions {
  /** Asks the judge again if the stored judgement gave no scores; otherwise that is replayed like any other. */
  readonly askAgain?: boolean;
  /** The answers among which the item is scored, itself among them; absent where it stands alone. One object for all of them. */
  readonly group?: AnswerGroup;
}

/** Answers to one prompt that are scored together. */
export interface AnswerGroup {
  /** Those that may be looked at, in their order. */
  readonly answers: readonly JudgeItem[];
  /** How many others are zero by rule: every answer that may be looked at is better. */
  readonly ruledOut: number;
}

/** A reward scores items one by one; it never throws for anything the judge does, nor for anything in the artifact. */
export interface Reward {
  readonly name: string;
  /** Whether an answer's outcome depends on the others of its group; absent: no. */
  readonly compares?: boolean;
  score(item: JudgeItem, signal?: AbortSignal, options?: ScoreOptions): Promise<Outcome>;
}

/** Tokens of a question as its server counts them: images count as tokens of the prompt, thoughts as those of the completion. */
export interface Tokens {
  readonly prompt: number;
  readonly completion: number;
}

/** One exchange with a judge, as it is recorded and replayed. */
export interface Judgement extends RemoteExchange {
  /** `<item key>/<query>`, such as `5/12/3/viescore_sc`. */
  readonly key: string;
  /** SHA-256 over everything that determines the request: model, sampling, texts, image bytes. */
  readonly requestHash: string;
  /** The model that answered, as its reply names it; the name that was asked for where the reply names none. */
  readonly model: string;
  /** SHA-256 over the question's words and reply format alone: equal for all images. Absent in records that lack it. */
  readonly promptHash?: string;
  readonly text: string;
  /** Null if the text gave scores; else why not. */
  readonly problem: UnscoredReason | null;
  /** What was found where there is a problem, for messages; absent otherwise. */
  readonly detail?: string;
  readonly scores: readonly number[];
  readonly attempts: number;
  /** In a slot, over all requests. */
  readonly latencyMs: number;
  /** Over all requests whose replies say it. Absent if the server counts none, and in records that lack it. */
  readonly tokens?: Tokens;
}

/** A judgement as a line of `judgements.jsonl`. */
export const judgementForm = lineForm<Judgement>({
  key: 'key',
  requestHash: 'request_hash',
  model: 'model',
  promptHash: 'prompt_hash',
  text: 'text',
  problem: 'problem',
  detail: 'detail',
  scores: 'scores',
  attempts: 'attempts',
  latencyMs: 'latency_ms',
  tokens: 'tokens',
});

/** Counts the requests that judges get, where there is a limit to them. */
export interface JudgeCalls {
  /** Whether one more question may be asked; `end` is called for each that may, with the requests that it took. */
  begin(): boolean;
  end(requests: number): void;
}

/**
 * Judgements are stored before they are used; a resumed run finds those it has already paid for. Putting a judgement twice replaces the earlier one:
 * a later answer supersedes a failure.
 */
export interface JudgementStore extends ExchangeStore<Judgement> {
  /** Asked before a judge is, for what is not stored; absent where there is no limit. */
  readonly calls?: JudgeCalls | undefined;
}
