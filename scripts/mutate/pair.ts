/** A small mistake in the source, and the tests that should notice it. */
import { readFileSync } from 'node:fs';

export interface Pair {
  readonly id: string;
  /** The file of `src/` that holds `text`. */
  readonly file: string;
  /** Text that occurs in the file exactly once. */
  readonly text: string;
  /** The mistake that replaces the text. */
  readonly replacement: string;
  /** Files of the fast tier; at least one of them has a test that fails with the mistake. */
  readonly tests: readonly string[];
  /** Why the mistake changes no reachable behaviour; such a pair is not run. */
  readonly equivalent?: string;
}

/** Why a pair does not fit the current code; null if its text occurs in its file exactly once. */
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
