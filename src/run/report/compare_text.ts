/** Runs side by side as tables for a terminal. */
import { printable } from '../../core/errors.js';
import { formatTable, textWidth, wrap, type Column } from '../../core/table.js';
import { comparisonRows, letterOf, type Comparison } from './compare.js';

/** What a run's column takes of a terminal: a number with its error, and the gap before it. */
const RUN_WIDTH = 16;

/**
 * Columns of the runs, under letters because names are long; then the settings that are not the same. At most `width` columns wide: runs that do not
 * fit beside each other stand in further tables.
 */
export function formatComparison(comparison: Comparison, width = Infinity): string {
  const { runs, settings, remarks } = comparison;
  const legend = runs.map(({ report }, at) => `${letterOf(at)}  ${report.run_name}`).join('\n');
  const rows = comparisonRows(comparison);
  const label = Math.max(...rows.map((row) => textWidth(row.label)));
  const perTable = Math.max(1, Math.min(runs.length, Math.floor((width - label) / RUN_WIDTH)));
  const blocks: Block[] = Array.from({ length: Math.ceil(runs.length / perTable) }, (_, at) => at * perTable).map(
    (from) => ({
      letters: runs.slice(from, from + perTable).map((_, at) => ({ title: letterOf(from + at), wraps: true })),
      of: <T>(values: readonly T[]): T[] => values.slice(from, from + perTable),
    }),
  );
  const results = blocks.map(({ letters, of }) =>
    formatTable(
      [{ title: '' }, ...letters.map((column) => ({ ...column, align: 'right' as const }))],
      rows.map((row) => [row.label, ...of(row.values)]),
      { width },
    ),
  );
  const said = remarks.map((remark) => wrap(`Mind: ${remark}`, width).join('\n'));
  return [legend, ...results, ...said, ...formatSettings(settings, blocks, width)].join('\n\n');
}

/** Some of the runs, as columns; `of` takes their values out of those of all. */
interface Block {
  readonly letters: readonly Column[];
  readonly of: <T>(values: readonly T[]) => T[];
}

function formatSettings(settings: Comparison['settings'], blocks: readonly Block[], width: number): string[] {
  if (settings === null) return ['Their settings cannot be compared: see above.'];
  if (settings.length === 0) return ['Their settings are the same.'];
  return blocks.map(({ letters, of }) =>
    formatTable(
      [{ title: 'setting', alone: true }, ...letters],
      settings.map(({ key, values }) => [key, ...of(values).map(shown)]),
      { width },
    ),
  );
}

function shown(value: unknown): string | null {
  if (value === undefined) return null;
  return printable(typeof value === 'string' ? value : JSON.stringify(value));
}
