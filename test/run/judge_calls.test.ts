import { appendFileSync, mkdirSync } from 'node:fs';
import { beforeEach, describe, expect, it } from 'vitest';
import type { Judgement } from '../../src/rewards/score/types.js';
import { Exchanges, judgementForm } from '../../src/run/exchanges.js';
import { storedCalls } from '../../src/run/judge_calls.js';
import { RunPaths } from '../../src/run/paths.js';
import { testFolders } from '../support/folder.js';

const newFolder = testFolders('judge-calls');
let paths: RunPaths;
beforeEach(() => {
  paths = new RunPaths(newFolder(), 'run');
  mkdirSync(paths.dir, { recursive: true });
});

function store(judgements: readonly Partial<Judgement>[], pieceBytes?: number): void {
  const exchanges = new Exchanges(paths.judgements, judgementForm, {
    isOwner: true,
    from: 0,
    ...(pieceBytes === undefined ? {} : { pieceBytes }),
  });
  const usual = { requestHash: 'h', model: 'm', text: 'x'.repeat(300), problem: null, scores: [7], latencyMs: 5 };
  for (const one of judgements) exchanges.put({ ...usual, key: '1/0/0/sc', attempts: 1, ...one });
  exchanges.close();
}

describe('what a run has asked its judges', () => {
  it('is nothing before it begins', () => {
    expect(storedCalls(paths.judgements)).toEqual({ requests: 0, known: 0 });
  });

  it('is every request, also of what was asked again, and not what reward servers gave', () => {
    store([
      { attempts: 3 },
      { problem: 'timeout', key: '1/0/1/sc', attempts: 2 },
      { key: '1/0/1/sc' },
      { key: '1/0/2/remote' },
      { key: 'exam/1/0/0/sc' },
    ]);
    expect(storedCalls(paths.judgements)).toEqual({ requests: 7, known: 3 });
  });

  it('is known of the iterations from one on, in packed pieces, too', () => {
    const keys = Array.from({ length: 20 }, (_, i) => ({ key: `${i}/0/0/sc`, attempts: 2 }));
    store(keys, 2_000);
    appendFileSync(paths.judgements, '{"key": "20/0/0/sc", "request_hash": "h"}\n');
    expect(storedCalls(paths.judgements)).toEqual({ requests: 41, known: 21 });
    expect(storedCalls(paths.judgements, 15)).toEqual({ requests: 41, known: 6 });
  });

  it('is not known of a file with a line that is none', () => {
    store([{}]);
    appendFileSync(paths.judgements, 'nonsense\n');
    expect(() => storedCalls(paths.judgements)).toThrow('not a line of this journal');
  });
});
