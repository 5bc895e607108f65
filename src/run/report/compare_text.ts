/** Runs side by side as tables for a terminal. */
import { printable } from '../../core/errors.js';
import { formatTable, wrap, type Column } from '../../core/table.js';
import { comparisonRows, letterOf, type Comparison } from './compare.js';

/**
 * Columns of the runs, under letters because names are long; then the settings that are not the same. At most `width` columns wide if they can be
 * broken.
 */
export function formatComparison(comparison: Comparison, width = Infinity): string {
  const { runs, settings, remarks } = comparison;
  const letters = runs.map((_, at) => ({ title: letterOf(at), wraps: true }));
  const legend = runs.map(({ report }, at) => `${letterOf(at)}  ${report.run_name}`).join('\n');
  const results = formatTable(
    [{ title: '' }, ...letters.map((column) => ({ ...column, align: 'right' as const }))],
    comparisonRows(comparison).map(({ label, values }) => [label, ...values]),
    { width },
  );
  const said = remarks.map((remark) => wrap(`Mind: ${remark}`, width).join('\n'));
  return [legend, results, ...said, formatSettings(settings, letters, width)].join('\n\n');
}

function formatSettings(settings: Comparison['settings'], letters: readonly Column[], width: number): string {
  if (settings === null) return 'Their settings cannot be compared: see above.';
  if (settings.length === 0) return 'Their settings are the same.';
  const rows = settings.map(({ key, values }) => [key, ...values.map(shown)]);
  return formatTable([{ title: 'setting', alone: true }, ...letters], rows, { width });
}

function shown(value: unknown): string | null {
  if (value === undefined) return null;
  return printable(typeof value === 'string' ? value : JSON.stringify(value));
}
