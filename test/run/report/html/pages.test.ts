import { rmSync, writeFileSync } from 'node:fs';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { loadExperiment, type Experiment } from '../../../../src/config/experiment/load.js';
import { recordOf } from '../../../../src/launch/sweep/experiment.js';
import { writeExperiment, type ExperimentRecord } from '../../../../src/run/experiment.js';
import { compareRuns } from '../../../../src/run/report/compare.js';
import { readExperimentReport } from '../../../../src/run/report/experiment.js';
import { membershipOf } from '../../../../src/run/report/find.js';
import { comparePage } from '../../../../src/run/report/html/compare_page.js';
import { experimentPage } from '../../../../src/run/report/html/experiment_page.js';
import { html, Markup } from '../../../../src/run/report/html/markup.js';
import { runPage } from '../../../../src/run/report/html/run_page.js';
import { contactSheets } from '../../../../src/run/report/sheets.js';
import { RunPaths } from '../../../../src/run/paths.js';
import { testFolder } from '../../../support/folder.js';
import { finishedRun, withAnswers, withSheets } from '../recorded_runs.js';

const HOSTILE = `</title><script>alert(1)</script><img src="http://evil.example/x" onerror='alert(2)'>\u001b[2J\u202e`;

/** Without the style sheet, tags and pictures. */
function wordsOf(page: string): string {
  return page
    .replace(/<style>[^]*?<\/style>/, '')
    .replace(/<svg[^]*?<\/svg>/g, '')
    .replace(/<[^>]+>/g, ' ')
    .replace(/\s+/g, ' ');
}

describe('markup', () => {
  it('escapes whatever it is given, but markup', () => {
    expect(html`<b title="${`"'`}">${HOSTILE}${[new Markup('<i>'), '<i>', null]}</b>`.text).toBe(
      '<b title="&quot;&#39;">&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt;&lt;img src=&quot;http://evil.example/x&quot; onerror=&#39;alert(2)&#39;&gt;' +
        String.raw`\u001b[2J\u202e` +
        '<i>&lt;i&gt;</b>',
    );
  });
});

describe('pages', () => {
  const base = testFolder('pages');
  let experiment: Experiment;
  let record: ExperimentRecord;
  const at = (name: string): RunPaths => new RunPaths(base, name);

  beforeAll(async () => {
    const file = `${base}/x.jsonnet`;
    writeFileSync(
      file,
      `{ name: 'x', base: (import '${process.cwd()}/configs/sft_s__rl_s.jsonnet') + (import '${process.cwd()}/configs/lib/tiny.libsonnet'),
        axes: { kl: { '0': { algorithm+: { kl_coeff: 0 } }, base: {} }, seed: { '1': { seed: 1 }, '2': { seed: 2 } } },
        baseline: { kl: 'base' } }`,
    );
    vi.stubEnv('APP__BASE_EXP_DIR', base);
    experiment = await loadExperiment({ file });
    vi.unstubAllEnvs();
    const after = [5, 6, 4.5, 5.25];
    for (const [i, { config }] of experiment.cells.entries()) finishedRun(config, after[i]);
    record = { format: 1, ...recordOf(experiment) };
    writeExperiment(base, record);
    await withSheets(at('x__kl-0__seed-1'));
    withAnswers(at('x__kl-0__seed-1'), 0, [HOSTILE, 'b', 'c']);
    withAnswers(at('x__kl-0__seed-1'), 40, [HOSTILE, 'b', 'c']);
  });

  it('of an experiment names base, axes, winner, paired difference and standard error first', async () => {
    const page = await experimentPage(readExperimentReport(base, record));
    const words = wordsOf(page);
    const first = words.slice(0, words.indexOf('Results'));
    // By hand: 5 - 4.5 and 6 - 5.25 are 0.5 and 0.75.
    for (const said of [
      '4 of 4 runs finished',
      'Base kl base 3.000 ± 0.000 → 4.875 ± 0.530 · sft_s__rl_s.jsonnet',
      'Axes kl (2) × seed (2)',
      'Winner kl 0 3.000 ± 0.000 → 5.500 ± 0.707',
      'Paired difference ± standard error +0.625 ± 0.125 against the baseline kl base; 2 pairs',
      '5.0 standard errors: more than noise usually gives, and so few pairs',
    ]) {
      expect(first).toContain(said);
    }
    for (const section of [
      'algorithm.kl_coeff',
      'Reward parts',
      'KL to the reference',
      'Entropy',
      'Length of answers',
      'iteration 20',
    ]) {
      expect(words).toContain(section);
    }
    expect(words).toContain('reward/viescore/naturalness 10');
    expect(words).toContain('edge_density 6 8');
    expect(page.match(/<svg /g)?.length).toBeGreaterThan(8);
  });

  it('of an experiment say what is missing', async () => {
    const cells = [...record.cells, { ...record.cells[0], run_name: 'x__kl-9__seed-1', axes: { kl: '9', seed: '1' } }];
    const refused = cells.map((cell, i) => (i === 1 ? { ...cell, refused: 'other settings' } : cell));
    const page = wordsOf(
      await experimentPage(readExperimentReport(base, { ...record, cells: refused, baseline: null })),
    );
    expect(page).toContain('x__kl-0__seed-2: other settings');
    expect(page).toContain('x__kl-9__seed-1: it has no folder');
    expect(page).toContain('Base sft_s__rl_s.jsonnet, no baseline named');
    expect(page).toContain('against the second best, kl base; 1 pair. A single pair has no standard error.');
    const none = { ...record, cells: [cells[4]] };
    expect(wordsOf(await experimentPage(readExperimentReport(base, none)))).toContain('Winner none yet');
  });

  it('of a run have all there is, and obey nothing that it holds', async () => {
    const paths = at('x__kl-0__seed-1');
    const page = await runPage(paths, membershipOf(paths));
    expect(page).not.toContain('<script');
    expect(page).not.toContain('<img src="http');
    expect(page).not.toMatch(/[\u001b\u202e]/);
    expect(page.match(/<img alt="[^"]*" src="data:image\/webp;base64,/g)).toHaveLength(3);
    const words = wordsOf(page);
    expect(words).toContain('3.000 → 5.000');
    expect(words).toContain('Differs from the base of the experiment x key here algorithm.kl_coeff 0');
    expect(words).toContain('&lt;script&gt;alert(1)&lt;/script&gt;');
  });

  it('say which pictures are gone', async () => {
    const paths = at('x__kl-0__seed-2');
    expect(wordsOf(await runPage(paths, null))).toContain('There is no contact sheet');
    await withSheets(paths);
    const [first, second] = contactSheets(paths);
    writeFileSync(first.path, 'no picture');
    rmSync(second.path);
    const words = wordsOf(await runPage(paths, null));
    expect(words).toContain(`This picture cannot be read: ${first.path}`);
    rmSync(paths.contactSheetsDir, { recursive: true });
    expect(wordsOf(await runPage(paths, null))).toContain('this run kept no earlier ones');
  });

  it('of several runs have them side by side', async () => {
    const words = wordsOf(await comparePage(compareRuns([at('x__kl-0__seed-1'), at('x__kl-base__seed-1')])));
    expect(words).toContain('A: x__kl-0__seed-1 3.000 → 5.000');
    expect(words).toContain('B: x__kl-base__seed-1 3.000 → 4.500');
    expect(words).toContain('algorithm.kl_coeff 0 0.0003');
  });
});
