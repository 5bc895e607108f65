/**
 * Hack alarms: statistics of the policy's outputs, per iteration and over all ranks, compared with those of the run's own first iterations. The
 * baseline is the start of the run and not the data's pictures: a policy's drawings differ from photographs from the first iteration on (its decoder
 * blurs), a task may have no source images, and what an exploited reward changes, it changes over time.
 */
import type { AlarmName, AlarmSettings } from '../schema/alarms.js';
import { imageDigest, imageStatistics, repeatRate, sourceSimilarity } from '../rewards/score/image_statistics.js';
import type { Answer, AnsweredPrompt } from '../policies/policy.js';
import { summariseUnscored } from '../rewards/score/iteration.js';
import type { JudgeItem, Outcome } from '../rewards/score/types.js';
import type { Metrics, MetricsLine } from '../run/metrics.js';
import { promptKey, type Prompt } from '../scoring/task.js';
import { termKinds } from '../rewards/terms/table.js';
import type { TermKind } from '../rewards/terms/term.js';
import { average, quantile } from '../core/statistics.js';
import { wordsOf } from '../rewards/terms/word_overlap.js';

/** Statistics of one artifact; see rewards/image_statistics.ts for the formulae. */
export interface ArtifactStatistics {
  readonly edgeDensity: number;
  readonly colourEntropy: number;
  readonly darkFraction: number;
  /** Null if the artifact was made from words alone. */
  readonly sourceSimilarity: number | null;
  readonly digest: string;
}

/** Measures one artifact; null if the answer gave no image. */
export function measureArtifact({ edited, source }: Pick<JudgeItem, 'edited' | 'source'>): ArtifactStatistics | null {
  if (edited === null) return null;
  return {
    ...imageStatistics(edited),
    sourceSimilarity: source === null ? null : sourceSimilarity(edited, source),
    digest: imageDigest(edited),
  };
}

/** Metrics `hack/<statistic>`: means over the artifacts that have it; a statistic that no artifact has is left out. */
export function artifactMetrics(
  groups: readonly AnsweredPrompt<Prompt, Pick<Answer, 'logProbs'>>[],
  artifacts: readonly (readonly (ArtifactStatistics | null)[])[],
): Record<string, number> {
  const measured = artifacts.flat().filter((one) => one !== null);
  const lengths = groups.flatMap(({ answers }) => answers.map(({ logProbs }) => logProbs.length));
  const length = { 'hack/answer_length': average(lengths) };
  if (measured.length === 0) return length;
  const similarities = measured.flatMap((one) => (one.sourceSimilarity === null ? [] : [one.sourceSimilarity]));
  // Two groups of the same prompt are not repeats of each other.
  const named = groups.flatMap(({ prompt }, g) =>
    artifacts[g].flatMap((one) => (one === null ? [] : [{ prompt: promptKey(prompt), digest: one.digest }])),
  );
  return {
    'hack/edge_density': average(measured.map(({ edgeDensity }) => edgeDensity)),
    'hack/colour_entropy': average(measured.map(({ colourEntropy }) => colourEntropy)),
    'hack/dark_fraction': average(measured.map(({ darkFraction }) => darkFraction)),
    ...(similarities.length === 0 ? {} : { 'hack/source_similarity': average(similarities) }),
    'hack/repeat_rate': repeatRate(named),
    ...length,
  };
}

/** The statistics of one answer that hack alarms watch. */
export interface AnswerStatistics {
  readonly artifact: ArtifactStatistics | null;
  readonly words: WordStatistics | null;
  /** Whether the answer has words, however few: without a picture it is then not at fault. */
  readonly inWords: boolean;
}

/** Measures one answer, its picture and its words. */
export function measureAnswer(item: JudgeItem): AnswerStatistics {
  return { artifact: measureArtifact(item), words: measureWords(item), inWords: item.answer !== undefined };
}

/** The metrics `hack/…` of an iteration. Axes of `measured`: [group, answer]. */
export function hackMetrics(
  groups: readonly AnsweredPrompt<Prompt, Pick<Answer, 'logProbs' | 'finished'>>[],
  measured: readonly (readonly AnswerStatistics[])[],
): Record<string, number> {
  const all = measured.flat();
  const pictured = all.filter(({ inWords }) => !inWords);
  const missing = pictured.filter(({ artifact }) => artifact === null).length;
  return {
    ...(pictured.length === 0 ? {} : { 'hack/no_picture': missing / pictured.length }),
    ...artifactMetrics(
      groups,
      measured.map((one) => one.map(({ artifact }) => artifact)),
    ),
    ...wordMetrics(
      groups,
      measured.map((one) => one.map(({ words }) => words)),
    ),
  };
}

const LIMIT_PART = /^reward\/.*\/at_limit$/;

/**
 * `hack/at_limit`: the largest of the means `reward/<term>/at_limit`, over terms whose scale has limits. Left out if no term has any.
 */
export function limitMetrics(metrics: Metrics): Record<string, number> {
  const shares = Object.entries(metrics).flatMap(([name, share]) => (LIMIT_PART.test(name) ? [share] : []));
  return shares.length === 0 ? {} : { 'hack/at_limit': Math.max(...shares) };
}

