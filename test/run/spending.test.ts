import { appendFileSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { readSpent, showSpent, Spending } from '../../src/run/spending.js';
import { testFolders } from '../support/folder.js';

const folders = testFolders('spending');

describe('what a run spends', () => {
  it('is added up over attempts, and written only if there is something', () => {
    const paths = { spent: join(folders(), 'spent.jsonl') };
    const first = new Spending(paths);
    first.save();
    expect(readSpent(paths)).toBeNull();
    expect(first.metrics()).toEqual({});
    first.count('prefill', 1000);
    first.count('sampled', 200);
    first.save();
    const second = new Spending(paths);
    second.count('trained', 30);
    second.count('prefill', 1);
    expect(second.metrics()).toEqual({
      'spent/prefill_tokens': 1001,
      'spent/sampled_tokens': 200,
      'spent/trained_tokens': 30,
    });
    second.save();
    second.save();
    expect(readFileSync(paths.spent, 'utf8').split('\n').length).toBe(3);
    expect(readSpent(paths)).toEqual({ at: expect.any(String) as string, prefill: 1001, sampled: 200, trained: 30 });
    expect(showSpent(readSpent(paths)!)).toBe('1,001 tokens prefilled, 200 sampled, 30 trained');
  });

  it('continues after a line that a crash tore, and names a file that is none of its own', () => {
    const paths = { spent: join(folders(), 'spent.jsonl') };
    const first = new Spending(paths);
    first.count('prefill', 5);
    first.save();
    appendFileSync(paths.spent, '{"at": "2026');
    const second = new Spending(paths);
    second.count('prefill', 2);
    second.save();
    expect(readSpent(paths)).toMatchObject({ prefill: 7 });
    appendFileSync(paths.spent, '{"prefill": -1}\n');
    expect(() => readSpent(paths)).toThrow(expect.objectContaining({ code: 'run', where: paths.spent }));
  });
});
