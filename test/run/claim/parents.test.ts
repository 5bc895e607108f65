import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { CheckpointError, EditrlError } from '../../../src/core/errors.js';
import { applyRetention, listCheckpoints, manifestDigest, saveCheckpoint } from '../../../src/run/checkpoints.js';
import { claimRun, type ClaimRequest, type RunHandle } from '../../../src/run/claim/claim.js';
import { parentCheckpoint, withMovedPins } from '../../../src/run/claim/parents.js';
import { RunPaths } from '../../../src/run/paths.js';
import { readRecord, writeRecord, type PlainObject } from '../../../src/run/record.js';
import { testFolders } from '../../support/folder.js';

const newFolder = testFolders('parents');
let base: string;
let parent: RunPaths;
let child: RunPaths;

function request(run: string, iterations: number, more: Partial<ClaimRequest> = {}): ClaimRequest {
  return {
    settings: { run_name: run, base_exp_dir: base, num_iterations: iterations },
    compare: () => [],
    resultHash: `hash of ${run}`,
    importHash: 'imports',
    command: ['editrl'],
    versions: {},
    ...more,
  };
}

/** Trains a run on to an iteration, of which a checkpoint is saved; `weights` tell one checkpoint from another. */
function train(run: string, to: number, weights = `weights ${to}`): void {
  const handle = claimRun(request(run, to));
  saveCheckpoint(handle.paths, to, { 'policy.safetensors': weights });
  handle.setState({ state: 'finished', iteration: to });
  handle.release();
}

function claimChild(more: Partial<ClaimRequest> = {}, iterations = 9): RunHandle {
  const handle = claimRun(request('child', iterations, { parents: [{ run: 'parent' }], ...more }));
  handle.release();
  return handle;
}

/** As a worker does: uses the parent, and pins what it uses. */
function use(handle: RunHandle): number {
  const used = parentCheckpoint(base, 'parent', handle.record.parents);
  handle.noteParent('parent', used);
  return used.iteration;
}

function textOf(action: () => unknown): string {
  try {
    action();
  } catch (error) {
    if (error instanceof EditrlError) return error.toText();
    throw error;
  }
  return 'nothing was raised';
}

const pins = (): readonly PlainObject[] => readRecord(child)?.parents ?? [];

beforeEach(() => {
  base = newFolder();
  [parent, child] = ['parent', 'child'].map((run) => new RunPaths(base, run));
  train('parent', 7);
});

