import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { main } from '../../src/cli/main.js';
import { testFolders } from '../support/folder.js';
import { capture } from './run_directory.js';

const newFolder = testFolders('score-verb');
let folder = '';
beforeEach(() => {
  folder = newFolder();
  vi.stubEnv('APP__DATA_DIR', join(folder, 'data'));
  vi.stubEnv('APP__BASE_EXP_DIR', join(folder, 'runs'));
  vi.stubEnv('COLUMNS', '80');
});
afterEach(() => {
  vi.unstubAllEnvs();
  vi.restoreAllMocks();
});

const START = ['score', 'configs/text_plain.jsonnet', '--with', 'configs/lib/text_tiny.libsonnet'];

function module(text: string): string[] {
  const file = join(folder, 'own.mjs');
  writeFileSync(file, text);
  const terms = [
    { name: 'module', weight: 0.5, module: file },
    { name: 'word_overlap', weight: 0.5 },
  ];
  return ['--set', 'reward.mode=null', '--set', `reward.terms=${JSON.stringify(terms)}`];
}

describe('editrl score', () => {
  it('shows prompt, answer, score and parts of every term in a table that fits a terminal', async () => {
    const written = capture();
    const own =
      "export default ({ answer, expected }) => ({ kind: 'scored', normalised: Number(answer === expected), parts: { letters: answer.length } });";
    expect(await main([...START, ...module(own), '--rows', '2'])).toBe(0);
    const lines = written.out.split('\n');
    expect(Math.max(...lines.map((line) => line.length))).toBeLessThanOrEqual(80);
    expect(lines[0]).toBe('own (weight 0.5)');
    expect(lines[1]).toMatch(/^row +prompt +answer +score +parts$/);
    expect(written.out).toMatch(/^ {2}1 {2}a \w.* 1\.000 {2}letters \d+$/m);
    expect(written.out).toMatch(/\[an empty answer\] +0\.000 {2}letters 0/);
    expect(written.out).toContain('word_overlap (weight 0.5)');
    expect(written.error).toBe('');
  });

  it('ends with 1 where an answer gets no score, and says what came back and what is allowed', async () => {
    const written = capture();
    expect(await main([...START, ...module('export default () => NaN;'), '--rows', '2', '--json'])).toBe(1);
    const { rows, terms } = JSON.parse(written.out) as {
      rows: number;
      terms: { name: string; scores: { words: string; problem: string | null }[] }[];
    };
    expect(rows).toBe(2);
    expect(terms.map(({ name, scores }) => [name, scores.length])).toEqual([
      ['own', 6],
      ['word_overlap', 6],
    ]);
    expect(terms[0].scores[0].problem).toMatch(/train\.jsonl:1, the labeled answer: own gave NaN; allowed: a number/);
    expect(terms[1].scores.map(({ problem }) => problem)).toEqual(Array.from({ length: 6 }, () => null));
  });

  it('reports which terms it leaves out, and how to have them asked', async () => {
    const written = capture();
    const judged = [
      '--set',
      'reward.terms=[]',
      '--set',
      'reward.also_compute=[]',
      '--set',
      'reward.mode=answer_judge',
      '--set',
      'reward.endpoint=http://127.0.0.1:1',
    ];
    expect(await main([...START, ...judged])).toBe(0);
    expect(written.out).toContain('not scored: it asks a judge or a server (--deep)');
    expect(await main([...START, ...judged, '--deep'])).toBe(3);
    expect(written.error).toContain('http://127.0.0.1:1');
  });
});