/** `hack/unscored`: the share of what was judged that has no score, also where that is all of it and the reward has no mean. */
export function unscoredMetrics(outcomes: readonly Outcome[]): Record<string, number> {
  return { 'hack/unscored': summariseUnscored(outcomes).fraction };
}

/** Judged answers of an iteration whose scores say something about the judge. */
const LEAST_JUDGED = 16;

/** `hack/same_score`: the largest share of judged answers that have all parts of their scores alike. Left out if fewer than 16 were judged. */
export function sameScoreMetrics(outcomes: readonly Outcome[]): Record<string, number> {
  const counts = new Map<string, number>();
  for (const { kind, parts } of outcomes) {
    const judged = kind === 'scored' ? Object.entries(parts).filter(([part]) => isJudged(part)) : [];
    if (judged.length === 0) continue;
    const scores = JSON.stringify(judged.sort(([a], [b]) => (a < b ? -1 : 1)));
    counts.set(scores, (counts.get(scores) ?? 0) + 1);
  }
  const answers = [...counts.values()].reduce((sum, count) => sum + count, 0);
  return answers < LEAST_JUDGED ? {} : { 'hack/same_score': Math.max(...counts.values()) / answers };
}

/** Whether a score part is of a term that asks a judge. */
function isJudged(part: string): boolean {
  const kinds: Readonly<Partial<Record<string, TermKind>>> = termKinds;
  return kinds[part.split('/', 1)[0]]?.needs.judge === true;
}

interface AlarmKind {
  readonly label: string;
  /** What limits are relative to: the first value, its distance to 1, or nothing (they are in the statistic's own unit). */
  readonly relativeTo: 'value' | 'rest' | 'unit';
  /** What it means to be above a fixed limit, and what to do; absent where limits are relative alone. */
  readonly above?: string;
}

export const alarmKinds: Readonly<Record<AlarmName, AlarmKind>> = {
  edge_density: { label: 'edge density', relativeTo: 'value' },
  colour_entropy: { label: 'colour entropy', relativeTo: 'value' },
  dark_fraction: { label: 'the share of dark pixels', relativeTo: 'unit' },
  source_similarity: { label: 'similarity to the source', relativeTo: 'rest' },
  repeat_rate: { label: 'the share of repeated pictures', relativeTo: 'unit' },
  answer_length: { label: 'answer length', relativeTo: 'value' },
  repeated_words: { label: 'the share of repeated words', relativeTo: 'unit' },
  prompt_copy: { label: 'the share of words copied from the prompt', relativeTo: 'unit' },
  at_token_limit: { label: 'the share of answers at the token limit', relativeTo: 'unit' },
  second_gap: { label: 'the gap from a measure recorded besides to the reward', relativeTo: 'unit' },
  no_picture: {
    label: 'the share of answers without a picture',
    relativeTo: 'unit',
    above:
      'they score 0 by rule; start from a policy that writes whole pictures, or let it sample only what may follow',
  },
  unscored: {
    label: 'the share of answers without a score',
    relativeTo: 'unit',
    above: 'nothing is learnt from them; look at why (reward/unscored/…), and at what the judge says of them',
  },
  at_limit: {
    label: 'the share of scores at a limit of their scale',
    relativeTo: 'unit',
    above: "the reward does not tell these answers apart; choose another scale, such as 'half' of term clip",
  },
};

/** The KL to the reference jumps in an iteration if it is above so many times its median over the iterations before, and above the least one. */
const JUMP = { times: 5, over: 5, fewest: 3, least: 0.5 } as const;

/** Lower bound of what limits are relative to. */
const SMALLEST_BASE = 1e-6;

interface Series {
  /** The first measured values, at most as many as are compared. */
  readonly first: number[];
  /** The latest values, as many. */
  readonly last: number[];
  raised: boolean;
}

/** Watches the statistics of one run, over all its attempts. */
export class HackAlarms {
  readonly #series: ReadonlyMap<AlarmName, Series>;
  /** The latest values of the KL. */
  readonly #kl: number[] = [];
  #saidSame = false;

  /**
   * @param history what the run measured before, oldest first: a resumed run keeps its baseline and does not repeat a warning.
   * @param warn called once per crossing, not once per iteration.
   */
  constructor(
    private readonly settings: AlarmSettings,
    history: readonly MetricsLine[],
    private readonly warn: (message: string) => void,
  ) {
    const names = Object.keys(alarmKinds) as AlarmName[];
    this.#series = new Map(names.map((name) => [name, { first: [], last: [], raised: false }]));
    for (const { iteration, metrics } of history) {
      if (iteration === 0) continue;
      this.#each((name, series) => this.#take(name, series, metrics));
      this.#jump(metrics);
    }
    const latest = history.at(-1)?.metrics ?? {};
    this.#saidSame = latest['hack/same_score'] === 1;
    this.#each((name, series) => (series.raised = latest[alarmMetric(name)] === 1));
  }

