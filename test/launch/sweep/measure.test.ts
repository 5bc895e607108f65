/** What a sweep makes of finished cells and of a measure that was named, or changed, since. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { loadExperiment, type Experiment } from '../../../src/config/experiment/load.js';
import { prepareSweep, sweep } from '../../../src/launch/sweep/experiment.js';
import { measureFinished } from '../../../src/launch/sweep/measure.js';
import { RunPaths } from '../../../src/run/paths.js';
import { measureScale, readMeasure } from '../../../src/rewards/score/identity.js';
import { writeState } from '../../../src/run/state.js';
import { getPath } from '../../../src/core/schema/walk.js';
import { FakeRunner, FakeView, unknownMemory } from './fakes.js';

const configs = resolve(import.meta.dirname, '../../../configs');

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'measured-'));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

async function measuredBy(match: 'iou' | 'exact', changes = '{}'): Promise<Experiment> {
  const file = join(dir, `${match}.jsonnet`);
  writeFileSync(
    file,
    `{
      name: 'e',
      base: (import '${configs}/text_start.jsonnet') + ${changes},
      with: ['${configs}/lib/text_tiny.libsonnet'],
      measure: [{ name: 'format_accuracy', match: '${match}' }],
    }`,
  );
  const env = { ...process.env, APP__BASE_EXP_DIR: join(dir, 'runs'), APP__DATA_DIR: join(dir, 'data') };
  return loadExperiment({ file, env });
}

/** The one cell as it lies there when it has finished, evaluated at `iterations`, at those of `measured` by the measure as well. */
function finish({ cells: [{ config }] }: Experiment, iterations: readonly number[], measured: readonly number[]): void {
  const paths = RunPaths.of(config.settings);
  mkdirSync(paths.dir, { recursive: true });
  const { settings, resultHash } = config;
  const record = { format: 1, run_name: settings.run_name, hash: resultHash, settings, parents: [], attempts: [] };
  writeFileSync(paths.record, JSON.stringify(record));
  const end = settings.num_iterations;
  writeState(paths, { state: 'finished', iteration: end, num_iterations: end, reason: null, stopped_early: false });
  const lines = iterations.map((iteration) => ({
    iteration,
    'validation/sampled/mean': 0.5,
    ...(measured.includes(iteration) ? { 'validation/sampled/measure/format_accuracy/mean': 0.25 } : {}),
  }));
  writeFileSync(paths.metrics, lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
}

async function told(experiment: Experiment): Promise<string[]> {
  const said: string[] = [];
  await measureFinished(experiment, (sentence) => said.push(sentence), new AbortController().signal);
  return said;
}

it('scores the records of a cell that was evaluated by the same term under other fields', async () => {
  const before = await measuredBy('iou');
  finish(before, [0, 80], [0, 80]);
  expect(await told(before)).toEqual([]);
  // There are no answers in this folder: that they were looked for is enough.
  expect((await told(await measuredBy('exact')))[0]).toContain('e: scoring its held-out answers by format_accuracy');
});

it('takes no number of other fields for the measure in its table', async () => {
  finish(await measuredBy('iou'), [0, 80], [0, 80]);
  const limits = { maxParallel: null, retries: 0, failFast: false };
  const table = async (match: 'iou' | 'exact') => {
    const prepared = prepareSweep(await measuredBy(match), { only: null, failed: false }, limits);
    return (await sweep(prepared, new FakeRunner(), new FakeView(), new AbortController().signal, unknownMemory))
      .results;
  };
  expect(await table('iou')).toMatchObject({ unmeasured: [], cells: [{ after: { mean: 0.25 } }] });
  expect(await table('exact')).toMatchObject({ unmeasured: ['e'], cells: [{ after: null }] });
});

it('writes nothing over the record and the results of cells that were swept with other settings', async () => {
  finish(await measuredBy('iou'), [0, 80], [0, 80]);
  const limits = { maxParallel: null, retries: 0, failFast: false };
  const swept = async (experiment: Experiment) => {
    const view = new FakeView();
    const remark = vi.spyOn(view, 'remark');
    const prepared = prepareSweep(experiment, { only: null, failed: false }, limits);
    const { resultsFile } = await sweep(prepared, new FakeRunner(), view, new AbortController().signal, unknownMemory);
    const written = ['e.results.md', 'e.results.json', 'e.experiment.json'].map((name) =>
      readFileSync(join(dir, 'runs', name), 'utf8'),
    );
    return { resultsFile, written, remarks: remark.mock.calls.flat() };
  };
  const before = await swept(await measuredBy('iou'));
  expect([before.resultsFile, before.remarks]).toEqual([join(dir, 'runs', 'e.results'), []]);
  const after = await swept(await measuredBy('iou', '{ seed: 99 }'));
  expect(after).toEqual({
    resultsFile: null,
    written: before.written,
    remarks: [expect.stringContaining("no cell's folder is of these settings")],
  });
});

it('scores the records again of a cell that has a later evaluation than those that were scored', async () => {
  const experiment = await measuredBy('iou');
  finish(experiment, [0, 40, 80], []);
  const [{ config }] = experiment.cells;
  const [measure] = readMeasure(experiment.measure);
  const { rescoredDir } = RunPaths.of(config.settings);
  mkdirSync(rescoredDir);
  const { label: name, identity } = measureScale(measure, (path) => getPath(config.settings, path));
  const scored = (iterations: readonly number[]): void => {
    const mean = { 'validation/sampled/measure/format_accuracy/mean': 0.25 };
    const evaluations = iterations.map((iteration) => ({ iteration, ...mean }));
    writeFileSync(join(rescoredDir, 'measure-a.json'), JSON.stringify({ measure: { name, identity }, evaluations }));
  };
  scored([0, 80]);
  expect(await told(experiment)).toEqual([]);
  scored([0, 40]);
  expect((await told(experiment))[0]).toContain('e: scoring its held-out answers by format_accuracy');
});
