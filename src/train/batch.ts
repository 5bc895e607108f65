/**
 * Collects an iteration's episodes from prompts to outcomes, for training and held-out evaluation. Gathers them over
 * ranks and records them.
 * Each rank samples answers to its share of the prompts in chunks. A finished chunk is rendered and judged while the
 * next one is sampled.
 */
import { must } from '../core/errors.js';
import { measureAnswer, type AnswerStatistics } from './observers/hack_statistics.js';
import type { RandomStream } from '../core/random.js';
import { shareOf } from '../core/group/peers.js';
import type { ProcessGroup } from '../core/group/process_group.js';
import type { Answer, Policy, SampleRequest, Group } from './policies/policy.js';
import type { Outcome } from '../rewards/score/types.js';
import { ScoringInProgress, type Scorer } from './scoring/scorer.js';
import type { Prompt, Rendered, Task } from './scoring/task.js';
import type { Stopwatch } from './grpo_metrics.js';
import type { RgbImage } from '../core/images/image.js';
import type { SamplePlace } from '../data/sampler.js';
import { placeRecord, storeImage, storePng, writeEpisodes } from '../run/episodes.js';
import type { RunPaths } from '../run/paths.js';
import type { GroupAdvantages } from './advantages.js';
import { lacksLogProbs } from './importance.js';

/** The parts that sample, render and score answers. */
export interface Collector<P extends Prompt, A extends Answer, H> {
  readonly task: Task<P, A>;
  readonly policy: Policy<P, A, H>;
  readonly scorer: Scorer;
  readonly group: ProcessGroup;
}

/** A request. Prompts are numbered over all ranks, and every rank has all of them. */
export interface CollectRequest<P, H> extends Pick<
  SampleRequest<P, H>,
  'prompts' | 'answersPerPrompt' | 'how' | 'weights'
> {
  /** Maximum number of prompts whose answers are sampled together. Answers do not depend on it. */
  readonly chunk: number;
  readonly random: (prompt: number, answer: number) => RandomStream;
  /** The key of an episode. */
  readonly key: (prompt: number, answer: number) => string;
}

/** This rank's share of the prompts of one round, by prompt and answer. */
export interface Collected<A> {
  /** Number of the share's first prompt. */
  readonly start: number;
  readonly answers: readonly (readonly A[])[];
  readonly rendered: readonly (readonly Rendered[])[];
  readonly outcomes: readonly (readonly Outcome[])[];
}

/**
 * Collects one round. After everything that was started has ended, raises the first failure of sampling, rendering or
 * scoring.
 */
export async function collect<P extends Prompt, A extends Answer, H>(
  collector: Collector<P, A, H>,
  request: CollectRequest<P, H>,
  watch: Stopwatch,
): Promise<Collected<A>> {
  await collector.policy.publish?.(request.weights);
  return collectPublished(collector, request, watch);
}

/**
 * Collects in rounds, all with the weights of the first round. `further` returns the next prompts, given this rank's
 * share of a round. An empty list ends it. Prompts are numbered through all rounds.
 */
export async function collectRounds<P extends Prompt, A extends Answer, H>(
  collector: Collector<P, A, H>,
  request: CollectRequest<P, H>,
  further: (own: Collected<A>) => Promise<readonly P[]>,
  watch: Stopwatch,
): Promise<Collected<A>[]> {
  await collector.policy.publish?.(request.weights);
  const rounds: Collected<A>[] = [];
  let first = 0;
  for (let { prompts } = request; prompts.length > 0;) {
    const from = first;
    const numbered = {
      ...request,
      prompts,
      random: (p: number, g: number) => request.random(from + p, g),
      key: (p: number, g: number) => request.key(from + p, g),
    };
    const own = await collectPublished(collector, numbered, watch);
    rounds.push({ ...own, start: from + own.start });
    first += prompts.length;
    prompts = await further(own);
  }
  return rounds;
}

async function collectPublished<P extends Prompt, A extends Answer, H>(
  { task, policy, scorer, group }: Collector<P, A, H>,
  { prompts, answersPerPrompt, how, weights, chunk, random, key }: CollectRequest<P, H>,
  watch: Stopwatch,
): Promise<Collected<A>> {
  const share = shareOf(prompts.length, group);
  const answers: A[][] = [];
  const rendered: Rendered[][] = [];
  const scoring = new ScoringInProgress(scorer);
  try {
    for (let start = share.start; start < share.end; start += chunk) {
      const part = prompts.slice(start, Math.min(start + chunk, share.end));
      const sampled = await watch.time('rollout', () =>
        policy.sample({
          prompts: part,
          among: prompts,
          answersPerPrompt,
          how,
          weights,
          random: (p, g) => random(start + p, g),
          key: (p, g) => key(start + p, g),
        }),
      );
      const made = await watch.time('render', () =>
        task.render(
          part.map((prompt, p) => ({
            prompt,
            answers: sampled[p],
            keys: sampled[p].map((_, g) => key(start + p, g)),
          })),
          weights,
        ),
      );
      answers.push(...sampled);
      rendered.push(...made);
      scoring.begin(made.flatMap((group) => group.map(({ item }) => item)));
    }
  } catch (error) {
    throw await scoring.firstError(error);
  }
  await policy.keep?.();
  await task.keep?.();
  const settled = await watch.time('judge', async () =>
    scorer.settle(
      rendered.flatMap((group) => group.map(({ item }) => item)),
      await scoring.outcomes(),
    ),
  );
  let at = 0;
  const outcomes = rendered.map((group) => settled.slice(at, (at += group.length)));
  return { start: share.start, answers, rendered, outcomes };
}

