/** An iteration's episodes: their exchange between ranks, and their records. */
import type { RgbImage } from '../core/image.js';
import type { SamplePlace } from '../data/sampler.js';
import type { ProcessGroup } from '../group/process_group.js';
import type { Answer, AnsweredPrompt } from '../policies/policy.js';
import type { Outcome } from '../rewards/score/types.js';
import { placeRecord, storeImage, storePng, writeEpisodes } from '../run/episodes.js';
import type { RunPaths } from '../run/paths.js';
import type { Prompt, Rendered } from '../scoring/task.js';
import type { GroupAdvantages } from './advantages.js';
import type { Collected } from './collect.js';
import { lacksLogProbs } from './importance.js';

/** What rank 0 records of an answer's artifact. */
export interface RecordedArtifact {
  readonly key: string;
  readonly record: Rendered['record'];
  readonly edited: RgbImage | null;
  /** The labelled result, which a prompt's first answer carries for all of its answers. */
  readonly truth: RgbImage | null;
}

/** An iteration's episodes as recorded. */
export interface IterationRecord<P, A> {
  readonly iteration: number;
  readonly groups: readonly AnsweredPrompt<P, A>[];
  readonly outcomes: readonly (readonly Outcome[])[];
  readonly advantages: readonly GroupAdvantages[];
  readonly kept: readonly (readonly RecordedArtifact[])[];
  /** Per group the place of its sample; null where it follows from the iteration and the group's number. */
  readonly places: readonly (SamplePlace | null)[];
}

/** By prompt and answer, over all ranks; what only rank 0 needs is null on other ranks. */
export interface GatheredEpisodes<A, M> {
  readonly answers: readonly (readonly A[])[];
  readonly outcomes: readonly (readonly Outcome[])[];
  readonly kept: readonly (readonly RecordedArtifact[])[] | null;
  readonly measured: readonly (readonly M[])[] | null;
}

/** What a rank has of a round of prompts; `measured` is about its answers. */
export interface OwnRound<A, M> extends Pick<Collected<A>, 'answers' | 'rendered' | 'outcomes'> {
  readonly measured: readonly (readonly M[])[];
}

/**
 * Every rank's answers and outcomes in the order of the prompts, round by round, on every rank, with only an outline of other ranks' answers; and their
 * artifacts, with images if these are kept, on rank 0.
 */
export async function gatherEpisodes<A, M>(
  group: ProcessGroup,
  rounds: readonly OwnRound<A, M>[],
  withImages: boolean,
  outline: (answer: A) => A,
): Promise<GatheredEpisodes<A, M>> {
  const artifact = ({ record, item: { key, edited, truth } }: Rendered, i: number): RecordedArtifact => ({
    key,
    record,
    edited: withImages ? edited : null,
    truth: withImages && i === 0 ? truth : null,
  });
  const all = await group.allGather(
    rounds.map(({ answers, outcomes }) => ({ answers: answers.map((one) => one.map(outline)), outcomes })),
  );
  const kept = await group.gather(
    rounds.map(({ rendered, measured }) => ({ artifacts: rendered.map((one) => one.map(artifact)), measured })),
  );
  return {
    answers: inOrder(all, (one, rank, round) => (rank === group.rank ? rounds[round].answers : one.answers)),
    outcomes: inOrder(all, (one) => one.outcomes),
    kept: kept === null ? null : inOrder(kept, (one) => one.artifacts),
    measured: kept === null ? null : inOrder(kept, (one) => one.measured),
  };
}

/** From rounds by rank to the ranks' shares, round by round. */
function inOrder<T, R>(
  ranks: readonly (readonly T[])[],
  share: (one: T, rank: number, round: number) => readonly R[],
): R[] {
  return ranks[0].flatMap((_, round) => ranks.flatMap((one, rank) => share(one[round], rank, round)));
}

/** The fields of an episode's line that training and held-out evaluation share. */
export function episodeLine(
  { id, instruction }: Prompt,
  { finished }: Pick<Answer, 'finished'>,
  { key, record }: Pick<RecordedArtifact, 'key' | 'record'>,
  outcome: Outcome,
): object {
  return { key, sample: id, instruction, finished, ...record, outcome };
}

/** Writes one line per episode; also the images if `withImages`, else the answers' records hold what is needed to make them again. */
export async function recordEpisodes<P extends Prompt, A extends Answer>(
  paths: RunPaths,
  { iteration, groups, outcomes, advantages, kept, places }: IterationRecord<P, A>,
  withImages: boolean,
): Promise<void> {
  const lines: object[] = [];
  for (const [g, { prompt, answers }] of groups.entries()) {
    const source = withImages && prompt.sourcePng !== null ? storePng(paths, await prompt.sourcePng()) : null;
    const labelled = withImages ? (kept[g].at(0)?.truth ?? null) : null;
    const truth = labelled === null ? null : await storeImage(paths, labelled);
    const images = async ({ edited }: RecordedArtifact): Promise<object> =>
      withImages ? { source, edited: edited === null ? null : await storeImage(paths, edited), truth } : {};
    for (const [i, answer] of answers.entries()) {
      lines.push({
        ...episodeLine(prompt, answer, kept[g][i], outcomes[g][i]),
        ...placeRecord(places[g]),
        log_prob: lacksLogProbs(answer) ? null : answer.logProbs.reduce((sum, x) => sum + x, 0),
        advantage: advantages[g].advantages[i],
        ...(await images(kept[g][i])),
      });
    }
  }
  writeEpisodes(paths, iteration, lines);
}
