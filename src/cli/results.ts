/** The result table of an experiment, as the verbs print it. */
import { resultCaption, resultRows, type Results } from '../run/report/results.js';
import { formatTable, outputWidth, styled } from './output.js';
import { wrap } from '../core/terminal.js';

/** A caption that explains the numbers, and the table, best first. */
export function formatResults(results: Results): string {
  const { titles, rows, leftColumns } = resultRows(results);
  const columns = titles.map((title, index) => ({
    title,
    align: index < leftColumns ? ('left' as const) : ('right' as const),
  }));
  const caption = wrap(`${styled(results.experiment, 'bold')}: ${resultCaption(results)}`, outputWidth()).join('\n');
  return `${caption}\n\n${formatTable(columns, rows)}`;
}
