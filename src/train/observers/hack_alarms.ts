/**
 * Reward hacking alarms: statistics of the policy's outputs per iteration, compared with those of the run's first
 * iterations.
 * The baseline is the start of the run instead of the dataset's images. A policy's images differ from photographs from
 * the first iteration on, because its decoder blurs. A task may have no source images. And hacking a reward changes
 * outputs over time.
 */
import { hackMetrics, limitMetrics, sameScoreMetrics, secondGapMetrics, unscoredMetrics } from './hack_statistics.js';
import type { TrainBatch } from '../batch.js';
import { alarmLimitsOf, alarmNames, type AlarmName, type AlarmSettings } from '../../config/schema/alarms.js';
import type { Answer } from '../policies/policy.js';
import type { Metrics, MetricsLine } from '../../run/metrics.js';
import { type Prompt } from '../scoring/task.js';
import { average, quantile } from '../../core/statistics.js';

/**
 * Returns the metrics `hack/…` of an iteration, and `alarm/…` if alarms watch them. Statistics of outputs are rank 0's.
 * `scales` are those of the reward and of recorded terms.
 */
export function hackObserver(
  scales: Parameters<typeof secondGapMetrics>[1],
  alarms: HackAlarms | null,
): (batch: TrainBatch<Prompt, Pick<Answer, 'logProbs' | 'finished'>>, metrics: Metrics) => Metrics {
  return ({ iteration, groups, outcomes, kept }, metrics) => {
    const all = outcomes.flat();
    const found = {
      ...limitMetrics(metrics),
      ...secondGapMetrics(metrics, scales),
      ...(kept === null
        ? {}
        : {
            ...unscoredMetrics(all),
            ...sameScoreMetrics(all),
            ...hackMetrics(
              groups,
              kept.map((one) => one.map(({ statistics }) => statistics)),
            ),
          }),
    };
    return { ...found, ...alarms?.observe(iteration, { ...metrics, ...found }) };
  };
}

interface AlarmKind {
  readonly label: string;
  /** What limits are relative to: the first value, its distance from 1, or nothing (the unit of the statistic). */
  readonly relativeTo: 'value' | 'rest' | 'unit';
  /** The meaning of a value above `max`, and what to do. */
  readonly above?: string;
}

export const alarmKinds: Readonly<Record<AlarmName, AlarmKind>> = {
  edge_density: { label: 'edge density', relativeTo: 'value' },
  colour_entropy: { label: 'color entropy', relativeTo: 'value' },
  dark_fraction: { label: 'the share of dark pixels', relativeTo: 'unit' },
  saturation: { label: 'color saturation', relativeTo: 'value' },
  sharpness: { label: 'sharpness', relativeTo: 'value' },
  grid: { label: 'the step across a grid of 8 or 16 pixels', relativeTo: 'unit' },
  changed_fraction: { label: 'the share of pixels that differ from the source', relativeTo: 'unit' },
  source_similarity: { label: 'similarity to the source', relativeTo: 'rest' },
  repeat_rate: { label: 'the share of repeated images', relativeTo: 'unit' },
  answer_length: { label: 'answer length', relativeTo: 'value' },
  repeated_words: { label: 'the share of repeated words', relativeTo: 'unit' },
  prompt_copy: { label: 'the share of words copied from the prompt', relativeTo: 'unit' },
  at_token_limit: { label: 'the share of answers at the token limit', relativeTo: 'unit' },
  second_gap: { label: 'the gap between the reward and a recorded measure', relativeTo: 'unit' },
  no_picture: {
    label: 'the share of answers without an image',
    relativeTo: 'unit',
    above: 'they score 0 by rule; start from a policy that writes whole images, or let it sample only what may follow',
  },
  unscored: {
    label: 'the share of answers without a score',
    relativeTo: 'unit',
    above: 'nothing is learned from them; look at the reasons (reward/unscored/…) and at the replies of the judge',
  },
  at_limit: {
    label: 'the share of scores at a limit of their scale',
    relativeTo: 'unit',
    above: "the reward does not tell these answers apart; choose another scale, such as 'half' of term clip",
  },
};

/** KL to the reference jumps if it exceeds `times` its median over the previous iterations, and `least`. */
const JUMP = { times: 5, over: 5, fewest: 3, least: 0.5 } as const;

/** Measured iterations that are averaged at the start of a run and at its end. */
const SPAN = 5;

/** Lower bound of the value that limits are relative to. */
const MIN_BASE = 1e-6;

interface Series {
  /** The first measured values, as many as are compared. */
  readonly first: number[];
  /** The latest values, as many as are compared. */
  readonly last: number[];
  raised: boolean;
}

/** Watches the statistics of one run, over all its attempts. */
export class HackAlarms {
  readonly #series: ReadonlyMap<AlarmName, Series>;
  /** The latest KL values. */
  readonly #kl: number[] = [];
  #reportedSame = false;

