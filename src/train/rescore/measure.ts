/** Measures a run that was evaluated without a measure: scores its recorded held-out answers by the term. */
import { RunError } from '../../core/errors.js';
import { sha256 } from '../../core/images/image.js';
import { isJudgeAbsent } from '../../rewards/score/iteration.js';
import { measureScale } from '../../rewards/score/identity.js';
import type { MeasureTerm } from '../../rewards/score/settings.js';
import type { RewardSettings } from '../../rewards/schema/reward.js';
import type { MetricsLine } from '../../run/metrics.js';
import type { RunPaths } from '../../run/paths.js';
import { RESCORED_MEASURE } from '../../run/report/measures.js';
import { summarizeOutcomes } from '../scoring/outcomes.js';
import type { ReadSettings } from '../../core/schema/mark.js';
import { rescore, type RescoreRequest } from './rescore.js';
import type { RescoredEpisode, RescoreSummary } from './rescore_summary.js';

export interface MeasureRequest extends Omit<RescoreRequest, 'reward' | 'name' | 'heldOutOnly' | 'native' | 'more'> {
  readonly term: MeasureTerm;
  /** Reads the run's settings. */
  readonly settings: ReadSettings;
}

/**
 * Scores the held-out answers by the term on its native scale, and writes the result where the run's reports read it.
 * Raises the errors of `rescore`. Raises RunError if no answer could be scored, or if more than
 * `reward.max_unscored_fraction` of them got no reply: an evaluation would wait then, and the mean over the rest would
 * be another number.
 */
export async function measureRecords({ term, settings, ...request }: MeasureRequest): Promise<RescoreSummary> {
  const { label, identity } = measureScale(term, settings);
  const { recordedReward } = request;
  const name = `${RESCORED_MEASURE}${label.replace(/[^A-Za-z0-9]+/g, '_').replace(/^_|_$/g, '')}-${sha256(identity).slice(0, 8)}`;
  return rescore({
    ...request,
    name,
    reward: onlyTerm(recordedReward, term),
    native: true,
    heldOutOnly: true,
    more: (episodes) => {
      if (!episodes.some(({ rescored }) => rescored !== null && rescored.kind !== 'unscored')) {
        const why = episodes.map(
          ({ missing, rescored }) => missing ?? (rescored?.kind === 'unscored' ? rescored.detail : null),
        );
        throw new RunError(
          `none of ${episodes.length} held-out answers could be scored by '${label}': ${why.find((one) => one !== null) ?? 'none are recorded'}`,
          {
            where: request.paths.dir,
          },
        );
      }
      requireAnswers(label, episodes, recordedReward, request.paths);
      return { reward: label, measure: { name: label, identity }, evaluations: evaluationsOf(label, episodes) };
    },
  });
}

function requireAnswers(
  label: string,
  episodes: readonly RescoredEpisode[],
  { max_unscored_fraction: most }: Pick<RewardSettings, 'max_unscored_fraction'>,
  { dir }: Pick<RunPaths, 'dir'>,
): void {
  const absent = episodes.flatMap(({ rescored }) =>
    rescored?.kind === 'unscored' && isJudgeAbsent[rescored.reason] ? [rescored] : [],
  );
  if (absent.length <= most * episodes.length) return;
  const { reason, detail } = absent[0];
  throw new RunError(
    `${absent.length} of ${episodes.length} held-out answers got no reply for '${label}', more than reward.max_unscored_fraction ${most}: ${reason}, ${detail}`,
    {
      where: dir,
      next: 'Check the requests, and run the same command again. Stored replies are kept, and only missing ones are requested.',
    },
  );
}

/** A reward with this term alone. Rules of the run's own reward about unfinished answers are dropped. */
function onlyTerm(reward: RewardSettings, term: MeasureTerm): RewardSettings {
  return {
    ...reward,
    mode: null,
    terms: [{ ...term, weight: 1 }],
    also_compute: [],
    measure: [],
    zero_if_unfinished: false,
  };
}

/** The lines that the evaluations themselves would have written. */
function evaluationsOf(label: string, episodes: readonly RescoredEpisode[]): object[] {
  const iterations = [...new Set(episodes.map(({ iteration }) => iteration))];
  return iterations.map((iteration) => {
    const metrics: Record<string, number> = {};
    const own = episodes.filter((episode) => episode.iteration === iteration);
    const summarize = (where: string, isIn: (set: string) => boolean): void => {
      const outcomes = own.flatMap(({ set, rescored }) => (isIn(set) && rescored !== null ? [rescored] : []));
      if (outcomes.length > 0) {
        Object.assign(metrics, summarizeOutcomes(`validation/${where}/measure/${label}`, outcomes));
      }
    };
    for (const set of new Set(own.map((episode) => episode.set))) summarize(set, (one) => one === set);
    const manners = new Set(own.map(({ set }) => samplingOf(set)));
    for (const manner of manners) summarize(manner, (set) => samplingOf(set) === manner);
    return { iteration, ...metrics } satisfies Record<string, unknown> & Pick<MetricsLine, 'iteration'>;
  });
}

/** The sampling mode in `<set>/<mode>`. */
function samplingOf(set: string): string {
  return set.slice(set.lastIndexOf('/') + 1);
}
