import { rmSync, writeFileSync } from 'node:fs';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { loadExperiment, type Experiment } from '../../../src/config/experiment/load.js';
import { recordOf } from '../../../src/launch/sweep/experiment.js';
import { writeExperiment, type ExperimentRecord } from '../../../src/run/find.js';
import { readExperimentReport } from '../../../src/run/report/experiment.js';
import { contactSheets } from '../../../src/run/report/contact_sheet.js';
import { RunPaths } from '../../../src/run/paths.js';
import { readMetrics } from '../../../src/run/metrics.js';
import { readRun } from '../../../src/run/report/read.js';
import { experimentReport } from '../../../src/web/report/experiment.js';
import { runReport } from '../../../src/web/report/run.js';
import type { WireReport } from '../../../src/web/wire.js';
import { testFolder } from '../../support/folder.js';
import { finishedRun, withAnswers, withSheets } from '../../run/report/recorded_runs.js';

const HOSTILE = `</title><script>alert(1)</script><img src="http://evil.example/x" onerror='alert(2)'>\u001b[2J\u202e`;

/** Every text of a report, in its order. */
function wordsOf({ curves, images, ...report }: WireReport): string {
  const texts = (value: unknown): string[] =>
    typeof value === 'string'
      ? [value]
      : typeof value === 'object' && value !== null
        ? Object.entries(value).flatMap(([key, one]) => (['kind', 'as'].includes(key) ? [] : texts(one)))
        : [];
  void [curves, images];
  return texts(report).join(' ');
}

describe('reports', () => {
  const base = testFolder('reports');
  let experiment: Experiment;
  let record: ExperimentRecord;
  const at = (name: string): RunPaths => new RunPaths(base, name);
  const ofRun = (paths: RunPaths): Promise<WireReport> => {
    const lines = readMetrics(paths);
    return runReport({ paths, report: readRun(paths, lines), lines });
  };

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
    const report = await experimentReport(readExperimentReport(base, record));
    const words = wordsOf(report);
    const first = words.slice(0, words.indexOf('Results'));
    // By hand: 5 - 4.5 and 6 - 5.25 are 0.5 and 0.75.
    for (const said of [
      '4 of 4 runs finished',
      'Base kl base 3.000 ± 0.000 → 4.875 ± 0.530 · sft_s__rl_s.jsonnet',
      'Axes kl (2) × seed (2)',
      'Winner kl 0 3.000 ± 0.000 → 5.500 ± 0.707',
      'Paired difference ± standard error +0.625 ± 0.125 against the baseline kl base, 2 pairs',
      '5.0 standard errors: beyond noise. With so few pairs',
    ]) {
      expect(first).toContain(said);
    }
    for (const said of ['iteration 20', 'edge_density 6 8']) expect(words).toContain(said);
    // The baseline's own value, although it differs in nothing.
    expect(words).toContain('Different settings key kl 0 kl base algorithm.kl_coeff 0 0.0003');
    expect(report.leading).toBe('validation/sampled/mean');
    expect(report.curves.groups).toEqual(['kl 0', 'kl base']);
    for (const metric of [
      'reward/viescore/naturalness',
      'policy/kl',
      'policy/entropy',
      'episode/length',
      'time/total',
    ]) {
      const groups = report.curves.curves.flatMap((curve) => (curve.metric === metric ? [curve.group] : []));
      expect(groups, metric).toEqual(['kl 0', 'kl base']);
    }
  });

  it('of an experiment name no winner whose difference may be noise, or has no error', async () => {
    const read = readExperimentReport(base, record);
    const withError = async (stderr: number | null): Promise<string> => {
      const cells = read.results.cells.map((cell) => ({
        ...cell,
        difference: cell.difference === null ? null : { ...cell.difference, stderr },
      }));
      return wordsOf(await experimentReport({ ...read, results: { ...read.results, cells } }));
    };
    expect(await withError(0.3126)).toContain('Winner no clear winner kl 0 has the best mean: 3.000');
    expect(await withError(0.3124)).toContain('Winner kl 0 3.000');
    expect(await withError(null)).toContain('Best mean kl 0 3.000');
    // Above its contact sheet it is called the same.
    expect(await withError(0.3126)).toContain('Best mean: kl 0 (x__kl-0__seed-1)');
    expect(await withError(0.3124)).toContain('Winner: kl 0 (x__kl-0__seed-1)');
  });

  it('of an experiment say what is missing', async () => {
    const cells = [...record.cells, { ...record.cells[0], run_name: 'x__kl-9__seed-1', axes: { kl: '9', seed: '1' } }];
    const refused = cells.map((cell, i) => (i === 1 ? { ...cell, refused: 'other settings' } : cell));
    const page = wordsOf(
      await experimentReport(readExperimentReport(base, { ...record, cells: refused, baseline: null })),
    );
    expect(page).toContain('x__kl-0__seed-2: other settings');
    expect(page).toContain('x__kl-9__seed-1: not started');
    expect(page).toContain('Base sft_s__rl_s.jsonnet no baseline cell');
    expect(page).toContain('against the second best, kl base, 1 pair. A single pair has no standard error.');
    const none = { ...record, cells: [cells[4]] };
    expect(wordsOf(await experimentReport(readExperimentReport(base, none)))).toContain('Winner none yet');
  });

  it('of a run have all there is, and texts as they are: the page spells them out', async () => {
    const paths = at('x__kl-0__seed-1');
    const report = await ofRun(paths);
    expect(report.images.map((address) => address.slice(0, 23))).toEqual(
      Array.from({ length: 3 }, () => 'data:image/webp;base64,'),
    );
    const words = wordsOf(report);
    expect(words).toContain('3.000 → 5.000');
    expect(words).toContain('Alarms edge_density 0 unscored episodes');
    expect(words).toContain(HOSTILE);
  });

  it('say which images are gone', async () => {
    const paths = at('x__kl-0__seed-2');
    expect(wordsOf(await ofRun(paths))).toContain('No contact sheet');
    await withSheets(paths);
    const [first, second] = contactSheets(paths);
    writeFileSync(first.path, 'no image');
    rmSync(second.path);
    const words = wordsOf(await ofRun(paths));
    expect(words).toContain(`Cannot read the image ${first.path}`);
    rmSync(paths.contactSheetsDir, { recursive: true });
    expect(wordsOf(await ofRun(paths))).toContain('kept no earlier contact sheets');
  });
});
