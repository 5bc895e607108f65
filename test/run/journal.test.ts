import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import { readEpisodes, storeImage, writeEpisodes } from '../../src/run/episodes.js';
import { decodeNumber, encodeLine, readLines, rewindTo } from '../../src/run/journal.js';
import { MetricsJournal, readMetrics } from '../../src/run/metrics.js';
import { RunPaths } from '../../src/run/paths.js';

const base = mkdtempSync(join(tmpdir(), 'editrl-journal-'));
let counter = 0;
let paths: RunPaths;
beforeEach(() => {
  paths = new RunPaths(base, `run${counter++}`);
  mkdirSync(paths.dir, { recursive: true });
});
afterAll(() => {
  rmSync(base, { recursive: true, force: true });
});

function raisedBy(action: () => unknown): unknown {
  try {
    action();
  } catch (error) {
    return error;
  }
  throw new Error('nothing was raised');
}

describe('a journal', () => {
  it('passes over the torn end of a file that another process is writing', () => {
    writeFileSync(paths.metrics, '{"iteration":1,"a":1}\n{"iteration":2,');
    expect(readMetrics(paths)).toEqual([{ iteration: 1, metrics: { a: 1 } }]);
  });

  it.each(['nonsense', '[{"iteration":2}]', 'null', '7'])('names the line that is none: %s', (line) => {
    writeFileSync(paths.metrics, `{"iteration":1}\n${line}\n{"iteration":2}\n`);
    expect(raisedBy(() => readLines(paths.metrics))).toMatchObject({
      message: 'invalid line',
      where: `${paths.metrics}:2`,
      next: expect.stringContaining('Remove the line') as string,
    });
  });
});

describe('numbers that are not finite', () => {
  it('are written as text and counted, never as null', () => {
    expect(encodeLine({ a: NaN, b: [Infinity, -Infinity], c: 1, d: new Float32Array([0.5]) })).toEqual({
      line: '{"a":"NaN","b":["Infinity","-Infinity"],"c":1,"d":[0.5]}',
      nonFinite: 3,
    });
    const metrics = new MetricsJournal(paths);
    metrics.append(1, { 'policy/loss': NaN, 'policy/kl': 0.5 });
    metrics.append(2, { 'policy/loss': 1 });
    metrics.close();
    expect(readFileSync(paths.metrics, 'utf8').split('\n')[0]).toBe(
      '{"iteration":1,"policy/loss":"NaN","policy/kl":0.5,"metrics/non_finite":1}',
    );
    expect(readMetrics(paths)).toEqual([
      { iteration: 1, metrics: { 'policy/loss': NaN, 'policy/kl': 0.5, 'metrics/non_finite': 1 } },
      { iteration: 2, metrics: { 'policy/loss': 1 } },
    ]);
  });

  it('are no fault if no answer has a score', () => {
    const metrics = new MetricsJournal(paths);
    const none = { 'validation/sampled/mean': NaN, 'validation/a/sampled/measure/b/stderr': NaN, 'reward/mean': NaN };
    metrics.append(1, { ...none, 'validation/sampled/unscored': 8 });
    metrics.append(2, { ...none, 'validation/loss': NaN, 'validation/sampled/mean': Infinity });
    metrics.close();
    expect(readMetrics(paths).map(({ metrics: { 'metrics/non_finite': count } }) => count)).toEqual([undefined, 2]);
  });

  it('are numbers again when they are read; no other text is', () => {
    for (const number of [NaN, Infinity, -Infinity, 0.5]) {
      const [read] = JSON.parse(encodeLine([number]).line) as unknown[];
      expect(decodeNumber(read)).toBe(number);
    }
    for (const none of ['1', '', 'nan', null, true, [1]]) expect(decodeNumber(none)).toBeNull();
  });
});

describe('going back to an iteration', () => {
  it('names the line that is of no iteration, and drops none', () => {
    const lines = '{"iteration":1}\n{"iteration":"2"}\n{"iteration":3}\n';
    writeFileSync(paths.metrics, lines);
    expect(raisedBy(() => rewindTo(paths, 1))).toMatchObject({ where: `${paths.metrics}:2` });
    expect(readFileSync(paths.metrics, 'utf8')).toBe(lines);
  });

  it('leaves alone what is not a file of episodes', () => {
    mkdirSync(paths.episodesDir);
    const others = ['000007.jsonl.bak', 'copy_000007.jsonl', 'notes.txt'];
    for (const name of [...others, '000007.jsonl', 'validation_000007.jsonl']) {
      writeFileSync(join(paths.episodesDir, name), '');
    }
    rewindTo(paths, -1);
    expect(readdirSync(paths.episodesDir).sort()).toEqual(others);
  });

  it('drops later metrics and episodes', () => {
    const metrics = new MetricsJournal(paths);
    for (let i = 0; i <= 5; i++) {
      metrics.append(i, { 'reward/mean': i });
      writeEpisodes(paths, i, [{ prompt: 'a' }, { prompt: 'b' }]);
    }
    metrics.close();
    writeFileSync(paths.metrics, `${readFileSync(paths.metrics, 'utf8')}{"iteration":6,"to`);
    rewindTo(paths, 3);
    expect(readMetrics(paths).map((line) => line.iteration)).toEqual([0, 1, 2, 3]);
    expect(readdirSync(paths.episodesDir).sort()).toEqual([0, 1, 2, 3].map((i) => `00000${i}.jsonl`));
    expect(readEpisodes(paths, 3)).toEqual([
      { iteration: 3, prompt: 'a' },
      { iteration: 3, prompt: 'b' },
    ]);
    expect(readEpisodes(paths, 4)).toBeNull();
    rewindTo(paths, -1);
    expect(readMetrics(paths)).toEqual([]);
    expect(readdirSync(paths.episodesDir)).toEqual([]);
  });
});

describe('images', () => {
  it('are stored once under the hash of what they hold', async () => {
    const image = { width: 2, height: 1, data: new Uint8Array([255, 0, 0, 0, 0, 255]) };
    const name = await storeImage(paths, image);
    expect(await storeImage(paths, image)).toBe(name);
    expect(readdirSync(paths.mediaDir)).toEqual([`${name}.png`]);
    writeFileSync(paths.media(name), '');
    expect(await storeImage(paths, image)).toBe(name);
    expect(readFileSync(paths.media(name)).length).toBeGreaterThan(50);
    expect(existsSync(paths.media('0'))).toBe(false);
  });
});
