/** Compares another reward's scores of a run's episodes with those of the run's own reward. Pure. */
import type { Outcome } from '../../rewards/score/types.js';
import { average, correlation } from '../../core/statistics.js';
import { rewardOf } from '../scoring/outcomes.js';
import type { JudgeCounts } from './recorded_judge.js';

export interface RescoredEpisode {
  readonly key: string;
  readonly iteration: number;
  /** `training`, or the set and sampling mode of a held-out evaluation, such as `s/sampled`. */
  readonly set: string;
  /** The recorded outcome. */
  readonly recorded: Outcome;
  /** The outcome with the other reward. Null if it could not be rescored. */
  readonly rescored: Outcome | null;
  /** Why it could not be rescored. Null if it was. */
  readonly missing: string | null;
  /** The problem of its prompt, if the reward cannot score it. */
  readonly detail?: string;
}

/** Episodes of one iteration and set. Means are over episodes that have both values, on each reward's native scale. */
export interface RescoredRow {
  readonly set: string;
  readonly iteration: number;
  readonly episodes: number;
  /** Number of episodes with both values. */
  readonly compared: number;
  readonly recorded_mean: number | null;
  readonly rescored_mean: number | null;
}

export interface RescoreSummary {
  readonly run_name: string;
  readonly name: string;
  /** The other reward, and the run's own. */
  readonly reward: string;
  readonly recorded_reward: string;
  readonly episodes: number;
  /** Numbers of rescored episodes by the kind of their outcome. */
  readonly rescored: Readonly<Record<Outcome['kind'], number>>;
  /** Numbers of episodes that were not rescored, by reason. */
  readonly not_rescored: Readonly<Record<string, number>>;
  /** Number of episodes with both values, and of those that differ by more than 1e-9 on a scale from 0 to 1. */
  readonly compared: number;
  readonly differ: number;
  /** Pearson's correlation of both values. Null if either is constant. */
  readonly correlation: number | null;
  readonly judgements: JudgeCounts;
  readonly rows: readonly RescoredRow[];
  /** The outcomes, one line per episode. */
  readonly file: string;
}

export type RescoreNames = Pick<
  RescoreSummary,
  'run_name' | 'name' | 'reward' | 'recorded_reward' | 'judgements' | 'file'
>;

interface Pair {
  readonly recorded: number;
  readonly rescored: number;
}

const TOLERANCE = 1e-9;

export function summarizeRescored(episodes: readonly RescoredEpisode[], names: RescoreNames): RescoreSummary {
  const rescored: Record<Outcome['kind'], number> = { scored: 0, zero_by_rule: 0, unscored: 0 };
  const notRescored: Record<string, number> = {};
  for (const { rescored: outcome, missing } of episodes) {
    if (outcome !== null) rescored[outcome.kind]++;
    if (missing !== null) notRescored[missing] = (notRescored[missing] ?? 0) + 1;
  }
  const pairs = episodes.flatMap(pairOf);
  const differ = episodes.filter((episode) => {
    const both = [normalizedOf(episode.recorded), normalizedOf(episode.rescored)];
    return both[0] !== null && both[1] !== null && Math.abs(both[0] - both[1]) > TOLERANCE;
  });
  return {
    ...names,
    episodes: episodes.length,
    rescored,
    not_rescored: notRescored,
    compared: pairs.length,
    differ: differ.length,
    correlation: correlation(pairs.map(({ recorded, rescored }) => [recorded, rescored])),
    rows: rowsOf(episodes),
  };
}

function pairOf(episode: RescoredEpisode): Pair[] {
  const recorded = rewardOf(episode.recorded);
  const rescored = episode.rescored === null ? null : rewardOf(episode.rescored);
  return recorded === null || rescored === null ? [] : [{ recorded, rescored }];
}

function normalizedOf(outcome: Outcome | null): number | null {
  if (outcome === null || outcome.kind === 'unscored') return null;
  return outcome.kind === 'scored' ? outcome.normalised : 0;
}

function rowsOf(episodes: readonly RescoredEpisode[]): RescoredRow[] {
  const rows = new Map<string, RescoredEpisode[]>();
  for (const episode of episodes) {
    const name = `${episode.set} ${episode.iteration}`;
    const row = rows.get(name);
    if (row === undefined) rows.set(name, [episode]);
    else row.push(episode);
  }
  return [...rows.values()].map((own): RescoredRow => {
    const pairs = own.flatMap(pairOf);
    const mean = (side: keyof Pair): number | null =>
      pairs.length === 0 ? null : average(pairs.map((pair) => pair[side]));
    return {
      set: own[0].set,
      iteration: own[0].iteration,
      episodes: own.length,
      compared: pairs.length,
      recorded_mean: mean('recorded'),
      rescored_mean: mean('rescored'),
    };
  });
}
