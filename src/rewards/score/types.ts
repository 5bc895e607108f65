/** The contract between the training loop and every reward: the item, and its outcome. */
import { lineForm, type ExchangeStore, type RemoteExchange } from '../../core/remote/exchange.js';
import type { RgbImage } from '../../core/images/image.js';

/** One finished answer as a reward sees it. Rewards know no policy: only pixels and words. */
export interface JudgeItem {
  /**
   * Unique within a run. Names the episode in records and identifies stored judgements. Keys of a held-out evaluation begin with
   * `validation/`. Keys of other answers to one prompt differ after their last slash.
   */
  readonly key: string;
  /** The request: the instruction of an edit, the user's own prompt for a generated image, or the question for a text answer. */
  readonly instruction: string;
  /** The image that was edited. Null if the artifact was made from words alone. */
  readonly source: RgbImage | null;
  /** Further images that were given with the edited one, in order. Absent if there are none. */
  readonly beside?: readonly RgbImage[];
  /** The images of a prompt that is answered in words, in order and as the policy saw them. Absent if it saw none. */
  readonly seen?: readonly RgbImage[];
  /** The image that the policy made. Null if its answer does not decode to an image or consists of words alone. */
  readonly edited: RgbImage | null;
  /** The labeled result, if the dataset has one (ground score needs it). */
  readonly truth: RgbImage | null;
  /**
   * White inside the region of `edited` that was painted, black outside it. Absent if the whole image was painted. It is stretched to the
   * size of `edited`.
   */
  readonly mask?: RgbImage;
  /** The answer's own words, if a reward reads them. */
  readonly answer?: string;
  /** The labeled text answer, if the dataset has one. */
  readonly expected?: string;
  /** The dataset's row with all its columns, if the data of the recipe has rows: for modules of the user's own. */
  readonly row?: Readonly<Record<string, unknown>>;
  /** Why the answer has no image, if that is not the answer's fault: it is then unscored. */
  readonly unavailable?: { readonly reason: UnscoredReason; readonly detail: string };
  /** Whether the answer ended by itself (a stop token) and not by the length limit. */
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
 * Why an item has no score. `own_code` is the fault of the user's own reward code: it threw, or did not return an outcome. All others are
 * the fault of the judge or server.
 */
export type UnscoredReason = (typeof unscoredReasons)[number];

/**
 * The result of scoring one episode. `value` is on the reward's native scale, whose worst value is 0, and `normalised` is in [0, 1]. An
 * answer that is zero by rule counts as 0, and must not be worth more than one that was scored. `zero_by_rule` concerns the answer (it does
 * not decode, it did not stop). `unscored` concerns the judge's side and is never a number.
 */
export type Outcome = Measured &
  (
    | {
        readonly kind: 'scored';
        readonly value: number;
        readonly normalised: number;
        readonly parts: ScoreParts;
        /** The terms of a weighted sum, in order. Absent if a single term decides. */
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
  /** The values of the terms of `validation.measure` for a held-out answer, by name. Absent without such terms. */
  readonly measures?: Readonly<Record<string, Outcome>>;
}

/** One term's share of a weighted sum. */
export interface TermScore {
  readonly name: string;
  readonly weight: number;
  /** In [0, 1]. 0 if the term is zero by rule. */
  readonly normalised: number;
}

/** Named parts of a score, such as `viescore/edit_success`. Only parts that were obtained. */
export type ScoreParts = Readonly<Record<string, number>>;

export interface ScoreOptions {
  /** Asks the judge again if the stored judgement gave no scores. Otherwise that judgement is replayed like any other. */
  readonly askAgain?: boolean;
  /** The answers among which the item is scored, including itself. Absent for a single answer. One object for all of them. */
  readonly group?: AnswerGroup;
}

/** Answers to one prompt that are scored together. */
export interface AnswerGroup {
  /** The answers that may be judged, in order. */
  readonly answers: readonly JudgeItem[];
  /** Number of other answers that are zero by rule. Every answer that may be judged is better. */
  readonly ruledOut: number;
}

/** A reward scores items one by one. It never throws because of the judge or the artifact. */
export interface Reward {
  readonly name: string;
  /** Whether an answer's outcome depends on the others of its group. Absent means no. */
  readonly compares?: boolean;
  score(item: JudgeItem, signal?: AbortSignal, options?: ScoreOptions): Promise<Outcome>;
}

/** Tokens of a question as its server counts them: images count as prompt tokens, thoughts as completion tokens. */
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
  /** The model that answered, according to its reply. The requested name if the reply has none. */
  readonly model: string;
  /** SHA-256 over the question's words and reply format alone: equal for all images. Absent in records that lack it. */
  readonly promptHash?: string;
  readonly text: string;
  /** Null if the text gave scores. Else the reason why not. */
  readonly problem: UnscoredReason | null;
  /** The detail of a problem, for messages. Absent otherwise. */
  readonly detail?: string;
  /** Null for an entry that the judge calls not applicable. */
  readonly scores: readonly (number | null)[];
  readonly attempts: number;
  /** Time in a slot, over all requests. */
  readonly latencyMs: number;
  /** Over all requests whose replies contain them. Absent if the server counts none, and in records that lack it. */
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

/** Counts the requests to judges, if there is a limit. */
export interface JudgeCalls {
  /** Whether one more question may be asked. `end` is called for each question that may, with the number of its requests. */
  begin(): boolean;
  end(requests: number): void;
}

/**
 * Judgements are stored before they are used, and a resumed run finds those that are already paid for. A second judgement of the same key
 * replaces the first: a later answer replaces a failure.
 */
export interface JudgementStore extends ExchangeStore<Judgement> {
  /** Checked before the judge is asked for a judgement that is not stored. Absent if there is no limit. */
  readonly calls?: JudgeCalls | undefined;
}