describe('a parent', () => {
  it('is used by its newest whole checkpoint, which is pinned', () => {
    saveCheckpoint(parent, 8, { 'policy.safetensors': 'eight' });
    writeFileSync(join(parent.checkpoint(8), 'policy.safetensors'), 'EIGHT');
    expect(parentCheckpoint(base, 'parent', [])).toMatchObject({
      iteration: 7,
      dir: parent.checkpoint(7),
      problems: [expect.stringContaining('SHA-256')],
    });
    expect(use(claimChild())).toBe(7);
    expect(pins()).toEqual([
      { run: 'parent', hash: 'hash of parent', iteration: 7, manifest: manifestDigest(parent.checkpoint(7)) },
    ]);
  });

  it('stays at the pinned checkpoint when it trains on', () => {
    use(claimChild());
    const pinned = pins();
    train('parent', 12);
    const again = claimChild();
    expect(again).toMatchObject({ kind: 'resumed', notes: [] });
    expect(use(again)).toBe(7);
    expect(pins()).toEqual(pinned);
    expect(parentCheckpoint(base, 'parent', []).iteration).toBe(12);
  });

  it('is missed when the pinned checkpoint is gone, and taken as it is on request', () => {
    use(claimChild());
    train('parent', 12);
    rmSync(parent.checkpoint(7), { recursive: true });
    const before = readRecord(child);
    expect(textOf(() => claimChild())).toMatch(
      /parents\.parent: "checkpoint of iteration 7 \(\w{12}\)" -> "checkpoint of iteration 12" \(the parent checkpoint has changed; restore it to continue as before\)[^]*--allow-changes parents\.parent/,
    );
    expect(readRecord(child)).toEqual(before);

    const allowed = claimChild({ allowChanges: ['parents.parent'] });
    expect(allowed.notes).toEqual([expect.stringContaining('changed as allowed: parents.parent: "checkpoint of')]);
    expect(pins()).toEqual([{ run: 'parent', hash: 'hash of parent' }]);
    expect(use(allowed)).toBe(12);
    expect(claimChild()).toMatchObject({ kind: 'resumed', notes: [] });
  });

  it('is missed when the pinned checkpoint became another one', () => {
    use(claimChild());
    rmSync(parent.dir, { recursive: true });
    // Who moved it away brings it back, or trains it anew: until then nothing has changed.
    expect(claimChild().notes).toEqual([]);
    train('parent', 7, 'other weights');
    expect(textOf(() => claimChild())).toMatch(
      /"checkpoint of iteration 7 \((\w{12})\)" -> "checkpoint of iteration 7 \((?!\1)\w{12}\)"/,
    );
    rmSync(parent.checkpointsDir, { recursive: true });
    expect(textOf(() => claimChild())).toContain('-> "no checkpoint"');
  });

  it('is not missed by a run that is done', () => {
    const handle = claimRun(request('child', 9, { parents: [{ run: 'parent' }] }));
    use(handle);
    handle.setState({ state: 'finished', iteration: 9 });
    handle.release();
    rmSync(parent.checkpoint(7), { recursive: true });
    expect(claimChild().kind).toBe('finished');
    expect(() => claimChild({}, 20)).toThrow('parents.parent: "checkpoint of iteration 7');
  });

  it('that was made again with other settings is one change, not two', () => {
    use(claimChild());
    rmSync(parent.checkpoint(7), { recursive: true });
    const anew = [{ key: 'parents.parent', before: 'settings a', after: 'settings b' }];
    expect(withMovedPins(anew, base, pins(), ['parent'])).toEqual(anew);
    expect(withMovedPins([], base, pins(), ['parent'])).toHaveLength(1);
    expect(withMovedPins([], base, pins(), ['another'])).toEqual([]);
  });

  it('is never read if it is not whole, or not the one that was pinned', () => {
    use(claimChild());
    const pinned = pins();
    writeFileSync(join(parent.checkpoint(7), 'policy.safetensors'), 'flipped 7');
    const damaged = textOf(() => parentCheckpoint(base, 'parent', pinned));
    expect(damaged).toContain('depends on the checkpoint of iteration 7 of run parent, which has changed');
    expect(damaged).toContain('does not match the SHA-256 in its manifest');
    expect(damaged).toContain('move this one away and add --allow-changes parents.parent');
    saveCheckpoint(parent, 7, { 'policy.safetensors': 'other weights' });
    expect(() => parentCheckpoint(base, 'parent', pinned)).toThrow(/its manifest is \w{12} instead of/);
    expect(() => parentCheckpoint(base, 'parent', pinned)).toThrow(CheckpointError);
    expect(() => parentCheckpoint(base, 'nobody', [])).toThrow('run nobody has no complete checkpoint');
  });
});

describe('retention of a parent that trains on', () => {
  const one = { keep_every: 0, keep_last: 1 };
  const trainOn = (...iterations: readonly number[]): number[] => {
    const handle = claimRun(request('parent', iterations.at(-1) ?? 0));
    const removed = iterations.flatMap((iteration) => {
      saveCheckpoint(parent, iteration, { 'policy.safetensors': `weights ${iteration}` });
      return applyRetention(parent, one);
    });
    handle.setState({ state: 'finished', iteration: iterations.at(-1) ?? 0 });
    handle.release();
    return removed;
  };

  it('keeps what other runs start from, as long as they are there', () => {
    use(claimChild());
    expect(trainOn(8, 9, 10)).toEqual([8, 9]);
    expect(listCheckpoints(parent)).toEqual([7, 10]);
    expect(use(claimChild())).toBe(7);
    rmSync(child.dir, { recursive: true });
    expect(trainOn(11)).toEqual([7, 10]);
  });

  it('keeps nothing for runs that start from others, or whose records cannot be read', () => {
    const other = claimRun(request('other', 9, { parents: [{ run: 'another' }] }));
    writeRecord(other.paths, { ...other.record, parents: [{ run: 'another', iteration: 7 }] });
    other.release();
    mkdirSync(join(base, 'broken'));
    writeFileSync(join(base, 'broken/run.json'), '{');
    expect(trainOn(8)).toEqual([7]);
  });
});
