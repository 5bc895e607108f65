/** A group of answers compared with each other: a tournament among their different pictures, and what it says of each. */
import { RandomStream } from '../../../core/random.js';
import { grouped } from '../../../core/grouped.js';
import type { JudgeImages } from '../../judge/images.js';
import { prepareItem, type JudgedItem } from '../../score/judged_item.js';
import type { AnswerGroup, Outcome, ScoreOptions } from '../../score/types.js';
import { fitStrengths, winRate, type WinRate } from './bradley_terry.js';
import { meet, partsOf, undecided, type Ask, type Meeting } from './meeting.js';
import { playTournament, type Rounds } from './tournament.js';

export interface Comparing {
  readonly rounds: Rounds;
  readonly images: JudgeImages;
  readonly ask: Ask;
}

const lastOf = (key: string): string => key.slice(key.lastIndexOf('/') + 1);

/**
 * The outcomes of a group's answers, by key; those that cannot be shown are missing, and lose to all others. Answers with the same picture are one
 * player, which nobody compares with itself. An answer none of whose meetings the judge decided is unscored. The draw of the first round follows
 * from the group's first key alone.
 */
export async function compareGroup(
  { answers, ruledOut }: AnswerGroup,
  { rounds, images, ask }: Comparing,
  signal?: AbortSignal,
  options?: ScoreOptions,
): Promise<ReadonlyMap<string, Outcome>> {
  const prepared = answers.map((answer) => prepareItem(answer, null, images));
  const shown = prepared.filter((one): one is JudgedItem => !('kind' in one));
  const beaten = ruledOut + prepared.filter((one) => 'kind' in one && one.kind === 'zero_by_rule').length;
  const players = [...grouped(shown, ({ edited }) => edited.digest).values()];
  const play = ([first, second]: readonly [number, number]): Promise<Meeting> => {
    const [[one], [other]] = [players[first], players[second]];
    const contestant = (own: JudgedItem, rival: JudgedItem) => ({
      picture: own.edited,
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
