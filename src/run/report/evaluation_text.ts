/** An evaluation as a table for a terminal. */
import { showEstimate } from '../../core/estimate.js';
import { formatTable, type Column } from '../../core/table.js';
import type { EvaluatedNumber, EvaluationReport } from './evaluation.js';
import { showLoss, showScale, signedEstimate, signedLoss } from './numbers.js';

const COUNTS: readonly Column[] = [
  { title: 'n', align: 'right' },
  { title: 'unscored', align: 'right' },
];

/** Means with their errors and counts; with `against`, the other evaluation's means and the difference prompt by prompt as well. */
export function evaluationTable(report: EvaluationReport, against: EvaluationReport | null, width: number): string {
  const { scale, numbers, loss } = report;
  const other = ({ by, manner, set }: EvaluatedNumber): EvaluatedNumber | undefined =>
    against?.numbers.find((one) => one.by === by && one.manner === manner && one.set === set);
  const compared = (cells: readonly string[]): readonly string[] => (against === null ? [] : cells);
  const rows = numbers.map((number) => {
    const { mean, stderr, n, unscored, difference } = number;
    const base = other(number);
    const paired = difference === undefined ? '–' : `${signedEstimate(difference)} (${difference.n})`;
    return [
      labelOf(number),
      showEstimate({ mean, stderr }),
      String(n),
      String(unscored),
      ...compared([base === undefined ? '–' : showEstimate(base), paired]),
    ];
  });
  const [own, base] = [loss, against?.loss ?? null];
  if (own !== null) {
    const cells = compared(base === null ? ['–', '–'] : [showLoss(base), signedLoss(own - base)]);
    rows.push(['loss, lower is better', showLoss(own), ...(numbers.length === 0 ? [] : ['', '']), ...cells]);
  }
  const columns: Column[] = [
    { title: scale === null || numbers.length === 0 ? 'held-out' : `held-out: ${showScale(scale)}` },
    { title: 'mean' },
    ...(numbers.length === 0 ? [] : COUNTS),
    ...(against === null ? [] : [{ title: 'against' }, { title: 'difference (pairs)' }]),
  ];
  return formatTable(columns, rows, { width });
}

function labelOf({ by, manner, set }: EvaluatedNumber): string {
  const named = by === null ? 'reward' : `measure ${by}`;
  return set === null ? `${named}, ${manner}` : `  ${by === null ? '' : `${named}, `}${set}, ${manner}`;
}
