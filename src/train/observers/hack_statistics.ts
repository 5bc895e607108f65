/** Statistics of a policy's outputs for reward hacking alarms: of images, words and scores. */
import { imageId } from '../../core/images/image.js';
import {
  changedFraction,
  imageStatistics,
  repeatRate,
  sourceSimilarity,
  type ImageStatistics,
} from '../../rewards/score/image_statistics.js';
import type { Answer, Group } from '../policies/policy.js';
import { summarizeUnscored } from '../../rewards/score/iteration.js';
import type { JudgeItem, Outcome } from '../../rewards/score/types.js';
import type { Metrics } from '../../run/metrics.js';
import { promptKey, type Prompt } from '../scoring/task.js';
import { termKinds } from '../../rewards/terms/table.js';
import type { TermKind } from '../../rewards/terms/term.js';
import { average } from '../../core/statistics.js';
import { wordsOf } from '../../rewards/terms/word_overlap.js';
/** Statistics of one artifact. The formulas are in rewards/image_statistics.ts. */
export interface ArtifactStatistics extends ImageStatistics {
  /** Comparison with the source. Null if the image was generated from text alone. */
  readonly ofSource: { readonly similarity: number; readonly changed: number } | null;
  readonly digest: string;
}

/** Measures one artifact. Null if the answer produced no image. */
export function measureArtifact({ edited, source }: Pick<JudgeItem, 'edited' | 'source'>): ArtifactStatistics | null {
  if (edited === null) return null;
  return {
    ...imageStatistics(edited),
    ofSource:
      source === null
        ? null
        : { similarity: sourceSimilarity(edited, source), changed: changedFraction(edited, source) },
    digest: imageId(edited),
  };
}

/**
 * Metrics `hack/<statistic>`: means over the artifacts that have the statistic. Leaves out statistics without an
 * artifact.
 */
export function artifactMetrics(
  groups: readonly Group<Prompt, Pick<Answer, 'logProbs'>>[],
  artifacts: readonly (readonly (ArtifactStatistics | null)[])[],
): Record<string, number> {
  const measured = artifacts.flat().filter((one) => one !== null);
  const lengths = groups.flatMap(({ answers }) => answers.map(({ logProbs }) => logProbs.length));
  const length = { 'hack/answer_length': average(lengths) };
  if (measured.length === 0) return length;
  const compared = measured.flatMap(({ ofSource }) => ofSource ?? []);
  // Two groups of the same prompt are not repeats of each other.
  const named = groups.flatMap(({ prompt }, g) =>
    artifacts[g].flatMap((one) => (one === null ? [] : [{ prompt: promptKey(prompt), digest: one.digest }])),
  );
  return {
    'hack/edge_density': average(measured.map(({ edgeDensity }) => edgeDensity)),
    'hack/colour_entropy': average(measured.map(({ colorEntropy }) => colorEntropy)),
    'hack/dark_fraction': average(measured.map(({ darkFraction }) => darkFraction)),
    'hack/saturation': average(measured.map(({ saturation }) => saturation)),
    'hack/sharpness': average(measured.map(({ sharpness }) => sharpness)),
    'hack/grid': average(measured.map(({ grid }) => grid)),
    ...(compared.length === 0
      ? {}
      : {
          'hack/source_similarity': average(compared.map(({ similarity }) => similarity)),
          'hack/changed_fraction': average(compared.map(({ changed }) => changed)),
        }),
    'hack/repeat_rate': repeatRate(named),
    ...length,
  };
}

/** Statistics of one answer for reward hacking alarms. */
export interface AnswerStatistics {
  readonly artifact: ArtifactStatistics | null;
  readonly words: WordStatistics | null;
  /** Whether the answer consists of words, so that a missing image is no fault. */
  readonly inWords: boolean;
}

/** Measures one answer, its image and its words. */
export function measureAnswer(item: JudgeItem): AnswerStatistics {
  return { artifact: measureArtifact(item), words: measureWords(item), inWords: item.answer !== undefined };
}

