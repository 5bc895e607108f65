/** Combinations of settings that cannot work, although each value is valid by itself. */

/** What is wrong with a config, in one line. */
export interface Problem {
  /** Dotted path of the key. */
  readonly key: string;
  readonly message: string;
}

/** Reads defaulted values by dotted path; undefined if the value is absent or already known to be invalid. */
export type Reader = (path: string) => unknown;

/** One combination. A rule stays silent if one of its values is invalid by itself. */
export type Rule = (read: Reader) => readonly Problem[];

export function problem(key: string, message: string): Problem[] {
  return [{ key, message }];
}

/** A number; null if there is none. */
export function number(read: Reader, path: string): number | null {
  const value = read(path);
  return typeof value === 'number' ? value : null;
}

/** `whole` must be a multiple of `part`. */
export function indivisible(read: Reader, whole: string, part: string, reason: string): Problem[] {
  const [dividend, divisor] = [number(read, whole), number(read, part)];
  if (dividend === null || divisor === null || dividend % divisor === 0) return [];
  return problem(whole, `found ${dividend}; allowed: a multiple of ${part} (${divisor}), ${reason}`);
}
