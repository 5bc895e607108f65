/** The report of a benchmark, from the records of an evaluation. */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Outcome } from '../../../src/rewards/score/types.js';
import { RunPaths } from '../../../src/run/paths.js';
import { benchmarkReport, benchmarkText } from '../../../src/run/report/benchmark.js';
import { testFolder } from '../../support/folder.js';

const base = testFolder('benchmark report');
const lists = ['add', 'remove'].map((type) => {
  const file = join(base, `${type}.jsonl`);
  const row = (key: string): string => JSON.stringify({ source: 'a.png', instruction: 'paint', key, task_type: type });
  writeFileSync(file, `${row(`${type} 1`)}\n${row(`${type} 2`)}\n`);
  return file;
});
const choice = { name: 'imgedit', folder: base } as const;

const scored = (...scores: readonly number[]): Outcome => ({
  kind: 'scored',
  value: 0.5,
  normalised: 0.5,
  parts: Object.fromEntries(scores.map((score, i) => [`imgedit/score_${i + 1}`, score])),
});

function evaluated(name: string, outcomes: Readonly<Record<string, Outcome>>): RunPaths {
  const paths = new RunPaths(base, name);
  const file = paths.heldOutEpisodes(3);
  mkdirSync(dirname(file), { recursive: true });
  const lines = Object.entries(outcomes).map(([sample, outcome], i) => ({
    key: `validation/3/${sample.split('.')[0]}/sampled/${i}`,
    sample,
    instruction: 'paint',
    finished: true,
    outcome,
  }));
  writeFileSync(file, lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
  return paths;
}

describe('the report of a benchmark', () => {
  it('counts edits that are no image as worst, and leaves unscored ones out', async () => {
    const paths = evaluated('whole', {
      'add.jsonl:1': scored(5, 4, 3),
      'add.jsonl:2': { kind: 'zero_by_rule', reason: 'undecodable', parts: {} },
      'remove.jsonl:1': scored(2, 2, 5),
      'remove.jsonl:2': { kind: 'unscored', reason: 'unparsable', detail: 'x', parts: { 'imgedit/score_1': 5 } },
    });
    const judgements = [
      { model: 'judge-b', problem: null },
      { model: 'judge-a', problem: null },
      { model: 'broken', problem: 'unparsable' },
    ];
    writeFileSync(paths.judgements, judgements.map((line) => `${JSON.stringify(line)}\n`).join(''));
    const report = await benchmarkReport({ paths, iteration: 3 }, choice, lists);
    expect(report.tables).toEqual({
      sampled: [
        {
          title: 'score',
          columns: ['score'],
          lines: [
            { name: 'add', n: 2, unscored: 0, values: [2.5] },
            { name: 'remove', n: 1, unscored: 1, values: [3] },
            { name: 'mean of types', n: 3, unscored: 1, values: [2.75] },
          ],
        },
      ],
    });
    expect(report.judge).toMatchObject({ published: 'gpt-4o', models: ['judge-a', 'judge-b'] });
    expect(JSON.parse(readFileSync(paths.benchmark, 'utf8'))).toEqual(report);
    expect(benchmarkText(report, 100)).toContain('judge-a, judge-b');
  });

  it('needs records, and the rows of their edits', async () => {
    const none = { paths: new RunPaths(base, 'none'), iteration: 3 };
    await expect(benchmarkReport(none, choice, lists)).rejects.toThrow('no evaluation in this folder');
    const paths = evaluated('another', { 'extract.jsonl:1': scored(1, 1, 1) });
    await expect(benchmarkReport({ paths, iteration: 3 }, choice, lists)).rejects.toThrow('no list has this row');
  });
});
