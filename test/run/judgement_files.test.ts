import {
  closeSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { beforeEach, describe, expect, it } from 'vitest';
import type { Judgement } from '../../src/rewards/score/types.js';
import { saveCheckpoint } from '../../src/run/checkpoints.js';
import { LogReader } from '../../src/core/log/reader.js';
import { forkRun } from '../../src/run/fork.js';
import { JudgementFiles, type LinePosition } from '../../src/run/judgement_files.js';
import { Exchanges, judgementForm } from '../../src/run/exchanges.js';
import { RunPaths } from '../../src/run/paths.js';
import { writeRecord, type RunRecord } from '../../src/run/record.js';
import { testFolders } from '../support/folder.js';

const newFolder = testFolders('judgements');
let paths: RunPaths;
beforeEach(() => {
  paths = new RunPaths(newFolder(), 'run');
  mkdirSync(paths.dir, { recursive: true });
});

function judgement(key: string, requestHash: string, text: string): Judgement {
  return { key, requestHash, model: 'm', text, problem: null, scores: [7], attempts: 1, latencyMs: 5 };
}

describe('the judgements of a long training', () => {
  const text = 'x'.repeat(300);
  const train = (from: number, until: number): void => {
    const store = new Exchanges(paths.judgements, judgementForm, { isOwner: true, from, pieceBytes: 2_000 });
    for (let i = from; i < until; i++) {
      for (const key of [`${i}/0/0/sc`, `${i}/0/1/sc`]) {
        if (store.find(key, 'h') === undefined) store.put(judgement(key, 'h', `${key} ${text}`));
        expect(store.find(key, 'h')?.text).toBe(`${key} ${text}`);
      }
      // As far as an evaluation may look back.
      if (i > from) expect(store.find(`${i - 1}/0/0/sc`, 'h')?.text).toBe(`${i - 1}/0/0/sc ${text}`);
    }
    store.close();
  };
  const allOf = (): string[] => {
    const lines: string[] = [];
    new JudgementFiles(paths.judgements).scanAll((line) =>
      lines.push(String((JSON.parse(line) as { key: string }).key)),
    );
    return lines;
  };
  const expected = (until: number): string[] =>
    Array.from({ length: until }, (_, i) => [`${i}/0/0/sc`, `${i}/0/1/sc`]).flat();

  it('become pieces, packed, each line once and in order', () => {
    train(0, 20);
    const folder = join(paths.dir, 'judgements');
    expect(readdirSync(folder).every((file) => /^\d{4}-\d{6}\.jsonl\.gz$/.test(file))).toBe(true);
    expect(readdirSync(folder).length).toBeGreaterThan(3);
    expect(statSync(paths.judgements).size).toBeLessThan(2_600);
    expect(allOf()).toEqual(expected(20));
    const first = gunzipSync(readFileSync(join(folder, readdirSync(folder).sort()[0]))).toString();
    expect(first.split('\n')[0]).toBe(JSON.stringify(JSON.parse(first.split('\n')[0])));
    // A resumed training finds what it asks for again, and stores nothing twice.
    const { last } = new JudgementFiles(paths.judgements).pieces[2];
    train(last, 24);
    expect(allOf()).toEqual(expected(24));
    const all = new Exchanges(paths.judgements, judgementForm, { isOwner: false, from: null });
    expect(all.find('3/0/1/sc', 'h')?.text).toBe(`3/0/1/sc ${text}`);
    expect(all.find('23/0/1/sc', 'h')?.text).toBe(`23/0/1/sc ${text}`);
    all.close();
  });

  it.each(['before it was packed', 'while it was packed', 'before the plain one was removed'])(
    'lose none where the process died %s',
    (when) => {
      train(0, 12);
      const folder = join(paths.dir, 'judgements');
      const packed = join(folder, readdirSync(folder).sort()[1]);
      writeFileSync(packed.replace('.gz', ''), gunzipSync(readFileSync(packed)));
      if (when !== 'before the plain one was removed') rmSync(packed);
      if (when === 'while it was packed') writeFileSync(`${packed}.123.tmp`, 'half');
      expect(allOf()).toEqual(expected(12));
      new JudgementFiles(paths.judgements).tidy();
      expect(readdirSync(folder).filter((file) => file.endsWith('.jsonl'))).toEqual([]);
      train(11, 13);
      expect(allOf()).toEqual(expected(13));
    },
  );

  it('that an earlier version left in one file become pieces before they are read', () => {
    const store = new Exchanges(paths.judgements, judgementForm, { isOwner: true, from: null });
    for (let i = 0; i < 30; i++) store.put(judgement(`${i}/0/0/sc`, 'h', text));
    store.close();
    const files = new JudgementFiles(paths.judgements);
    files.tidy(2_000);
    const keys = Array.from({ length: 30 }, (_, i) => `${i}/0/0/sc`);
    expect(allOf()).toEqual(keys);
    expect(files.pieces.length).toBeGreaterThan(4);
    expect(files.pieces.map(({ last }) => last)).toEqual(
      [...files.pieces.map(({ last }) => last)].sort((a, b) => a - b),
    );
    expect(statSync(paths.judgements).size).toBeLessThan(2_000);
    files.tidy(2_000);
    expect(allOf()).toEqual(keys);
  });

  it('are found by who opened them while their owner makes a piece of them', () => {
    train(0, 3);
    const file = openSync(paths.judgements, 'r');
    train(3, 12);
    const places = new Map<string, LinePosition>();
    new JudgementFiles(paths.judgements).scan(null, new LogReader(file, paths.judgements), (line, place) => {
      const { key } = JSON.parse(line) as { key: string };
      const bytes = Buffer.alloc(place.length);
      if (place.piece === null) readSync(file, bytes, 0, place.length, place.offset);
      expect(place.piece === null ? bytes.toString() : line).toBe(line);
      places.set(key, place);
    });
    closeSync(file);
    expect([...places.keys()].slice(0, 6).sort()).toEqual(expected(3).sort());
  });

  it('go along with a fork as far as they belong to it', () => {
    train(0, 20);
    const { pieces } = new JudgementFiles(paths.judgements);
    const cut = pieces[2].last;
    saveCheckpoint(paths, cut, { 'trainer.json': '{}' });
    const record = {
      format: 1,
      run_name: paths.runName,
      hash: 'h',
      import_hash: 'i',
      settings: { num_iterations: 30 },
      parents: [],
      created_at: '',
      attempts: [],
    };
    writeRecord(paths, record as unknown as RunRecord);
    const fork = forkRun(paths, cut, 'branch');
    const kept: string[] = [];
    new JudgementFiles(fork.judgements).scanAll((line) => kept.push((JSON.parse(line) as { key: string }).key));
    expect(kept).toEqual(expected(cut + 1));
    expect(new JudgementFiles(fork.judgements).pieces.map(({ last }) => last <= cut)).not.toContain(false);
  });
});