  /**
   * @param history earlier metrics of the run, oldest first. A resumed run keeps its baseline and repeats no warning.
   * @param warn called once per crossing, not once per iteration
   * @param span measured iterations at both ends of the run that are compared
   */
  constructor(
    private readonly settings: AlarmSettings,
    history: readonly MetricsLine[],
    private readonly warn: (message: string) => void,
    private readonly span = SPAN,
  ) {
    this.#series = new Map(alarmNames.map((name) => [name, { first: [], last: [], raised: false }]));
    for (const { iteration, metrics } of history) {
      if (iteration === 0) continue;
      this.#each((name, series) => this.#take(name, series, metrics));
      this.#jump(metrics);
    }
    const latest = history.at(-1)?.metrics ?? {};
    this.#reportedSame = latest['hack/same_score'] === 1;
    this.#each((name, series) => (series.raised = latest[alarmMetric(name)] === 1));
  }

  /** Adds an iteration's metrics. Returns `alarm/<name>`: 1 for each alarm that is then active. */
  observe(iteration: number, metrics: Metrics): Record<string, number> {
    const raised: Record<string, number> = {};
    this.#each((name, series) => {
      this.#take(name, series, metrics);
      const found = this.#crossing(name, series);
      if (found !== null) {
        raised[alarmMetric(name)] = 1;
        if (!series.raised) this.warn(`iteration ${iteration}: hack alarm: ${found}`);
      }
      series.raised = found !== null;
    });
    const jump = this.#jump(metrics);
    if (jump !== null) {
      raised[alarmMetric('kl')] = 1;
      this.warn(`iteration ${iteration}: alarm: ${jump}`);
    }
    const isSame = metrics['hack/same_score'] === 1;
    if (isSame) raised[alarmMetric('same_score')] = 1;
    if (isSame && !this.#reportedSame) {
      this.warn(
        `iteration ${iteration}: alarm: the judge gave every answer the same score, so the policy learns nothing. Read its replies, and run \`editrl judge exam\``,
      );
    }
    this.#reportedSame = isSame;
    return raised;
  }

  /**
   * Adds an iteration's KL. Returns a sentence if it has jumped, else null. Uses single iterations, because a mean over
   * several would hide a jump.
   */
  #jump(metrics: Metrics): string | null {
    const kl = metrics['policy/kl'];
    if (kl === undefined || !Number.isFinite(kl)) return null;
    const before = this.#kl.length < JUMP.fewest ? null : quantile(this.#kl, 0.5);
    this.#kl.push(kl);
    if (this.#kl.length > JUMP.over) this.#kl.shift();
    if (before === null || kl <= Math.max(JUMP.least, JUMP.times * before)) return null;
    return `the KL to the reference jumped to ${kl.toFixed(2)} nats per action (median before: ${before.toFixed(3)}); look at the answers, and at the learning rate and kl_coeff if it happens again`;
  }

  #each(visit: (name: AlarmName, series: Series) => void): void {
    for (const [name, series] of this.#series) visit(name, series);
  }

  #take(name: AlarmName, series: Series, metrics: Metrics): void {
    const value = metrics[`hack/${name}`];
    if (value === undefined || !Number.isFinite(value)) return;
    if (series.first.length < this.span) series.first.push(value);
    series.last.push(value);
    if (series.last.length > this.span) series.last.shift();
  }

  /** The crossed threshold in words, or null. While there are few values, the last values are also the first ones. */
  #crossing(name: AlarmName, { first, last }: Series): string | null {
    if (first.length === 0) return null;
    const { label, relativeTo, above = 'look at the answers' } = alarmKinds[name];
    const [before, now] = [average(first), average(last)];
    const { max_fall, max_rise, max } = alarmLimitsOf(name, this.settings.limits[name]);
    if (max !== null && now > max) {
      return `${label} is ${now.toFixed(3)} (track.alarms.limits.${name}.max is ${max}): ${above}`;
    }
    const base = { value: Math.abs(before), rest: Math.abs(1 - before), unit: 1 }[relativeTo];
    if (base < MIN_BASE) return null;
    const change = (now - before) / base;
    const side = change < 0 ? 'max_fall' : 'max_rise';
    const limit = change < 0 ? max_fall : max_rise;
    if (limit === null || Math.abs(change) <= limit) return null;
    return (
      `${label} ${change < 0 ? 'fell' : 'rose'} from ${before.toFixed(3)} to ${now.toFixed(3)}, by ${shownChange(change, relativeTo)} ` +
      `(track.alarms.limits.${name}.${side} is ${limit}). Look at the answers for reward hacking`
    );
  }
}

function shownChange(change: number, of: AlarmKind['relativeTo']): string {
  const percent = `${Math.round(100 * Math.abs(change))}%`;
  return { value: percent, rest: `${percent} of what it lacked to 1`, unit: Math.abs(change).toFixed(3) }[of];
}

function alarmMetric(name: AlarmName | 'kl' | 'same_score'): string {
  return `alarm/${name}`;
}
