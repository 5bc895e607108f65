/** An iteration's episodes: their exchange between ranks, and their records. */
import type { RgbImage } from '../core/image.js';
import type { ProcessGroup } from '../group/process_group.js';
import type { Answer, AnsweredPrompt } from '../policies/policy.js';
import type { Outcome } from '../rewards/score/types.js';
import { writeEpisodes } from '../run/episodes.js';
import { storeImage, storePng } from '../run/media.js';
import type { RunPaths } from '../run/paths.js';
import type { Prompt, Rendered } from '../scoring/task.js';
import type { GroupAdvantages } from './advantages.js';
import type { Collected } from './collect.js';
import { creditRecord, type CreditedAdvantages } from './credit.js';
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
  /** What regions are paid; null where every advantage is that of a whole answer. */
  readonly credits: CreditedAdvantages['credits'] | null;
  readonly kept: readonly (readonly RecordedArtifact[])[];
}

/** By prompt and answer, over all ranks; what only rank 0 needs is null on other ranks. */
export interface GatheredEpisodes<A, M> {
  readonly answers: readonly (readonly A[])[];
  readonly outcomes: readonly (readonly Outcome[])[];
  readonly kept: readonly (readonly RecordedArtifact[])[] | null;
  readonly measured: readonly (readonly M[])[] | null;
}

/**
 * Every rank's answers and outcomes in the order of the prompts, on every rank, with only an outline of other ranks' answers; and their artifacts,
 * with images if these are kept, on rank 0.
 */
export async function gatherEpisodes<A, M>(
  group: ProcessGroup,
  { answers, rendered, outcomes }: Collected<A>,
  measured: readonly (readonly M[])[],
  withImages: boolean,
  outline: (answer: A) => A,
): Promise<GatheredEpisodes<A, M>> {
  const all = await group.allGather({ answers: answers.map((one) => one.map(outline)), outcomes });
  const artifacts = rendered.map((one) =>
    one.map(({ record, item: { key, edited, truth } }, i): RecordedArtifact => ({
      key,
      record,
      edited: withImages ? edited : null,
      truth: withImages && i === 0 ? truth : null,
    })),
  );
  const kept = await group.gather({ artifacts, measured });
  return {
    answers: all.flatMap((one, rank) => (rank === group.rank ? answers : one.answers)),
    outcomes: all.flatMap((one) => one.outcomes),
    kept: kept?.flatMap((one) => one.artifacts) ?? null,
    measured: kept?.flatMap((one) => one.measured) ?? null,
  };
}

/** The fields of an episode's line that training and held-out evaluation share. */
export function episodeLine(
  { id, instruction }: Prompt,
  { finished }: Answer,
  { key, record }: Pick<RecordedArtifact, 'key' | 'record'>,
  outcome: Outcome,
): object {
  return { key, sample: id, instruction, finished, ...record, outcome };
}

/** Writes one line per episode; also the images if `withImages`, else the answers' records hold what is needed to make them again. */
export async function recordEpisodes<P extends Prompt, A extends Answer>(
  paths: RunPaths,
  { iteration, groups, outcomes, advantages, credits, kept }: IterationRecord<P, A>,
  withImages: boolean,
): Promise<void> {
  const lines: object[] = [];
  for (const [g, { prompt, answers }] of groups.entries()) {
    const source = withImages && prompt.sourcePng !== null ? storePng(paths, await prompt.sourcePng()) : null;
    const labelled = withImages ? (kept[g].at(0)?.truth ?? null) : null;
    const truth = labelled === null ? null : await storeImage(paths, labelled);
    for (const [i, answer] of answers.entries()) {
      const { edited } = kept[g][i];
      lines.push({
        ...episodeLine(prompt, answer, kept[g][i], outcomes[g][i]),
        log_prob: lacksLogProbs(answer) ? null : answer.logProbs.reduce((sum, x) => sum + x, 0),
        advantage: advantages[g].advantages[i],
        ...creditRecord(credits?.[g][i] ?? null),
        ...(withImages ? { source, edited: edited === null ? null : await storeImage(paths, edited), truth } : {}),
      });
    }
  }
  writeEpisodes(paths, iteration, lines);
}