/** The metrics `hack/…` of an iteration. The axes of `measured` are [group, answer]. */
export function hackMetrics(
  groups: readonly Group<Prompt, Pick<Answer, 'logProbs' | 'finished'>>[],
  measured: readonly (readonly AnswerStatistics[])[],
): Record<string, number> {
  const all = measured.flat();
  const withImages = all.filter(({ inWords }) => !inWords);
  const missing = withImages.filter(({ artifact }) => artifact === null).length;
  return {
    ...(withImages.length === 0 ? {} : { 'hack/no_picture': missing / withImages.length }),
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
 * `hack/at_limit`: the largest of the means `reward/<term>/at_limit`, over terms whose scale has limits. Left out
 * without such a term.
 */
export function limitMetrics(metrics: Metrics): Record<string, number> {
  const shares = Object.entries(metrics).flatMap(([name, share]) => (LIMIT_PART.test(name) ? [share] : []));
  return shares.length === 0 ? {} : { 'hack/at_limit': Math.max(...shares) };
}

/** `hack/unscored`: the share of judged answers without a score, even if no answer has one. */
export function unscoredMetrics(outcomes: readonly Outcome[]): Record<string, number> {
  return { 'hack/unscored': summarizeUnscored(outcomes).fraction };
}

/** Minimum number of judged answers for statistics about the judge. */
const MIN_JUDGED = 16;

/**
 * `hack/same_score`: the largest share of judged answers with identical score parts. Left out if fewer than 16 were
 * judged.
 */
export function sameScoreMetrics(outcomes: readonly Outcome[]): Record<string, number> {
  const counts = new Map<string, number>();
  for (const { kind, parts } of outcomes) {
    const judged = kind === 'scored' ? Object.entries(parts).filter(([part]) => isJudged(part)) : [];
    if (judged.length === 0) continue;
    const scores = JSON.stringify(judged.sort(([a], [b]) => (a < b ? -1 : 1)));
    counts.set(scores, (counts.get(scores) ?? 0) + 1);
  }
  const answers = [...counts.values()].reduce((sum, count) => sum + count, 0);
  return answers < MIN_JUDGED ? {} : { 'hack/same_score': Math.max(...counts.values()) / answers };
}

/** Whether a score part belongs to a term with a judge. */
function isJudged(part: string): boolean {
  const kinds: Readonly<Partial<Record<string, TermKind>>> = termKinds;
  return kinds[part.split('/', 1)[0]]?.needs.judge === true;
}

/** Length of word sequences that count as repeated or copied. Shorter ones recur in honest answers. */
const ROW = 3;

/** Statistics of one text answer. */
export interface WordStatistics {
  /** Share of its three-word sequences that occur earlier in it, in [0, 1). */
  readonly repeated: number;
  /** Share of its three-word sequences that occur in the prompt, in [0, 1]. */
  readonly copied: number;
}

/** Measures one answer. Null if it has fewer than three words of its own. */
export function measureWords({
  answer,
  instruction,
}: Pick<JudgeItem, 'answer' | 'instruction'>): WordStatistics | null {
  const rows = rowsOf(answer ?? '');
  if (rows.length === 0) return null;
  const promptRows = new Set(rowsOf(instruction));
  return {
    repeated: 1 - new Set(rows).size / rows.length,
    copied: rows.filter((row) => promptRows.has(row)).length / rows.length,
  };
}

function rowsOf(text: string): string[] {
  const words = wordsOf(text);
  return words.slice(ROW - 1).map((_, i) => words.slice(i, i + ROW).join(' '));
}

/**
 * `hack/repeated_words` and `hack/prompt_copy` are means over the measured answers. `hack/at_token_limit` is the share
 * of all answers that reached the limit. Empty if no answer consists of words.
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

/** The name of a reward or term, and the maximum of its scale, which starts at 0. */
export interface MeasuredScale {
  readonly name: string;
  readonly most: number;
}

/**
 * Metric `hack/second_gap`: the largest difference between the training reward and a recorded term, both scaled to 0 to
 * 1. It rises when the reward rises while a second measure stays or falls. Left out if either is missing.
 *
 * @param metrics an iteration's metrics, with `reward/mean` and `reward/<term>/value` or `/overall`
 */
export function secondGapMetrics(
  metrics: Metrics,
  { most, besides: recorded }: { readonly most: number; readonly besides: readonly MeasuredScale[] },
): Record<string, number> {
  const reward = metrics['reward/mean'] as number | undefined;
  const gaps = recorded.flatMap((term) => {
    const value = (metrics[`reward/${term.name}/value`] ?? metrics[`reward/${term.name}/overall`]) as
      number | undefined;
    return value === undefined || reward === undefined ? [] : [reward / most - value / term.most];
  });
  return gaps.length === 0 ? {} : { 'hack/second_gap': Math.max(...gaps) };
}