  /** Adds an iteration's metrics; returns `alarm/<name>`: 1 for each alarm that is active after it. */
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
    if (isSame && !this.#saidSame) {
      this.warn(
        `iteration ${iteration}: alarm: the judge gave every answer the same score, so nothing is learned from it; look at its replies, and run \`editrl judge exam\``,
      );
    }
    this.#saidSame = isSame;
    return raised;
  }

  /** Takes an iteration's KL; says in words that it jumped, or null. One iteration is enough: a mean over several would hide it. */
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
    const { over_iterations: span } = this.settings;
    if (series.first.length < span) series.first.push(value);
    series.last.push(value);
    if (series.last.length > span) series.last.shift();
  }

  /** The crossed threshold, in words; null if none was. While there are not yet more values than are compared, the last values are the first ones. */
  #crossing(name: AlarmName, { first, last }: Series): string | null {
    if (first.length === 0) return null;
    const { label, relativeTo, above = '' } = alarmKinds[name];
    const [before, now] = [average(first), average(last)];
    const limits = this.settings[name];
    if ('max' in limits) {
      if (limits.max === null || now <= limits.max) return null;
      return `${label} is ${now.toFixed(3)} (track.alarms.${name}.max is ${limits.max}): ${above}`;
    }
    const base = { value: Math.abs(before), rest: Math.abs(1 - before), unit: 1 }[relativeTo];
    if (base < SMALLEST_BASE) return null;
    const change = (now - before) / base;
    const { max_fall, max_rise } = limits;
    const side = change < 0 ? 'max_fall' : 'max_rise';
    const limit = change < 0 ? max_fall : max_rise;
    if (limit === null || Math.abs(change) <= limit) return null;
    return (
      `${label} ${change < 0 ? 'fell' : 'rose'} from ${before.toFixed(3)} at first to ${now.toFixed(3)}, by ${shownChange(change, relativeTo)} ` +
      `(track.alarms.${name}.${side} is ${limit}); look at the answers: the reward may be exploited`
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

/** Length of the word sequences that count as repeated or copied: shorter ones recur in honest answers. */
const ROW = 3;

/** Statistics of one answer in words. */
export interface WordStatistics {
  /** Share of its three-word sequences that occur earlier in it, in [0, 1). */
  readonly repeated: number;
  /** Share of its three-word sequences that occur in the prompt, in [0, 1]. */
  readonly copied: number;
}

/** Measures one answer; null if it has no words of its own, or fewer than three. */
export function measureWords({
  answer,
  instruction,
}: Pick<JudgeItem, 'answer' | 'instruction'>): WordStatistics | null {
  const rows = rowsOf(answer ?? '');
  if (rows.length === 0) return null;
  const asked = new Set(rowsOf(instruction));
  return {
    repeated: 1 - new Set(rows).size / rows.length,
    copied: rows.filter((row) => asked.has(row)).length / rows.length,
  };
}

function rowsOf(text: string): string[] {
  const words = wordsOf(text);
  return words.slice(ROW - 1).map((_, i) => words.slice(i, i + ROW).join(' '));
}

/**
 * Metrics `hack/repeated_words` and `hack/prompt_copy`, means over the measured answers, and `hack/at_token_limit`, the share of all answers that did
 * not end by themselves; empty if no answer is in words.
 */
export function wordMetrics(
  groups: readonly { readonly answers: readonly Pick<Answer, 'finished'>[] }[],
  words: readonly (readonly (WordStatistics | null)[])[],
): Record<string, number> {
  const measured = words.flat().filter((one) => one !== null);
  if (measured.length === 0) return {};
  const answers = groups.flatMap((group) => group.answers);
  return {
    'hack/repeated_words': average(measured.map(({ repeated }) => repeated)),
    'hack/prompt_copy': average(measured.map(({ copied }) => copied)),
    'hack/at_token_limit': average(answers.map(({ finished }) => (finished ? 0 : 1))),
  };
}

/** A reward's or a term's name and the highest value of its scale, whose lowest is 0. */
export interface MeasuredScale {
  readonly name: string;
  readonly most: number;
}

/**
 * Metric `hack/second_gap`: how much higher the training reward is than the terms recorded beside it, all on the scale from 0 to 1; the largest gap.
 * It rises when the reward rises while a second measure stays or falls. Left out if either is missing.
 *
 * @param metrics an iteration's, with `reward/mean` and `reward/<term>/value` or `/overall`
 */
export function secondGapMetrics(
  metrics: Metrics,
  { most, besides }: { readonly most: number; readonly besides: readonly MeasuredScale[] },
): Record<string, number> {
  const reward = metrics['reward/mean'] as number | undefined;
  const gaps = besides.flatMap((term) => {
    const value = (metrics[`reward/${term.name}/value`] ?? metrics[`reward/${term.name}/overall`]) as
      number | undefined;
    return value === undefined || reward === undefined ? [] : [reward / most - value / term.most];
  });
  return gaps.length === 0 ? {} : { 'hack/second_gap': Math.max(...gaps) };
}
