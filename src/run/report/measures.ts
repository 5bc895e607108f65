/**
 * Measures of held-out answers other than the reward, taken during the evaluation or by scoring its records afterwards.
 */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { EditrlError, RunError } from '../../core/errors.js';
import { meanDifference, type MeanDifference } from '../../core/estimate.js';
import { measureScale, readMeasure } from '../../rewards/score/identity.js';
import type { MeasureTerm } from '../../rewards/score/settings.js';
import type { ReadSettings } from '../../core/schema/mark.js';
import { listEpisodeFiles, parseHeldOutKey } from '../episodes.js';
import { readLines } from '../journal.js';
import { metricsOfLine, type MetricsLine } from '../metrics.js';
import type { RunPaths } from '../paths.js';
import { readJson } from '../state.js';

/** Prefix of the files with measures in a run's folder `rescored/`. */
export const RESCORED_MEASURE = 'measure-';

const rescoredMeasure = z.looseObject({
  measure: z.object({ name: z.string(), identity: z.string() }),
  evaluations: z.array(z.looseObject({ iteration: z.number() })),
});

/** A measure by which a run's evaluations were scored afterwards. */
export interface RescoredMeasure {
  readonly name: string;
  /** Identity of its scale. See `measureScale`. */
  readonly identity: string;
  /** One line for each evaluation, with the metric names of evaluations. */
  readonly lines: readonly MetricsLine[];
  /** The outcomes, one line for each answer. */
  readonly file: string;
}

/** The measures in the run's folder. Raises RunError for an invalid file. */
export function readRescoredMeasures(paths: RunPaths): RescoredMeasure[] {
  if (!existsSync(paths.rescoredDir)) return [];
  const names = readdirSync(paths.rescoredDir).filter(
    (name) => name.startsWith(RESCORED_MEASURE) && name.endsWith('.json'),
  );
  return names.sort().map((file): RescoredMeasure => {
    const path = join(paths.rescoredDir, file);
    const parsed = rescoredMeasure.safeParse(readJson(path));
    if (!parsed.success) {
      throw new RunError('invalid file of rescored measures', {
        where: path,
        next: 'Remove the file and repeat: editrl rescore RUN --measure TERM.',
      });
    }
    const { measure, evaluations } = parsed.data;
    return { ...measure, lines: evaluations.map(metricsOfLine), file: path.replace(/\.json$/, '.jsonl') };
  });
}

/** A run's numbers by a measure, from its evaluations or from a rescoring with the same identity. */
export function measuredBy<Found extends { readonly by: string | null; readonly identity: string | null }>(
  term: MeasureTerm,
  numbers: readonly Found[],
  read: ReadSettings,
): Found[] {
  const { label, identity } = measureScale(term, read);
  const own = readMeasure(read('validation.measure')).some((one) => measureScale(one, read).identity === identity);
  return numbers.filter((one) => one.by === label && (one.identity === identity || (own && one.identity === null)));
}

/** The score of a held-out answer. */
export interface PromptScore {
  readonly set: string;
  readonly sample: string;
  /** The sampling mode: `sampled`, `greedy`. */
  readonly sampling: string;
  readonly score: number;
}

/**
 * Scores of held-out answers by set, sampling mode and prompt, by the reward or by a measure. The evaluation is at
 * `iteration`, or else the last one.
 * Leaves out answers that no judge scored. Raises RunError for records that cannot be read.
 */
export function promptScores(
  paths: RunPaths,
  measure: { readonly name: string; readonly identity: string | null } | null,
  iteration?: number,
): Map<string, PromptScore> {
  const wanted = listEpisodeFiles(paths).findLast(
    (file) => file.heldOut && (iteration === undefined || file.iteration === iteration),
  );
  if (wanted === undefined) return new Map();
  const lines = readLines(wanted.path);
  if (measure === null || measure.identity === null) {
    return new Map(lines.flatMap((line) => scoreOf(line, outcomeOf(line, measure?.name ?? null))));
  }
  const rescored = readRescoredMeasures(paths).find(({ identity }) => identity === measure.identity);
  const byKey = new Map(
    rescored === undefined ? [] : readLines(rescored.file).map(({ key, rescored: one }) => [key, one]),
  );
  return new Map(lines.flatMap((line) => scoreOf(line, byKey.get(line['key']))));
}

/** `promptScores` of a run, computed lazily. Empty for unreadable records, which are reported separately. */
export function promptsOf(paths: RunPaths): (measure: Parameters<typeof promptScores>[1]) => Map<string, PromptScore> {
  return (measure) => {
    try {
      return promptScores(paths, measure);
    } catch (error) {
      if (!(error instanceof EditrlError)) throw error;
      return new Map();
    }
  };
}

type Line = Readonly<Record<string, unknown>>;

function outcomeOf({ outcome }: Line, measure: string | null): unknown {
  if (measure === null) return outcome;
  const { measures } = (outcome ?? {}) as { readonly measures?: Readonly<Record<string, unknown>> };
  return measures?.[measure];
}

/** The score of a held-out episode, by its key without the iteration. */
function scoreOf({ key, sample }: Line, outcome: unknown): [string, PromptScore][] {
  const place = parseHeldOutKey(key);
  if (place === null || typeof sample !== 'string' || typeof outcome !== 'object' || outcome === null) return [];
  const { kind, value } = outcome as Line;
  const score = kind === 'zero_by_rule' ? 0 : kind === 'scored' ? value : null;
  if (typeof score !== 'number') return [];
  const { set, sampling, prompt } = place;
  return [[`${set}/${sampling}/${prompt}`, { set, sample, sampling, score }]];
}

/**
 * The mean difference between two evaluations over their common prompts, for one sampling mode, and for one set if it
 * is given.
 */
export function pairedByPrompt(
  base: ReadonlyMap<string, PromptScore>,
  other: ReadonlyMap<string, PromptScore>,
  wanted: string,
  only?: string,
): number[] {
  return [...other].flatMap(([prompt, { set, sample, sampling, score }]) => {
    if (sampling !== wanted || (only !== undefined && set !== only)) return [];
    const partner = base.get(prompt);
    return partner === undefined || partner.sample !== sample ? [] : [score - partner.score];
  });
}

/**
 * Returns the paired change by the reward (null) or by a measure, of one set or of all. Null if fewer than two prompts
 * were recorded at both evaluations.
 */
export type PromptChanges = (
  measure: Parameters<typeof promptScores>[1],
  manner: string,
  set?: string,
) => MeanDifference | null;

/**
 * Compares the evaluations at two iterations over their prompts. Reads records lazily, and then raises RunError for
 * unreadable ones.
 */
export function promptChangesBetween(paths: RunPaths, from: number, to: number): PromptChanges {
  const known = new Map<string, readonly ReturnType<typeof promptScores>[]>();
  return (measure, manner, set) => {
    const key = JSON.stringify(measure);
    const ends = known.get(key) ?? [from, to].map((iteration) => promptScores(paths, measure, iteration));
    known.set(key, ends);
    const difference = meanDifference(pairedByPrompt(ends[0], ends[1], manner, set));
    return difference === null || difference.n < 2 ? null : difference;
  };
}