/** The record of an answer's artifact, for rank 0. */
export interface RecordedArtifact {
  readonly key: string;
  readonly record: Rendered['record'];
  readonly edited: RgbImage | null;
  /** The labeled result. The first answer to a prompt carries it for all answers to the prompt. */
  readonly truth: RgbImage | null;
  readonly statistics: AnswerStatistics;
}

/** An iteration's groups over all ranks, in the order of their prompts. */
export interface TrainBatch<P, A> {
  readonly iteration: number;
  readonly groups: readonly Group<P, A>[];
  readonly outcomes: readonly (readonly Outcome[])[];
  /** The artifact of each answer. Null on all ranks except 0, which records them. */
  readonly kept: readonly (readonly RecordedArtifact[])[] | null;
  /** The place of each group's sample. Null if it follows from the iteration and the group's number. */
  readonly places: readonly (SamplePlace | null)[];
  /** Number of groups in each round. */
  readonly rounds: readonly number[];
}

/**
 * Gathers every rank's answers and outcomes on every rank, in the order of the prompts, round by round. Other ranks'
 * answers are outlines.
 * Rank 0 also gets the artifacts, with images if these are kept.
 */
export async function gatherEpisodes<A>(
  group: ProcessGroup,
  rounds: readonly Pick<Collected<A>, 'answers' | 'rendered' | 'outcomes'>[],
  withImages: boolean,
  outline: (answer: A) => A,
): Promise<Pick<TrainBatch<never, A>, 'outcomes' | 'kept'> & { readonly answers: readonly (readonly A[])[] }> {
  const artifact = ({ record, item }: Rendered, i: number): RecordedArtifact => ({
    key: item.key,
    record,
    edited: withImages ? item.edited : null,
    truth: withImages && i === 0 ? item.truth : null,
    statistics: measureAnswer(item),
  });
  const all = await group.allGather(
    rounds.map(({ answers, outcomes }) => ({ answers: answers.map((one) => one.map(outline)), outcomes })),
  );
  const kept = await group.gather(rounds.map(({ rendered }) => rendered.map((one) => one.map(artifact))));
  return {
    answers: inOrder(all, (one, rank, round) => (rank === group.rank ? rounds[round].answers : one.answers)),
    outcomes: inOrder(all, (one) => one.outcomes),
    kept: kept === null ? null : inOrder(kept, (one) => one),
  };
}

/** Reorders rounds by rank into ranks by round. */
function inOrder<T, R>(
  ranks: readonly (readonly T[])[],
  share: (one: T, rank: number, round: number) => readonly R[],
): R[] {
  return ranks[0].flatMap((_, round) => ranks.flatMap((one, rank) => share(one[round], rank, round)));
}

/** The fields of an episode's line in training and held-out evaluation. */
export function episodeLine(
  { id, instruction }: Prompt,
  { finished }: Pick<Answer, 'finished'>,
  { key, record }: Pick<RecordedArtifact, 'key' | 'record'>,
  outcome: Outcome,
): object {
  return { key, sample: id, instruction, finished, ...record, outcome };
}

/**
 * Writes one line per episode, and the images if `withImages`. Otherwise, the answers' records contain everything
 * needed to make the images again.
 */
export async function recordEpisodes<P extends Prompt, A extends Answer>(
  paths: RunPaths,
  { iteration, groups, outcomes, kept, places }: TrainBatch<P, A>,
  advantages: readonly GroupAdvantages[],
  withImages: boolean,
): Promise<void> {
  const artifacts = must(kept, 'the artifacts of rank 0');
  const lines: object[] = [];
  for (const [g, { prompt, answers }] of groups.entries()) {
    const source = withImages && prompt.sourcePng !== null ? storePng(paths, await prompt.sourcePng()) : null;
    const labeled = withImages ? (artifacts[g].at(0)?.truth ?? null) : null;
    const truth = labeled === null ? null : await storeImage(paths, labeled);
    const images = async ({ edited }: RecordedArtifact): Promise<object> =>
      withImages ? { source, edited: edited === null ? null : await storeImage(paths, edited), truth } : {};
    for (const [i, answer] of answers.entries()) {
      lines.push({
        ...episodeLine(prompt, answer, artifacts[g][i], outcomes[g][i]),
        ...placeRecord(places[g]),
        log_prob: lacksLogProbs(answer) ? null : answer.logProbs.reduce((sum, x) => sum + x, 0),
        advantage: advantages[g].advantages[i],
        ...(await images(artifacts[g][i])),
      });
    }
  }
  writeEpisodes(paths, iteration, lines);
}
