/** One small mistake in the source, and who is to notice it. */
import { readFileSync } from 'node:fs';

export interface Pair {
  readonly id: string;
  /** The file of `src/` that holds `text`. */
  readonly file: string;
  /** Stands in the file exactly once. */
  readonly text: string;
  /** The mistake: what stands there instead. */
  readonly replacement: string;
  /** Files of the fast tier; at least one of them has a test that fails with the mistake. */
  readonly tests: readonly string[];
  /** Why the mistake changes nothing that can be reached; such a pair is not run. */
  readonly equivalent?: string;
}

/** What is wrong with a pair on today's code; null where its text stands in its file once. */
export function mismatch({ file, text, replacement }: Pair): string | null {
  if (text === replacement) return 'text and replacement are the same';
  let source: string;
  try {
    source = readFileSync(file, 'utf8');
  } catch {
    return `there is no ${file}`;
  }
  const times = source.split(text).length - 1;
  return times === 1 ? null : `its text stands ${times} times in ${file}, not once`;
}

/** A source with the mistake in it. */
export function withMistake(source: string, { text, replacement }: Pick<Pair, 'text' | 'replacement'>): string {
  const at = source.indexOf(text);
  return source.slice(0, at) + replacement + source.slice(at + text.length);
}
