import { appendFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import { mergeLines, parseMetricsLine, TrainerMetrics } from '../../../src/launch/attempts/metrics_file.js';
import { readMetrics, type MetricsLine } from '../../../src/run/metrics.js';
import { RunPaths } from '../../../src/run/paths.js';

const base = mkdtempSync(join(tmpdir(), 'editrl-metrics-file-'));
afterAll(() => rmSync(base, { recursive: true, force: true }));

function line(iteration: number, reward: number): MetricsLine {
  return { iteration, metrics: { reward } };
}

describe('a line of metrics', () => {
  it('is an iteration and numbers', () => {
    expect(parseMetricsLine('{"iteration": 3, "reward/mean": 0.5, "note": "hi", "flag": true}')).toEqual({
      line: { iteration: 3, metrics: { 'reward/mean': 0.5 } },
      leftOut: ['note', 'flag'],
    });
  });

  it('may hold the numbers that Python writes and JSON does not know', () => {
    expect(parseMetricsLine('{"iteration": 3, "a": NaN, "b": -Infinity, "c":Infinity}')).toEqual({
      line: { iteration: 3, metrics: { a: NaN, b: -Infinity, c: Infinity } },
      leftOut: [],
    });
  });

  it.each([
    ['{"iteration": 3, "rew', 'not JSON'],
    ['[1]', 'not a JSON object'],
    ['{"step": 3}', '"iteration" is missing; allowed: an integer >= 0'],
    ['{"iteration": "3"}', '"iteration" is "3"; allowed: an integer >= 0'],
    ['{"iteration": -1}', '"iteration" is -1; allowed: an integer >= 0'],
  ])('%s is none: %s', (text, problem) => {
    expect(parseMetricsLine(text)).toEqual({ problem });
  });
});

describe('folding lines', () => {
  it('appends what continues', () => {
    expect(mergeLines(2, line(2, 0), [line(3, 1), line(4, 2)])).toEqual({
      rewindTo: null,
      append: [line(3, 1), line(4, 2)],
    });
    expect(mergeLines(2, null, [])).toEqual({ rewindTo: null, append: [] });
  });

  it('adds to the latest iteration', () => {
    const more = { iteration: 2, metrics: { loss: 1 } };
    expect(mergeLines(2, line(2, 5), [more, line(3, 1)])).toEqual({
      rewindTo: 1,
      append: [{ iteration: 2, metrics: { reward: 5, loss: 1 } }, line(3, 1)],
    });
  });

  it('replaces what another start repeats, and all that followed it', () => {
    expect(mergeLines(9, null, [line(5, 1), line(6, 2)])).toEqual({ rewindTo: 4, append: [line(5, 1), line(6, 2)] });
    expect(mergeLines(9, line(9, 0), [line(10, 0), line(3, 7)])).toEqual({ rewindTo: 2, append: [line(3, 7)] });
  });
});

describe('following', () => {
  let count = 0;
  let paths: RunPaths;
  let warnings: string[];
  let metrics: TrainerMetrics;
  const file = (start: number): string => join(paths.dir, `start_${start}.jsonl`);
  const written = (): [number, Record<string, number>][] =>
    readMetrics(paths).map((one) => [one.iteration, { ...one.metrics }]);

  beforeEach(() => {
    paths = new RunPaths(base, `run${count++}`);
    mkdirSync(paths.dir, { recursive: true });
    warnings = [];
    metrics = newMetrics();
  });

  function newMetrics(): TrainerMetrics {
    return new TrainerMetrics({
      paths,
      warn: (sentence) => warnings.push(sentence.replaceAll(`${paths.dir}/`, '')),
    });
  }

  it('takes up whole lines, once each, and a last one without newline at the end', async () => {
    metrics.begin(file(1));
    expect(await metrics.read(false)).toBe(false);
    appendFileSync(file(1), '{"iteration": 1, "r": 1}\n{"iteration": 2, ');
    expect(await metrics.read(false)).toBe(true);
    expect(written()).toEqual([[1, { r: 1 }]]);
    appendFileSync(file(1), '"r": 2}\n\n{"iteration": 3, "r": 3}');
    await metrics.read(false);
    expect(metrics.iteration).toBe(2);
    await metrics.read(true);
    await metrics.finish();
    expect(written()).toEqual([
      [1, { r: 1 }],
      [2, { r: 2 }],
      [3, { r: 3 }],
    ]);
    expect(warnings).toEqual([]);
  });

  it('reports what it does not understand, with the line, once', async () => {
    metrics.begin(file(1));
    appendFileSync(file(1), '{"iteration": 1, "note": "a"}\nhello\n{"iteration": 2, "note": "b"}\n');
    await metrics.read(false);
    await metrics.read(true);
    expect(warnings).toEqual([
      "start_1.jsonl:1: 'note' is not a number; skipping it in this run",
      'start_1.jsonl:2 cannot be read as metrics: not JSON',
    ]);
    expect(metrics.iteration).toBe(2);
    await metrics.finish();
  });

  it('holds every iteration once when a restarted trainer repeats some', async () => {
    metrics.begin(file(1));
    appendFileSync(file(1), [1, 2, 3, 4].map((i) => `{"iteration": ${i}, "r": ${i}, "old": 1}\n`).join(''));
    await metrics.read(true);
    metrics.begin(file(2));
    appendFileSync(file(2), '{"iteration": 3, "r": 30}\n');
    await metrics.read(false);
    expect(metrics.iteration).toBe(3);
    appendFileSync(file(2), '{"iteration": 4, "r": 40}\n');
    await metrics.read(true);
    await metrics.finish();
    const expected = [
      [1, { r: 1, old: 1 }],
      [2, { r: 2, old: 1 }],
      [3, { r: 30 }],
      [4, { r: 40 }],
    ];
    expect(written()).toEqual(expected);

    // Another launcher makes the same of the same files, and goes on where they end.
    writeFileSync(paths.metrics, '{"iteration":77}\n');
    const later = newMetrics();
    await later.replay([file(1), file(2)]);
    expect([later.iteration, written()]).toEqual([4, expected]);
    later.begin(file(3));
    appendFileSync(file(3), '{"iteration": 4, "r": 400}\n{"iteration": 5, "r": 500}\n');
    await later.read(true);
    await later.finish();
    expect(written().slice(3)).toEqual([
      [4, { r: 400 }],
      [5, { r: 500 }],
    ]);
    expect(warnings).toEqual([]);
  });

  it('begins again with a file that became shorter', async () => {
    metrics.begin(file(1));
    writeFileSync(file(1), '{"iteration": 1, "r": 1}\n{"iteration": 2, "r": 2}\n');
    await metrics.read(false);
    writeFileSync(file(1), '{"iteration": 1, "r": 9}\n');
    await metrics.read(false);
    await metrics.finish();
    expect(written()).toEqual([[1, { r: 9 }]]);
    expect(warnings).toEqual(['start_1.jsonl became shorter; reading it again from the start']);
  });
});
