/** The result table of an experiment as text: cells for a terminal or Markdown, and a caption that explains the numbers. */
import { showEstimate } from '../../core/estimate.js';
import type { Spread } from '../../core/statistics.js';
import { showScale, signedEstimate } from './numbers.js';
import type { PairedDifference, ResultCell, Results } from './results.js';

/** `kl 3e-4, lr base`; the experiment's name if its only axis is the seed. */
export function cellName({ axes }: Pick<ResultCell, 'axes'>, experiment: string): string {
  const names = Object.entries(axes).map(([axis, value]) => `${axis} ${value}`);
  return names.length === 0 ? experiment : names.join(', ');
}

/** Titles and rows of the table, for a terminal or for Markdown. The first `leftColumns` columns are text. */
export function resultRows(results: Results): { titles: string[]; rows: string[][]; leftColumns: number } {
  const axes = [...new Set(results.cells.flatMap((cell) => Object.keys(cell.axes)))];
  const spreads = results.cells.some((cell) => cell.runs.length > 1);
  const compared = results.baseline !== null && results.incomparable === null;
  const named = results.measures.length > 1;
  const several = named ? results.measures : [''];
  const prefixed = (label: string, title: string): string => (named ? `${label}, ${title}` : title);
  const titles = [
    ...(axes.length === 0 ? ['cell'] : axes),
    ...(results.incomparable === null ? [] : ['reward']),
    ...(spreads ? ['runs'] : []),
    ...several.flatMap((label) => [
      prefixed(label, 'before'),
      prefixed(label, 'after'),
      ...(compared ? [prefixed(label, 'against the baseline')] : []),
    ]),
  ];
  const rows = results.cells.map((cell) => [
    ...(axes.length === 0 ? [results.experiment] : axes.map((axis) => cell.axes[axis] ?? '-')),
    ...(results.incomparable === null ? [] : [cell.reward ?? '-']),
    ...(spreads ? [countOf(cell)] : []),
    ...[cell, ...cell.also].flatMap(({ before, after, difference }) => [
      showSpread(before),
      showSpread(after),
      ...(compared ? [cell.is_baseline ? 'baseline' : showDifference(difference)] : []),
    ]),
  ]);
  const leftColumns = Math.max(1, axes.length) + (results.incomparable === null ? 0 : 1);
  return { titles, rows, leftColumns };
}

/** One line that explains the numbers. */
export function resultCaption(results: Results, arranged: 'by_result' | 'by_axes' = 'by_result'): string {
  const { measures, measure_argument, unmeasured, scale } = results;
  const lacking =
    unmeasured.length === 0
      ? ''
      : `; ${unmeasured.length === 1 ? unmeasured[0] : `${unmeasured.length} finished runs`} not measured by it yet: sweep the experiment again, or editrl rescore ${unmeasured[0]} --measure ${measure_argument}`;
  if (results.metric === null) {
    return `No finished run has a held-out evaluation${measures.length > 0 ? ` by ${measures[0]}` : ''} yet${lacking}.`;
  }
  const seeds = results.cells.some((cell) => cell.runs.length > 1) ? ', mean ± standard deviation over seeds' : '';
  if (results.incomparable !== null) {
    return `held-out ${results.metric} at the last evaluation${seeds}; ${results.incomparable}`;
  }
  const what = scale === null ? '' : ` (${measures.length > 0 ? 'measure ' : ''}${showScale(scale)})`;
  const order = { by_result: results.less_is_better ? ', least first' : ', best first', by_axes: '' }[arranged];
  const pairs = results.cells.flatMap(({ difference }) => difference ?? []);
  const ways = [
    ...(pairs.length === 0 || pairs.some(({ over }) => over === undefined)
      ? ['by seed, mean ± standard error (pairs)']
      : []),
    ...(pairs.some(({ over }) => over === 'prompts') ? ['prompt by prompt, mean ± standard error (prompts)'] : []),
  ];
  const difference = results.baseline === null ? '' : `; differences are paired ${ways.join(', or ')}`;
  const others = results.also_incomparable.map((why) => `; ${why}`).join('');
  const fallen =
    results.greedy_fell.length === 0
      ? ''
      : `; warning: the greedy answers of ${results.greedy_fell.join(', ')}, in the best cell, became worse than before training`;
  return `held-out ${results.metric}${what} at the last evaluation${order}${seeds}${difference}${lacking}${others}${fallen}`;
}

/** The table as a Markdown document. */
export function resultsMarkdown(results: Results): string {
  const { titles, rows, leftColumns } = resultRows(results);
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell) => cell.replace(/\|/g, '\\|')).join(' | ')} |`;
  const rule = line(titles.map((_, index) => (index < leftColumns ? '---' : '---:')));
  const body = [line(titles), rule, ...rows.map(line)].join('\n');
  return `# ${results.experiment}\n\n${resultCaption(results)}\n\n${body}\n`;
}

function countOf(cell: ResultCell): string {
  const n = cell.after?.n ?? 0;
  return n === cell.runs.length ? String(n) : `${n} of ${cell.runs.length}`;
}

export function showSpread(value: Spread | null): string {
  if (value === null) return '-';
  return showEstimate({ mean: value.mean, stderr: value.std });
}

export function showDifference(value: PairedDifference | null): string {
  if (value === null) return '-';
  return `${signedEstimate(value)} (${value.n}${value.over === undefined ? '' : ` ${value.over}`})`;
}
