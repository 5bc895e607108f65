/** What was ticked to be compared, in the list of runs or in an experiment's grid. */
import type { JSX } from 'preact';
import { SERIES_COLOURS } from '../panels.js';
import { changed, go, hashOf, type Place } from './router.js';

/** Nothing while nothing is ticked. The ticks are in the place's address as `pick`. */
export function Picked({
  place,
  runs,
  cells,
}: {
  readonly place: Place;
  /** The ids of the runs that were ticked, whatever the view shows of them. */
  readonly runs: readonly string[];
  /** How many cells these runs are from, if cells were ticked. */
  readonly cells?: number;
}): JSX.Element | null {
  if (runs.length === 0) return null;
  return (
    <p class="picked" role="status">
      {cells === undefined
        ? `${countInWords(runs.length, 'run')} ticked`
        : `${countInWords(cells, 'cell')} ticked, with `}
      {cells !== undefined && (runs.length === 1 ? '1 run' : `${runs.length} runs`)}{' '}
      {runs.length === 1 ? (
        <span class="quiet">tick another to compare</span>
      ) : runs.length > SERIES_COLOURS ? (
        <span class="quiet">at most {SERIES_COLOURS} runs can be compared</span>
      ) : (
        <a class="button" href={hashOf('compare', '', { run: runs })}>
          compare
        </a>
      )}{' '}
      <button type="button" onClick={() => go(changed(place, { pick: [] }), 'replace')}>
        untick
      </button>
    </p>
  );
}

function countInWords(count: number, what: string): string {
  return count === 1 ? `1 ${what} is` : `${count} ${what}s are`;
}
