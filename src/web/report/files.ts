/** Reports as files: what `report --html` and `compare --html` write, and the dashboard lets people download. */
import type { Comparison, ComparedRun } from '../../run/report/compare.js';
import { formatComparison } from '../../run/report/compare_text.js';
import { membershipOf } from '../../run/report/find.js';
import { formatReport } from '../../run/report/text.js';
import { comparisonReport } from './comparison.js';
import { reportDocument } from './document.js';
import { runReport } from './run.js';

/** The width of a comparison's text, which is shown where scripts are not allowed: as a usual terminal, in columns. */
const TEXT_WIDTH = 80;

/** One run as a self-contained page. Raises RunError when its record cannot be read, or the page was not built. */
export async function runFile(run: ComparedRun): Promise<string> {
  const { paths, report } = run;
  return reportDocument(`${paths.runName}: report`, await runReport(run, membershipOf(paths)), formatReport(report));
}

/** Runs side by side as a self-contained page. Raises RunError when the page was not built. */
export async function comparisonFile(comparison: Comparison): Promise<string> {
  const names = comparison.runs.map(({ report }) => report.run_name).join(', ');
  return reportDocument(
    `${names}: side by side`,
    await comparisonReport(comparison),
    formatComparison(comparison, TEXT_WIDTH),
  );
}
