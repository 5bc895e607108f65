/** Arithmetic that the benchmarks share. */
import { DataError } from '../../core/errors.js';
import { average } from '../../core/statistics.js';
import { grouped } from '../../core/grouped.js';
import type { Row } from '../../data/types.js';
import type { ScoreParts } from '../score/types.js';
import type { BenchmarkAnswer, BenchmarkLine } from './benchmark.js';

/** The mean, or null of nothing. */
export function meanOf(values: readonly number[]): number | null {
  return values.length === 0 ? null : average(values);
}

/**
 * A number from 0 on with two decimals as Python's `round(x, 2)` gives it: halves go to the even neighbor. Among fractions with two decimals and
 * a five, only odd multiples of 1/8 are exact halves.
 */
export function toCents(value: number): number {
  const eighths = value * 8;
  const isHalf = Number.isInteger(eighths) && eighths % 2 !== 0;
  if (!isHalf) return Number(value.toFixed(2));
  const below = Math.floor(value * 100);
  return (below + (below % 2)) / 100;
}

/** The text in a column, or null. */
export function textAt(row: Row, column: string): string | null {
  const value = row[column];
  return typeof value === 'string' ? value : null;
}

/** A column of a row with words. Raises DataError for a row without it. */
export function wordsAt(row: Row, column: string): string {
  const value = textAt(row, column);
  if (value !== null && value !== '') return value;
  throw new DataError(`the row has no column '${column}', which this benchmark needs`, {
    where: textAt(row, 'key') ?? 'unknown row',
    next: 'Write the rows with: editrl data bench.',
  });
}

/** Whether a column is there and not null, as the published scripts check it. */
export function has(row: Row, column: string): boolean {
  return row[column] !== undefined && row[column] !== null;
}

/** The files of the images before an edit. */
export function sourcesAt(row: Row): readonly [string, ...string[]] {
  const { source } = row;
  const files = Array.isArray(source) ? (source as readonly unknown[]) : [source];
  if (files.length > 0 && files.every((file) => typeof file === 'string')) {
    return files as readonly [string, ...string[]];
  }
  return [wordsAt(row, 'source')];
}

/** Edits with scores. */
export type Scored = BenchmarkAnswer & { readonly parts: ScoreParts };

export function scoredOf(answers: readonly BenchmarkAnswer[]): readonly Scored[] {
  return answers.filter((answer): answer is Scored => answer.parts !== null);
}

/** The answers by the words in a column, in the order of first appearance. */
export function byColumn<A extends BenchmarkAnswer>(answers: readonly A[], column: string): ReadonlyMap<string, A[]> {
  return grouped(answers, ({ row }) => wordsAt(row, column));
}

/** A line of a table from the answers with scores. */
export function lineOf(
  name: string,
  answers: readonly BenchmarkAnswer[],
  values: (scored: readonly Scored[]) => readonly (number | null)[],
): BenchmarkLine {
  const scored = scoredOf(answers);
  return { name, n: scored.length, unscored: answers.length - scored.length, values: values(scored) };
}

/** The mean of a part over the answers that have it. */
export function partMean(answers: readonly Scored[], part: string): number | null {
  return meanOf(answers.flatMap(({ parts }) => (Object.hasOwn(parts, part) ? [parts[part]] : [])));
}
