/** Runs side by side as a report. */
import { comparisonRows, letterOf, type Comparison } from '../../run/report/compare.js';
import { showHeldOut, showScale, signedEstimate } from '../../run/report/numbers.js';
import type { WireBlock, WireFact, WireReport } from '../wire.js';
import { reportCurves } from './curves.js';
import * as parts from './parts.js';
import { NONE, paragraph, table } from './parts.js';

/** What a comparison says in words and tables. */
export type ComparisonParts = Pick<WireReport, 'about' | 'facts' | 'notice' | 'leading'> & {
  readonly results: WireBlock;
  readonly settings: readonly WireBlock[];
  readonly times: WireBlock;
  readonly alarms: readonly WireBlock[];
};

export function comparisonParts(comparison: Comparison): ComparisonParts {
  const { runs, remarks } = comparison;
  const rows = comparisonRows(comparison).map(({ label, values }) => [label, ...values]);
  return {
    about:
      'Held-out before and after. Paired differences are taken prompt by prompt at each run’s last evaluation; their standard errors are over prompts, and say nothing of other seeds.',
    facts: facts(comparison),
    notice: parts.notice('Mind', remarks),
    leading: runs.find(({ report }) => report.heldout.metric !== null)?.report.heldout.metric ?? null,
    results: table('Results', { titles: ['', ...runs.map((_, at) => letterOf(at))], rows }),
    settings: settings(comparison),
    times: parts.times(
      runs.map(({ report }, at) => ({
        label: letteredName(report.run_name, at),
        seconds: report.seconds_per_iteration,
      })),
    ),
    alarms: parts.alarms(runs.map(({ report }) => ({ run: report.run_name, alarms: report.alarms }))),
  };
}

export async function comparisonReport(comparison: Comparison): Promise<WireReport> {
  const { runs } = comparison;
  const { results, settings: differences, times, alarms, leading, ...head } = comparisonParts(comparison);
  const pictures = new parts.Pictures();
  const sheets: WireBlock[] = [];
  for (const [at, { report, paths }] of runs.entries()) {
    sheets.push(...(await pictures.sheets(letteredName(report.run_name, at), paths)));
  }
  return {
    ...head,
    heading: `${runs.length} runs side by side`,
    run: null,
    leading,
    scale: scaleOf(runs),
    curves: reportCurves(
      runs.map(({ report, lines }, at) => ({ label: letteredName(report.run_name, at), runs: [lines] })),
      leading,
    ),
    sections: [
      { title: 'Results', blocks: [results] },
      { title: 'What their settings differ in', blocks: differences },
      { title: 'Curves', blocks: [{ kind: 'curves' }] },
      { title: 'Time', blocks: [times] },
      { title: 'Hack alarms', blocks: alarms },
      { title: 'Contact sheets', blocks: sheets },
    ],
    pictures: pictures.addresses,
  };
}

/** A run's name behind its letter, which tells it from a run of the same name in another folder. */
export function letteredName(name: string, at: number): string {
  return `${letterOf(at)}: ${name}`;
}

function scaleOf(runs: Comparison['runs']): string | null {
  const scales = new Set(
    runs.map(({ report: { heldout } }) => (heldout.scale === null ? null : showScale(heldout.scale))),
  );
  const [scale = null] = scales;
  return scales.size === 1 ? scale : null;
}

function facts({ runs, paired }: Comparison): WireFact[] {
  return runs.map(({ report }, at) => {
    const { before, after } = report.heldout;
    const found = paired.find((one) => one.at === at);
    const more =
      found === undefined
        ? at === 0
          ? 'the others are compared with it'
          : 'no prompt that both were evaluated on, by the same reward or measure'
        : `${signedEstimate(found)} against ${letterOf(0)}${found.by === null ? '' : `, ${found.by}`}, paired over ${found.n} prompts, ${found.manner}`;
    const shown = (mean: number | null): string => (mean === null ? NONE : showHeldOut({ mean, stderr: null }));
    const value = `${shown(before)} → ${shown(after)}`;
    return { name: letteredName(report.run_name, at), value, more };
  });
}

function settings({ settings: all, runs }: Comparison): WireBlock[] {
  if (all === null) return [paragraph('They cannot be compared: see above.')];
  if (all.length === 0) return [paragraph('In none.')];
  const of = (effect: 'result' | 'operation'): ReturnType<typeof parts.differences> =>
    parts.differences(
      runs.map((_, at) => letterOf(at)),
      all.filter((one) => one.effect === effect).map(({ key, values }) => [key, ...values] as const),
    );
  const others = of('operation');
  return [
    table('What their settings differ in', of('result')),
    ...(others.rows.length === 0 ? [] : [parts.folded('Those that decide no result', others)]),
  ];
}
