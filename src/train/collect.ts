/**
 * From prompts to outcomes, for training and for held-out evaluation: each rank samples answers to its share of the prompts chunk by chunk; a
 * finished chunk is rendered and sent to the judge while the next one is sampled.
 */
import type { RandomStream } from '../core/random.js';
import { shareOf } from '../group/peers.js';
import type { ProcessGroup } from '../group/process_group.js';
import type { Answer, Policy, SampleRequest } from '../policies/policy.js';
import type { Outcome } from '../rewards/score/types.js';
import { ScoringInProgress, type Scorer } from '../scoring/scorer.js';
import type { Prompt, Rendered, Task } from '../scoring/task.js';
import type { Stopwatch } from './stopwatch.js';

/** What answers prompts, and what happens to the answers. */
export interface Collector<P extends Prompt, A extends Answer, H> {
  readonly task: Task<P, A>;
  readonly policy: Policy<P, A, H>;
  readonly scorer: Scorer;
  readonly group: ProcessGroup;
}

/** A request. Prompts are numbered over all ranks, and every rank knows them all. */
export interface CollectRequest<P, H> extends Pick<
  SampleRequest<P, H>,
  'prompts' | 'answersPerPrompt' | 'how' | 'weights'
> {
  /** The largest number of prompts whose answers are sampled together. Answers do not depend on it. */
  readonly chunk: number;
  readonly random: (prompt: number, answer: number) => RandomStream;
  /** The name of an episode. */
  readonly key: (prompt: number, answer: number) => string;
  /** Called with each chunk while the judge is working on it. */
  readonly onChunk?: (rendered: readonly (readonly Rendered[])[]) => void;
}

/** This rank's share of the prompts of one round, by prompt and answer. */
export interface Collected<A> {
  /** Number of the share's first prompt. */
  readonly start: number;
  readonly answers: readonly (readonly A[])[];
  readonly rendered: readonly (readonly Rendered[])[];
  readonly outcomes: readonly (readonly Outcome[])[];
}

/** Raises the first failure of sampling, rendering or scoring, after everything that was started has ended. */
export async function collect<P extends Prompt, A extends Answer, H>(
  collector: Collector<P, A, H>,
  request: CollectRequest<P, H>,
  watch: Stopwatch,
): Promise<Collected<A>> {
  await collector.policy.publish?.(request.weights);
  return collectPublished(collector, request, watch);
}

/**
 * Does the same in rounds, all under the weights of the first: `further` says what is asked next, from this rank's share of a round; no
 * prompts end it. Prompts are numbered through all rounds.
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
  { prompts, answersPerPrompt, how, weights, chunk, random, key, onChunk }: CollectRequest<P, H>,
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
      onChunk?.(made);
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
