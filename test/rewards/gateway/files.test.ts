/** The cache's file and the records' file, on good disks and bad ones. */
import { appendFileSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ReplyCache } from '../../../src/rewards/gateway/cache.js';
import { LinesFile } from '../../../src/rewards/gateway/lines_file.js';

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'editrl-gateway-files-'));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

const key = (number: number): string => number.toString(16).padStart(64, '0');
const open = (maxEntries = 100) =>
  ReplyCache.open({
    dir,
    maxEntries,
    onError: (error) => {
      throw error;
    },
  });
const lines = () => readFileSync(join(dir, 'replies.jsonl'), 'utf8').split('\n').length - 1;

describe('the cache', () => {
  it('keeps the latest replies, and no more of them than it may', async () => {
    const cache = await open(3);
    for (let i = 0; i < 4; i++) cache.put(key(i), `reply ${i}`);
    expect(cache.get(key(0))).toBeUndefined();
    expect(cache.get(key(1))).toBe('reply 1');
    cache.put(key(4), 'reply 4');
    expect([cache.get(key(1)), cache.get(key(2)), cache.size]).toEqual(['reply 1', undefined, 3]);
    await cache.close();
    const again = await open(3);
    expect([again.size, again.get(key(4))]).toEqual([3, 'reply 4']);
    await again.close();
  });

  it('writes its file anew when most of it is outdated', async () => {
    const cache = await open(2);
    for (let i = 0; i < 20; i++) cache.put(key(i), `reply ${i}`);
    await cache.close();
    expect(lines()).toBe(20);
    const again = await open(2);
    expect([lines(), again.get(key(19))]).toEqual([2, 'reply 19']);
    await again.close();
  });

  it('outlives half a line and lines of others', async () => {
    const cache = await open();
    // As many whole lines as keep the file from being written anew.
    for (const number of [1, 3, 4]) cache.put(key(number), `reply ${number}`);
    await cache.close();
    appendFileSync(join(dir, 'replies.jsonl'), '{"key":"short","body":"x"}\n{"key":"00');
    const again = await open();
    expect([again.size, again.unreadable]).toEqual([3, 2]);
    again.put(key(2), 'reply 2');
    await again.close();
    const last = await open();
    expect([last.get(key(1)), last.get(key(2))]).toEqual(['reply 1', 'reply 2']);
    await last.close();
  });

  it('belongs to one gateway at a time, and to nobody who is gone', async () => {
    const cache = await open();
    await expect(open()).rejects.toThrow(`in use by process ${process.pid}`);
    await cache.close();
    expect(existsSync(join(dir, 'gateway.pid'))).toBe(false);
    writeFileSync(join(dir, 'gateway.pid'), '999999999\n');
    await (await open()).close();
  });
});

describe('a file of lines', () => {
  it('holds every line in order, many at a time', async () => {
    const file = await LinesFile.open(join(dir, 'a', 'lines.jsonl'), (error) => expect.fail(error.message));
    for (let i = 0; i < 1000; i++) file.append(`line ${i}`);
    await file.close();
    const expected = Array.from({ length: 1000 }, (_, i) => `line ${i}\n`).join('');
    expect(readFileSync(join(dir, 'a', 'lines.jsonl'), 'utf8')).toBe(expected);
  });

  it.skipIf(!existsSync('/dev/full'))('tells of every line that a full disk refuses', async () => {
    const lost: string[] = [];
    const file = await LinesFile.open('/dev/full', (error, count) => lost.push(`${count}: ${error.message}`));
    file.append('one');
    file.append('two');
    await file.flush();
    file.append('three');
    await file.close();
    expect(lost).toEqual(['2: cannot write (ENOSPC)', '1: cannot write (ENOSPC)']);
  });

  it('cannot be opened where there is no place for it', async () => {
    writeFileSync(join(dir, 'file'), '');
    await expect(LinesFile.open(join(dir, 'file', 'x'), () => undefined)).rejects.toThrow('cannot write');
  });
});
