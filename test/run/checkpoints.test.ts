import { createHash } from 'node:crypto';
import {
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import {
  applyRetention,
  checkpointProblems,
  cleanCheckpoints,
  latestWhole,
  listCheckpoints,
  manifestDigest,
  quarantine,
  requireWhole,
  saveCheckpoint,
  type CheckpointDisk,
} from '../../src/run/checkpoints.js';
import { CheckpointError, InternalError } from '../../src/core/errors.js';
import { encodeSafetensors, safetensorsPieces } from '../../src/core/safetensors.js';
import { RunPaths } from '../../src/run/paths.js';

const base = mkdtempSync(join(tmpdir(), 'editrl-checkpoints-'));
let counter = 0;
let paths: RunPaths;
beforeEach(() => {
  paths = new RunPaths(base, `run${counter++}`);
});
afterAll(() => {
  rmSync(base, { recursive: true, force: true });
});

const files = (iteration: number): Record<string, Uint8Array | string> => ({
  'policy.safetensors': new Uint8Array(2000).fill(iteration % 251),
  'trainer.json': JSON.stringify({ iteration }),
});

function flipByte(path: string, at: number): void {
  const bytes = readFileSync(path);
  bytes[at] ^= 1;
  writeFileSync(path, bytes);
}

function failing(code: string, afterBytes: number): CheckpointDisk {
  let left = afterBytes;
  return {
    write: (_file, _bytes, _offset, length) => {
      if (left < length) throw Object.assign(new Error(`${code}: injected`), { code });
      left -= length;
      return length;
    },
  };
}

describe('saving and finding checkpoints', () => {
  it('finds the newest whole one, under a name that sorts', () => {
    expect(latestWhole(paths)).toBeNull();
    saveCheckpoint(paths, 5, files(5));
    saveCheckpoint(paths, 100, files(100));
    expect(readdirSync(paths.checkpointsDir).sort()).toEqual(['000005', '000100']);
    expect(latestWhole(paths)).toEqual({ iteration: 100, dir: paths.checkpoint(100), problems: [] });
    const manifest = JSON.parse(readFileSync(join(paths.checkpoint(5), 'MANIFEST.json'), 'utf8')) as object;
    expect(manifest).toMatchObject({
      format: 1,
      iteration: 5,
      total_bytes: 2000 + JSON.stringify({ iteration: 5 }).length,
    });
  });

  it.each([1, 5, 64, 1000])('writes %i bytes at a time, with the bytes and the hash of the whole', (pieceBytes) => {
    const tensors = new Map([
      ['a', { shape: [3, 4], data: Float32Array.from({ length: 12 }, (_, i) => i / 7) }],
      ['b', { shape: [3], data: new Float32Array(9).fill(0.1).subarray(2, 5) }],
    ]);
    const writes: number[] = [];
    // A disk that takes only half of what it is given.
    const slow: CheckpointDisk = {
      write: (file, bytes, offset, length) => {
        writes.push(length);
        return writeSync(file, bytes, offset, Math.ceil(length / 2));
      },
    };
    const files = { 'policy.safetensors': safetensorsPieces(tensors), 'empty.bin': [], 'trainer.json': '{"a": "ä"}' };
    const dir = saveCheckpoint(paths, 1, files, slow, pieceBytes);
    expect(Math.max(...writes)).toBeLessThanOrEqual(pieceBytes);
    const manifest = JSON.parse(readFileSync(join(dir, 'MANIFEST.json'), 'utf8')) as { files: object };
    const whole = { ...files, 'policy.safetensors': encodeSafetensors(tensors), 'empty.bin': '' };
    for (const [name, content] of Object.entries(whole)) {
      const bytes = Buffer.from(content as string);
      expect(readFileSync(join(dir, name)).equals(bytes), name).toBe(true);
      const sha256 = createHash('sha256').update(bytes).digest('hex');
      expect(manifest.files).toHaveProperty([name], { sha256, bytes: bytes.length });
    }
    expect(latestWhole(paths)?.iteration).toBe(1);
  });

  it('finds the newest by its number, and takes nothing else in the folder for one', () => {
    expect(listCheckpoints(paths)).toEqual([]);
    for (const iteration of [999_999, 1_000_000]) saveCheckpoint(paths, iteration, files(iteration));
    for (const other of ['corrupt-000007-1', '.writing-000008-1', '12']) mkdirSync(join(paths.checkpointsDir, other));
    expect(listCheckpoints(paths)).toEqual([999_999, 1_000_000]);
    expect(latestWhole(paths)?.iteration).toBe(1_000_000);
  });

  it('says where it cannot look for any', () => {
    mkdirSync(paths.dir, { recursive: true });
    writeFileSync(paths.checkpointsDir, '');
    expect(() => listCheckpoints(paths)).toThrow(CheckpointError);
    expect(() => listCheckpoints(paths)).toThrow('cannot list the folder');
    expect(() => cleanCheckpoints(paths)).toThrow('cannot write');
  });

  it.each(['MANIFEST.json', '../escaped', 'a/b', '.hidden', '', 'a b', 'ends_with/'])(
    'has no file of the name %j, and is not begun with one',
    (name) => {
      saveCheckpoint(paths, 1, files(1));
      expect(() => saveCheckpoint(paths, 2, { a: 'first', [name]: 'x' })).toThrow(InternalError);
      expect(() => saveCheckpoint(paths, 2, { a: 'first', [name]: 'x' })).toThrow(
        `'${name}' is not a valid checkpoint file`,
      );
      expect(readdirSync(paths.checkpointsDir)).toEqual(['000001']);
    },
  );

  it('has a digest that follows from its files, and none if there is none', () => {
    expect(manifestDigest(paths.checkpoint(1))).toBeNull();
    const dir = saveCheckpoint(paths, 1, files(1));
    const sha256 = createHash('sha256')
      .update(readFileSync(join(dir, 'MANIFEST.json')))
      .digest('hex');
    expect(manifestDigest(dir)).toBe(sha256);
    expect(manifestDigest(saveCheckpoint(paths, 1, files(2)))).not.toBe(sha256);
  });

  it('is moved aside once it is found to be incomplete, with all of its files', () => {
    saveCheckpoint(paths, 3, files(3));
    const before = readdirSync(paths.checkpoint(3));
    const target = quarantine(paths, 3);
    expect(target).toMatch(/corrupt-000003-\d+$/);
    expect(readdirSync(target)).toEqual(before);
    expect(listCheckpoints(paths)).toEqual([]);
    expect(() => quarantine(paths, 3)).toThrow('cannot write (ENOENT)');
  });

  it.each([Object.assign(new RangeError('too large'), { code: 'ERR_OUT_OF_RANGE' }), new Error('of no system call')])(
    'does not blame the disk for what is not its fault: %s',
    (broken) => {
      const disk: CheckpointDisk = {
        write: () => {
          throw broken;
        },
      };
      expect(() => saveCheckpoint(paths, 1, files(1), disk)).toThrow(broken);
      expect(readdirSync(paths.checkpointsDir)).toEqual([]);
    },
  );

  it.each([
    [
      'a flipped byte',
      'policy.safetensors does not match the SHA-256',
      (dir: string) => flipByte(join(dir, 'policy.safetensors'), 1234),
    ],
    [
      'a shortened file',
      'policy.safetensors has 3 bytes instead of 2000',
      (dir: string) => writeFileSync(join(dir, 'policy.safetensors'), 'abc'),
    ],
    ['a missing file', 'trainer.json is missing', (dir: string) => rmSync(join(dir, 'trainer.json'))],
    ['a missing manifest', 'MANIFEST.json is missing', (dir: string) => rmSync(join(dir, 'MANIFEST.json'))],
    [
      'a broken manifest',
      'MANIFEST.json: invalid JSON',
      (dir: string) => writeFileSync(join(dir, 'MANIFEST.json'), '{"format'),
    ],
    [
      'a file that cannot be read',
      'policy.safetensors (ELOOP)',
      (dir: string) => {
        rmSync(join(dir, 'policy.safetensors'));
        symlinkSync('policy.safetensors', join(dir, 'policy.safetensors'));
      },
    ],
    ...[
      '7',
      '{}',
      '{"iteration":9,"files":null,"total_bytes":0}',
      '{"iteration":9,"files":"none","total_bytes":0}',
      '{"iteration":9,"files":{},"total_bytes":5}',
      '{"iteration":9,"files":{"a":null},"total_bytes":0}',
      '{"iteration":9,"files":{"a":{"sha256":"x","bytes":"1"}},"total_bytes":"01"}',
      '{"iteration":9,"files":{"a":{"bytes":1}},"total_bytes":1}',
      '{"iteration":9,"files":{"a":{"sha256":"x","bytes":1}},"total_bytes":2}',
    ].map((manifest): [string, string, (dir: string) => void] => [
      `the manifest ${manifest}`,
      'MANIFEST.json is not a manifest',
      (dir) => writeFileSync(join(dir, 'MANIFEST.json'), manifest),
    ]),
  ])('falls back on %s and says so', (_what, message, damage) => {
    saveCheckpoint(paths, 8, files(8));
    saveCheckpoint(paths, 9, files(9));
    damage(paths.checkpoint(9));
    const found = latestWhole(paths);
    expect(found?.iteration).toBe(8);
    expect(found?.problems).toHaveLength(1);
    expect(found?.problems[0]).toContain(message);
    expect(() => requireWhole(paths.checkpoint(9), 9)).toThrow(message);
    expect(() => requireWhole(paths.checkpoint(9), 9)).toThrow(CheckpointError);
    expect(() => requireWhole(paths.checkpoint(8), 8)).not.toThrow();
  });

  const nan = encodeSafetensors(new Map([['w', { shape: [2], data: Float32Array.of(1, NaN) }]]));
  it.each([
    [
      'weights that are not finite',
      { 'policy.safetensors': nan },
      'policy.safetensors: tensor w contains a number that',
    ],
    ['an optimizer that is not finite', { 'optimizer.safetensors': nan }, 'optimizer.safetensors: tensor w contains a'],
    [
      'a counter that is none',
      { 'trainer.json': '{"iteration": 9, "optimizer_steps": null}' },
      'trainer.json: optimizer_steps is null, not a whole number >= 0',
    ],
    [
      'a fractional counter',
      { 'trainer.json': '{"iteration": 9, "flat_validations": 1.5}' },
      'trainer.json: flat_validations is 1.5',
    ],
    [
      'a number that is too large',
      { 'trainer.json': '{"iteration": 9, "latent_mean_square": 1e999}' },
      'trainer.json: latent_mean_square is not a finite number',
    ],
  ])('falls back on %s, though its manifest is right', (_what, changed, message) => {
    saveCheckpoint(paths, 8, files(8));
    saveCheckpoint(paths, 9, { ...files(9), ...changed });
    const found = latestWhole(paths);
    expect(found?.iteration).toBe(8);
    expect(found?.problems).toEqual([expect.stringContaining(`${paths.checkpoint(9)}/${message}`)]);
    expect(() => requireWhole(paths.checkpoint(9), 9)).toThrow(message);
    // The last one that a run can go on from stays, however many come after it.
    saveCheckpoint(paths, 10, { ...files(10), ...changed });
    expect(applyRetention(paths, { keep_every: 0, keep_last: 1 })).toEqual([9]);
    expect(latestWhole(paths)?.iteration).toBe(8);
  });

  it('says all that is wrong with one that was asked for', () => {
    const dir = saveCheckpoint(paths, 8, files(8));
    for (const name of ['policy.safetensors', 'trainer.json']) rmSync(join(dir, name));
    expect(() => requireWhole(dir, 8)).toThrow(
      expect.objectContaining({
        message: `incomplete or damaged checkpoint: ${dir}/policy.safetensors is missing; ${dir}/trainer.json is missing`,
        where: dir,
        next: expect.stringContaining('Use another checkpoint') as string,
      }),
    );
  });

  it('does not take a folder under the wrong name for a checkpoint', () => {
    saveCheckpoint(paths, 8, files(8));
    renameSync(paths.checkpoint(8), paths.checkpoint(9));
    expect(latestWhole(paths)).toBeNull();
    expect(checkpointProblems(paths.checkpoint(9), 9)[0]).toContain('is for iteration 8, not 9');
  });
});

describe('a disk that refuses', () => {
  // The files have 2000 and 15 bytes; the manifest comes last.
  it.each([
    ['ENOSPC', 1999, 'The disk is full'],
    ['EROFS', 2000, 'The file system is read-only'],
    ['ENOSPC', 2015, 'The disk is full'],
  ])('keeps what was there and explains what to do (%s after %i bytes)', (code, bytes, next) => {
    saveCheckpoint(paths, 8, files(8));
    let text = '';
    try {
      saveCheckpoint(paths, 9, files(9), failing(code, bytes));
    } catch (error) {
      text = (error as { toText(): string }).toText();
    }
    expect(text).toContain(`${paths.checkpoint(9)}: cannot write (${code})`);
    expect(text).toContain(next);
    expect(readdirSync(paths.checkpointsDir)).toEqual(['000008']);
    expect(latestWhole(paths)?.iteration).toBe(8);
  });
});

describe('retention', () => {
  it('keeps every so many and the last ones', () => {
    for (let i = 10; i <= 100; i += 10) saveCheckpoint(paths, i, files(i));
    expect(applyRetention(paths, { keep_every: 50, keep_last: 2 })).toEqual([10, 20, 30, 40, 60, 70, 80]);
    expect(listCheckpoints(paths)).toEqual([50, 90, 100]);
    expect(applyRetention(paths, { keep_every: 0, keep_last: 0 })).toEqual([50, 90]);
    expect(readdirSync(paths.checkpointsDir)).toEqual(['000100']);
  });

  it('keeps the first at or after each multiple if no checkpoint falls on one, also when it tidies after each', () => {
    for (let i = 0; i <= 240; i += 30) {
      saveCheckpoint(paths, i, files(i));
      applyRetention(paths, { keep_every: 100, keep_last: 1 });
    }
    expect(listCheckpoints(paths)).toEqual([0, 120, 210, 240]);
  });

  it('keeps the last ones if none is whole', () => {
    for (const i of [1, 2]) flipByte(join(saveCheckpoint(paths, i, files(i)), 'policy.safetensors'), 7);
    expect(applyRetention(paths, { keep_every: 0, keep_last: 1 })).toEqual([1]);
    expect(listCheckpoints(paths)).toEqual([2]);
    // Where none is to be kept, the newest stays all the same: it may be what is left of the run.
    expect(applyRetention(paths, { keep_every: 0, keep_last: 0 })).toEqual([]);
    expect(listCheckpoints(paths)).toEqual([2]);
  });

  it('never removes the only whole one', () => {
    for (const i of [1, 2, 3]) saveCheckpoint(paths, i, files(i));
    flipByte(join(paths.checkpoint(3), 'policy.safetensors'), 7);
    expect(applyRetention(paths, { keep_every: 0, keep_last: 1 })).toEqual([1]);
    expect(latestWhole(paths)?.iteration).toBe(2);
  });
});
