/** Two edits of one image before the judge, in both orders. */
import { must } from '../../../core/errors.js';
import { plainScores } from '../../judge/parse.js';
import type { JudgeImage } from '../../judge/images.js';
import { unscoredOutcome, type JudgedItem, prepareItem } from '../../score/judged_item.js';
import { FIRST_SHOWN, playTournament, type Rounds } from './tournament.js';
import type { Judgement, Outcome, ScoreOptions, ScoreParts, AnswerGroup } from '../../score/types.js';
import { RandomStream } from '../../../core/random.js';
import { grouped } from '../../../core/grouped.js';
import { fitStrengths, winRate, type WinRate } from './bradley_terry.js';

/** The images for the judge, in this order. */
export interface Shown {
  readonly instruction: string;
  readonly source: JudgeImage;
  readonly first: JudgeImage;
  readonly second: JudgeImage;
}

/** Asks for grades of the two, by the question's whole key. Never rejects because of the judge. */
export type Ask = (
  question: string,
  shown: Shown,
  signal: AbortSignal | undefined,
  options: ScoreOptions | undefined,
) => Promise<Judgement>;

/** One edit of a meeting, with the keys of the questions that show it first. */
export interface Contestant {
  readonly image: JudgeImage;
  readonly question: string;
}

/** The result of a meeting. */
export interface Meeting {
  /** The share of the first contestant, from 0 to 1, over both orders. Null if the judge did not decide both. */
  readonly share: number | null;
  /** Number of the two questions in which the first image won. A tie counts half. */
  readonly firstShown: number;
  /** Whether the two orders have different winners. */
  readonly contradicts: boolean;
  readonly judgements: readonly Judgement[];
}

/** 1 if the first of two grades is higher, 0 if it is lower, a half if they are equal. */
function shareOfFirst([first, second]: readonly number[]): number {
  return (Math.sign(first - second) + 1) / 2;
}

/** Asks the judge both orders at once. */
export async function meet(
  { instruction, source }: Pick<Shown, 'instruction' | 'source'>,
  one: Contestant,
  other: Contestant,
  ask: Ask,
  signal?: AbortSignal,
  options?: ScoreOptions,
): Promise<Meeting> {
  const inOrder = ([first, second]: readonly [Contestant, Contestant]): Promise<Judgement> =>
    ask(first.question, { instruction, source, first: first.image, second: second.image }, signal, options);
  const judgements = await Promise.all([inOrder([one, other]), inOrder([other, one])]);
  if (judgements.some(({ problem }) => problem !== null)) {
    return { share: null, firstShown: 0, contradicts: false, judgements };
  }
  const [before, after] = judgements.map(({ scores }) => shareOfFirst(plainScores(scores)));
  return {
    share: (before + 1 - after) / 2,
    firstShown: before + after,
    contradicts: before !== 0.5 && before === after,
    judgements,
  };
}

/** The parts from an answer's decided meetings, in addition to its win rate. Needs at least one meeting. */
export function partsOf(meetings: readonly Meeting[]): ScoreParts {
  const mean = (of: (meeting: Meeting) => number): number =>
    meetings.reduce((sum, meeting) => sum + of(meeting), 0) / meetings.length;
  return {
    'pairwise/meetings': meetings.length,
    'pairwise/contradicted': mean(({ contradicts }) => (contradicts ? 1 : 0)),
    [`pairwise/${FIRST_SHOWN}`]: mean(({ firstShown }) => firstShown / 2),
  };
}

/** The outcome of an answer against a rival that is no answer. A rival that is equal in every pixel ties without a question. */
export async function compareAlone(
  item: JudgedItem,
  rival: JudgeImage,
  ask: Ask,
  signal?: AbortSignal,
  options?: ScoreOptions,
): Promise<Outcome> {
  if (rival.id === item.edited.id) {
    return { kind: 'scored', value: 0.5, normalised: 0.5, parts: { 'pairwise/win_rate': 0.5 } };
  }
  const meeting = await meet(
    item,
    { image: item.edited, question: `${item.key}/pairwise_before` },
    { image: rival, question: `${item.key}/pairwise_after` },
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

export interface Comparing {
  readonly rounds: Rounds;
  readonly ask: Ask;
}

const lastOf = (key: string): string => key.slice(key.lastIndexOf('/') + 1);

/**
 * The outcomes of a group's answers, by key. Answers that cannot be shown are missing, and lose to all others. Answers with the same image
 * are one player, which is never compared with itself. An answer without a decided meeting is unscored. The draw of the first round depends
 * on the group's first key alone.
 */
export async function compareGroup(
  { answers, ruledOut }: AnswerGroup,
  { rounds, ask }: Comparing,
  signal?: AbortSignal,
  options?: ScoreOptions,
): Promise<ReadonlyMap<string, Outcome>> {
  const prepared = answers.map((answer) => prepareItem(answer, null));
  const shown = prepared.filter((one): one is JudgedItem => !('kind' in one));
  const beaten = ruledOut + prepared.filter((one) => 'kind' in one && one.kind === 'zero_by_rule').length;
  const players = [...grouped(shown, ({ edited }) => edited.id).values()];
  const play = ([first, second]: readonly [number, number]): Promise<Meeting> => {
    const [[one], [other]] = [players[first], players[second]];
    const contestant = (own: JudgedItem, rival: JudgedItem) => ({
      image: own.edited,
      question: `${own.key}/pairwise_${lastOf(rival.key)}`,
    });
    return meet(one, contestant(one, other), contestant(other, one), ask, signal, options);
  };
  const random = new RandomStream('pairwise', answers.at(0)?.key ?? '');
  const { games, results } = await playTournament(players.length, rounds, random, play, ({ share }) => share);
  const standings = fitStrengths(players.length, games);
  const counts = players.map(({ length }) => length);
  const outcomes = new Map<string, Outcome>();
  players.forEach((same, player) => {
    const met = results.flatMap(([pairing, meeting]) => (pairing.includes(player) ? [meeting] : []));
    const decided = met.filter(({ share }) => share !== null);
    const outcome =
      decided.length === 0 && met.length > 0
        ? undecided(met)
        : scored(winRate(standings, counts, player, beaten), decided);
    for (const { key } of same) outcomes.set(key, outcome);
  });
  return outcomes;
}

function scored({ value, error }: WinRate, decided: readonly Meeting[]): Outcome {
  const played = decided.length === 0 ? {} : { 'pairwise/error': error, ...partsOf(decided) };
  return { kind: 'scored', value, normalised: value, parts: { 'pairwise/win_rate': value, ...played } };
}
