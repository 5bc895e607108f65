/** A word as a POSIX shell reads it back: in single quotes if it holds anything that a shell would interpret. */
export function shellQuote(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
