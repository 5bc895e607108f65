/** Two edits of one picture before the judge, in both orders. */
import { must } from '../../../core/errors.js';
import type { JudgeImage } from '../../judge/images.js';
import { unscoredOutcome, type JudgedItem } from '../../score/judged_item.js';
import { FIRST_SHOWN } from './parts.js';
import type { Judgement, Outcome, ScoreOptions, ScoreParts } from '../../score/types.js';

/** What the judge is shown, in this order. */
export interface Shown {
  readonly instruction: string;
  readonly source: JudgeImage;
  readonly first: JudgeImage;
  readonly second: JudgeImage;
}

/** Asks for grades of the two, by the question's whole key. Never rejects for anything that the judge does. */
export type Ask = (
  question: string,
  shown: Shown,
  signal: AbortSignal | undefined,
  options: ScoreOptions | undefined,
) => Promise<Judgement>;

/** An edit that meets another one, by the keys of the questions in which it is shown first. */
export interface Contestant {
  readonly picture: JudgeImage;
  readonly question: string;
}

/** How a meeting ended. */
export interface Meeting {
  /** How much of it went to the one, from 0 to 1, over both orders; null where the judge did not decide both. */
  readonly share: number | null;
  /** How often the picture that is shown first was found better, of the two questions; a tie counts half. */
  readonly firstShown: number;
  /** Whether the two orders name different edits as the better one. */
  readonly contradicts: boolean;
  readonly judgements: readonly Judgement[];
}

/** 1 where the first of two grades is higher, 0 where it is lower, a half where they are equal. */
function shareOfFirst([first, second]: readonly number[]): number {
  return (Math.sign(first - second) + 1) / 2;
}

/** Puts both orders to the judge at once. */
export async function meet(
  { instruction, source }: Pick<Shown, 'instruction' | 'source'>,
  one: Contestant,
  other: Contestant,
  ask: Ask,
  signal?: AbortSignal,
  options?: ScoreOptions,
): Promise<Meeting> {
  const inOrder = ([first, second]: readonly [Contestant, Contestant]): Promise<Judgement> =>
    ask(first.question, { instruction, source, first: first.picture, second: second.picture }, signal, options);
  const judgements = await Promise.all([inOrder([one, other]), inOrder([other, one])]);
  if (judgements.some(({ problem }) => problem !== null)) {
    return { share: null, firstShown: 0, contradicts: false, judgements };
  }
  const [before, after] = judgements.map(({ scores }) => shareOfFirst(scores));
  return {
    share: (before + 1 - after) / 2,
    firstShown: before + after,
    contradicts: before !== 0.5 && before === after,
    judgements,
  };
}

/** The parts that decided meetings of an answer give, besides its win rate. At least one. */
export function partsOf(meetings: readonly Meeting[]): ScoreParts {
  const mean = (of: (meeting: Meeting) => number): number =>
    meetings.reduce((sum, meeting) => sum + of(meeting), 0) / meetings.length;
  return {
    'pairwise/meetings': meetings.length,
    'pairwise/contradicted': mean(({ contradicts }) => (contradicts ? 1 : 0)),
    [FIRST_SHOWN]: mean(({ firstShown }) => firstShown / 2),
  };
}

/** The outcome of an answer beside a rival that is no answer. One that equals it in every pixel ties, and nobody is asked. */
export async function compareAlone(
  item: JudgedItem,
  rival: JudgeImage,
  ask: Ask,
  signal?: AbortSignal,
  options?: ScoreOptions,
): Promise<Outcome> {
  if (rival.digest === item.edited.digest) {
    return { kind: 'scored', value: 0.5, normalised: 0.5, parts: { 'pairwise/win_rate': 0.5 } };
  }
  const meeting = await meet(
    item,
    { picture: item.edited, question: `${item.key}/pairwise_before` },
    { picture: rival, question: `${item.key}/pairwise_after` },
    ask,
    signal,
    options,
  );
  const { share } = meeting;
  if (share === null) return undecided([meeting]);
  return {
    kind: 'scored',
    value: share,
    normalised: share,
    parts: { 'pairwise/win_rate': share, ...partsOf([meeting]) },
  };
}

/** The outcome of an answer whose meetings the judge did not decide, for the first reason of these. */
export function undecided(met: readonly Meeting[]): Outcome {
  const judgements = met.flatMap((meeting) => meeting.judgements);
  return must(unscoredOutcome(judgements, {}), 'a question without an answer in meetings that were not decided');
}
