/** Runs side by side as one file. */
import { comparisonRows, letterOf, type Comparison } from '../compare.js';
import { curveFigures, leadingFigure, type Group } from './figures.js';
import { signedEstimate } from '../numbers.js';
import { html, page, type Markup } from './markup.js';
import { alarmTable, differencesTable, factCards, notice, sheetSection, table, timeSplit } from './sections.js';

export async function comparePage(comparison: Comparison): Promise<string> {
  const { runs, remarks, paired } = comparison;
  const groups = runs.map(({ report, lines }, at): Group => ({ label: named(report.run_name, at), runs: [lines] }));
  const metric = runs.find(({ report }) => report.heldout.metric !== null)?.report.heldout.metric ?? null;
  const rows = comparisonRows(comparison);
  const title = runs.map(({ report }) => report.run_name).join(', ');
  const facts = runs.map(({ report }, at) => {
    const { before, after } = report.heldout;
    const found = paired.find((one) => one.at === at);
    const against =
      found === undefined
        ? at === 0
          ? 'the others are compared with it'
          : 'no prompt that both were evaluated on, by the same reward or measure'
        : `${signedEstimate(found)} against ${letterOf(0)}${found.by === null ? '' : `, ${found.by}`}, paired over ${found.n} prompts, ${found.manner}`;
    return {
      name: named(report.run_name, at),
      value: `${before?.toFixed(3) ?? '–'} → ${after?.toFixed(3) ?? '–'}`,
      more: against,
    };
  });
  const body = html` <h1>${runs.length} runs side by side</h1>
    <p class="muted">
      Held-out before and after. Paired differences are taken prompt by prompt at each run's last evaluation; their
      standard errors are over prompts, and say nothing of other seeds.
    </p>
    ${factCards(facts)} ${notice('Mind', remarks)} ${leadingFigure(groups, metric)}
    <h2>Results</h2>
    ${table(
      ['', ...runs.map((_, at) => letterOf(at))],
      rows.map(({ label, values }) => [label, ...values]),
    )}
    <h2>What their settings differ in</h2>
    ${settingsSection(comparison)}
    <h2>Curves</h2>
    ${curveFigures(groups, metric)}
    <h2>Time</h2>
    ${timeSplit(runs.map(({ report }, at) => ({ label: named(report.run_name, at), seconds: report.seconds_per_iteration })))}
    <h2>Hack alarms</h2>
    ${alarmTable(runs.map(({ report }) => ({ run: report.run_name, alarms: report.alarms })))}
    <h2>Contact sheets</h2>
    ${await Promise.all(runs.map(({ report, paths }, at) => sheetSection(named(report.run_name, at), paths)))}`;
  return page(`${title}: side by side`, body);
}

function named(name: string, at: number): string {
  return `${letterOf(at)}: ${name}`;
}

function settingsSection({ settings, runs }: Comparison): Markup {
  if (settings.length === 0) return html`<p>In none.</p>`;
  const titles = runs.map((_, at) => letterOf(at));
  const rows = (effect: 'result' | 'operation') =>
    settings.filter((one) => one.effect === effect).map(({ key, values }) => [key, ...values] as const);
  const others = rows('operation');
  return html`${differencesTable(titles, rows('result'))}${
    others.length === 0
      ? null
      : html`<details>
          <summary>Those that decide no result</summary>
          ${differencesTable(titles, others)}
        </details>`
  }`;
}
