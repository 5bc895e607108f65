/**
 * Changes of the answers to held-out prompts between a run's first and last evaluation, with examples chosen by a fixed
 * rule.
 */
import { z } from 'zod';
import { meanDifference, type MeanDifference } from '../../core/estimate.js';
import { average } from '../../core/statistics.js';
import { listEpisodeFiles, parseHeldOutKey } from '../episodes.js';
import { readLines } from '../journal.js';
import type { RunPaths } from '../paths.js';

/** An answer to a held-out prompt. */
interface Answer {
  readonly score: number;
  /** Its image in `media/`. Null if it is not an image, or if the image was not kept. */
  readonly image: string | null;
}

export interface ChangedAnswer {
  readonly prompt: string;
  readonly before: Answer;
  readonly after: Answer;
  readonly source: string | null;
  /** The labeled result. */
  readonly wanted: string | null;
}

export interface HeldOutChanges {
  /** The iterations of the two evaluations. */
  readonly iterations: readonly [first: number, last: number];
  readonly means: readonly [before: number, after: number];
  /** The paired difference over prompts. */
  readonly change: MeanDifference;
  /** Numbers of prompts by the sign of their change. */
  readonly better: number;
  readonly same: number;
  readonly worse: number;
  /** Empty if no images were kept. */
  readonly examples: readonly ChangedAnswer[];
}

const line = z.object({
  key: z.string(),
  instruction: z.string(),
  outcome: z.looseObject({ kind: z.string(), value: z.number().nullish() }),
  source: z.string().nullish(),
  edited: z.string().nullish(),
  truth: z.string().nullish(),
});
type Line = z.output<typeof line>;

/** Null if the run has not been evaluated twice. Leaves out prompts without a score in one of the evaluations. */
export function readHeldOutChanges(paths: RunPaths): HeldOutChanges | null {
  const files = listEpisodeFiles(paths).filter(({ heldOut }) => heldOut);
  const [first, last] = [files.at(0), files.at(-1)];
  if (first === undefined || last === undefined || first === last) return null;
  const earlier = answersOf(first.path);
  const changes = [...answersOf(last.path)].flatMap(([prompt, after]) => {
    const change = changeOf(earlier.get(prompt), after);
    return change === null ? [] : [change];
  });
  const gains = changes.map(gainOf);
  const change = meanDifference(gains);
  if (change === null) return null;
  return {
    iterations: [first.iteration, last.iteration],
    means: [average(changes.map(({ before }) => before.score)), average(changes.map(({ after }) => after.score))],
    change,
    better: gains.filter((gain) => gain > 0).length,
    same: gains.filter((gain) => gain === 0).length,
    worse: gains.filter((gain) => gain < 0).length,
    examples: examplesOf(changes.filter(({ after, source }) => after.image !== null || source !== null)),
  };
}

export function gainOf({ before, after }: Pick<ChangedAnswer, 'before' | 'after'>): number {
  return after.score - before.score;
}

/**
 * Up to four better answers at even ranks of their gains, the median of the worse ones, and the answer with the lowest
 * score that gained nothing.
 */
function examplesOf(changes: readonly ChangedAnswer[]): ChangedAnswer[] {
  const better = changes.filter((one) => gainOf(one) > 0).sort((a, b) => gainOf(b) - gainOf(a));
  const worse = changes.filter((one) => gainOf(one) < 0).sort((a, b) => gainOf(a) - gainOf(b));
  const same = changes.filter((one) => gainOf(one) === 0);
  const lowest = Math.min(...same.map(({ after }) => after.score));
  const ranks = new Set([0, 1, 2, 3].map((i) => Math.round((i * (better.length - 1)) / 3)));
  const chosen = [
    ...[...ranks].flatMap((rank) => better.slice(rank, rank + 1)),
    ...worse.slice(Math.floor(worse.length / 2), Math.floor(worse.length / 2) + 1),
    ...same.filter(({ after }) => after.score === lowest).slice(0, 1),
  ];
  return [...new Set(chosen)];
}

function changeOf(before: Line | undefined, after: Line): ChangedAnswer | null {
  const [old, now] = [before === undefined ? null : scoreOf(before), scoreOf(after)];
  if (before === undefined || old === null || now === null) return null;
  return {
    prompt: after.instruction,
    before: { score: old, image: before.edited ?? null },
    after: { score: now, image: after.edited ?? null },
    source: after.source ?? null,
    wanted: after.truth ?? null,
  };
}

function scoreOf({ outcome: { kind, value } }: Line): number | null {
  return kind === 'scored' ? (value ?? null) : kind === 'zero_by_rule' ? 0 : null;
}

/** An evaluation's answers by set and prompt: the sampled ones, or else those of the first sampling mode. */
function answersOf(path: string): Map<string, Line> {
  const all = readLines(path).flatMap((one) => {
    const read = line.safeParse(one).data;
    const place = parseHeldOutKey(read?.key);
    return read === undefined || place === null ? [] : [{ read, place }];
  });
  const manner = all.some(({ place }) => place.sampling === 'sampled') ? 'sampled' : all.at(0)?.place.sampling;
  const wanted = all.filter(({ place }) => place.sampling === manner);
  return new Map(wanted.map(({ read, place }) => [`${place.set}/${place.prompt}`, read]));
}
