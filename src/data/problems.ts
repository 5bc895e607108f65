/** Everything that is wrong with a list of samples, as one error. */
import { DataError } from '../core/errors.js';

/** Problems that are shown at once. */
const MOST_SHOWN = 20;

/** All problems of a list, of which there is one at least, as one error. */
export function oneOf(path: string, problems: readonly DataError[]): DataError {
  const [first] = problems;
  if (problems.length === 1) return first;
  const shown = problems.slice(0, MOST_SHOWN).map(({ where, message }) => `${where}: ${message}`);
  const more = problems.length > MOST_SHOWN ? [`and ${problems.length - MOST_SHOWN} more`] : [];
  return new DataError([`${problems.length} things are wrong`, ...shown, ...more].join('\n  '), {
    where: path,
    next: `\`editrl data check ${path}\` lists them all, and looks into the files too.`,
  });
}
