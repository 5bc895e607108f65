/** The cache's file and the records' file, on good disks and bad ones. */
import {
  appendFileSync,
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { ReplyCache, type CacheOptions } from '../../../src/rewards/gateway/cache.js';
import { LinesFile } from '../../../src/core/lines_file.js';

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'editrl-gateway-files-'));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

const key = (number: number): string => number.toString(16).padStart(64, '0');
/** The cache, in words instead of bytes. */
async function open(maxEntries = 100, options: Partial<CacheOptions> = {}) {
  const onError = (error: Error): void => {
    throw error;
  };
  const cache = await ReplyCache.open({ dir, maxEntries, maxBytes: 1e9, onError, ...options });
  return {
    put: (key: string, text: string) => cache.put(key, Buffer.from(text)),
    get: (key: string) => cache.get(key)?.toString(),
    close: () => cache.close(),
    found: cache.found,
    get size() {
      return cache.size;
    },
  };
}
const pause = () => new Promise((resolve) => setTimeout(resolve, 1));
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

  it('writes its file anew when most of it is outdated, while it runs', async () => {
    const cache = await open(2);
    for (let i = 0; i < 20; i++) {
      cache.put(key(i), `reply ${i}`);
      if (i % 3 === 0) await pause();
    }
    await cache.close();
    expect(lines()).toBeLessThanOrEqual(4);
    expect(readdirSync(dir)).toEqual(['replies.jsonl']);
    expect(statSync(join(dir, 'replies.jsonl')).mode & 0o777).toBe(0o600);
    const again = await open(2);
    expect([again.get(key(17)), again.get(key(18)), again.get(key(19))]).toEqual([undefined, 'reply 18', 'reply 19']);
    await again.close();
  });

  it('loses nothing that comes while its file is written anew', async () => {
    const cache = await open(50);
    for (let i = 0; i < 1000; i++) {
      cache.put(key(i), `reply ${i}`);
      // Some come in one turn, some after others have reached the disk.
      if (i % 7 === 0) await pause();
    }
    await cache.close();
    expect(lines()).toBeLessThanOrEqual(100);
    const again = await open(50);
    const found = Array.from({ length: 1000 }, (_, i) => again.get(key(i)));
    expect(found).toEqual(Array.from({ length: 1000 }, (_, i) => (i < 950 ? undefined : `reply ${i}`)));
    await again.close();
  });

  it('goes on with its file where there is no room to write it anew, and says so', async () => {
    const told: string[] = [];
    const onError = (error: Error, lost: number): number => told.push(`${lost}: ${error.message}`);
    const cache = await open(5, { onError });
    mkdirSync(join(dir, 'replies.jsonl.tmp', 'in the way'), { recursive: true });
    for (let i = 0; i < 12; i++) cache.put(key(i), `reply ${i}`);
    await cache.close();
    expect(told).toEqual([expect.stringMatching(/^0: cannot write/)]);
    expect(lines()).toBe(12);
    rmSync(join(dir, 'replies.jsonl.tmp'), { recursive: true });
    const again = await open(5);
    expect([lines(), again.get(key(7)), again.get(key(11))]).toEqual([5, 'reply 7', 'reply 11']);
    await again.close();
  });

  it('reads replies of any length and of any letters', async () => {
    const long = (i: number): string => `${i}: ${'\u00e9\u5b57'.repeat(200_000)}`;
    const cache = await open();
    for (let i = 0; i < 6; i++) cache.put(key(i), long(i));
    await cache.close();
    const again = await open();
    for (let i = 0; i < 6; i++) expect(again.get(key(i)) === long(i)).toBe(true);
    expect(again.found).toBeNull();
    await again.close();
  });

  it('leaves out what is half-written, and says so once', async () => {
    const cache = await open();
    for (const number of [1, 3, 4]) cache.put(key(number), `reply ${number}`);
    await cache.close();
    appendFileSync(join(dir, 'replies.jsonl'), '{"key":"00\n{"key":"00');
    const again = await open();
    expect([again.size, again.found]).toEqual([3, '2 replies in the cache are half-written and are left out']);
    again.put(key(2), 'reply 2');
    await again.close();
    const last = await open();
    expect([last.get(key(1)), last.get(key(2)), last.found]).toEqual(['reply 1', 'reply 2', null]);
    await last.close();
  });

  it('sets a file aside that holds what another version wrote, and goes on with what it can read', async () => {
    const cache = await open();
    cache.put(key(1), 'reply 1');
    await cache.close();
    appendFileSync(join(dir, 'replies.jsonl'), '{"version":2,"reply":"x"}\n');
    const whole = readFileSync(join(dir, 'replies.jsonl'), 'utf8');
    const again = await open();
    const aside = join(dir, 'replies.jsonl.unknown-1');
    expect([again.get(key(1)), again.found]).toEqual([
      'reply 1',
      `the cache has 1 lines of another version; its file is kept as ${aside}`,
    ]);
    await again.close();
    expect(readFileSync(aside, 'utf8')).toBe(whole);
    const last = await open();
    expect([last.get(key(1)), last.found]).toEqual(['reply 1', null]);
    await last.close();
  });

  it('is bounded in bytes, in memory and on disk, and keeps no reply that is very long', async () => {
    const large = 'x'.repeat(20_000);
    const cache = await open(1000, { maxBytes: 300_000 });
    for (let i = 0; i < 100; i++) {
      cache.put(key(i), `${i} ${large}`);
      await pause();
    }
    cache.put(key(200), 'x'.repeat(2_000_000));
    expect([cache.size, cache.get(key(200)), cache.get(key(99))?.length]).toEqual([14, undefined, 20_003]);
    await cache.close();
    expect(statSync(join(dir, 'replies.jsonl')).size).toBeLessThan(700_000);
    const again = await open(1000, { maxBytes: 300_000 });
    expect([again.size, again.get(key(86))?.length, again.get(key(85))]).toEqual([14, 20_003, undefined]);
    await again.close();
  });

  it('reads a file that is far larger than what it may keep, whatever the length of its lines', async () => {
    const file = openSync(join(dir, 'replies.jsonl'), 'w');
    for (let i = 0; i < 40; i++) writeSync(file, `${JSON.stringify({ key: key(i), body: 'x'.repeat(2_000_000) })}\n`);
    writeSync(file, `${JSON.stringify({ key: key(50), body: 'small' })}\n`);
    writeSync(file, `{"key":"${'x'.repeat(9_000_000)}`);
    closeSync(file);
    const cache = await open();
    expect([cache.size, cache.get(key(50))]).toEqual([1, 'small']);
    await cache.close();
    expect(statSync(join(dir, 'replies.jsonl')).size).toBeLessThan(1_000);
  });

  it('goes on in memory when another gateway has its folder', async () => {
    const told: string[] = [];
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
    try {
      const cache = await open(5, { onError: (error) => told.push(error.message) });
      writeFileSync(join(dir, 'gateway.pid'), 'of another');
      vi.advanceTimersByTime(60_000);
      cache.put(key(2), 'reply 2');
      expect(cache.get(key(2))).toBe('reply 2');
      await cache.close();
    } finally {
      vi.useRealTimers();
    }
    expect(told).toEqual([expect.stringContaining('taken the cache over')]);
    expect(lines()).toBe(0);
    expect(readFileSync(join(dir, 'gateway.pid'), 'utf8')).toBe('of another');
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

  it('begins another one when it is full, under names that sort', async () => {
    const path = join(dir, 'lines.jsonl');
    writeFileSync(join(dir, 'lines.000007.jsonl'), 'line of before\n');
    const file = await LinesFile.open(path, (error) => expect.fail(error.message), { rotateBytes: 100 });
    for (let i = 0; i < 40; i++) {
      file.append(`line ${i}`);
      await file.flush();
    }
    await file.close();
    const names = readdirSync(dir).sort();
    expect(names).toEqual([
      'lines.000007.jsonl',
      'lines.000008.jsonl',
      'lines.000009.jsonl',
      'lines.000010.jsonl',
      'lines.jsonl',
    ]);
    const all = names.map((name) => readFileSync(join(dir, name), 'utf8')).join('');
    expect(all).toBe(`line of before\n${Array.from({ length: 40 }, (_, i) => `line ${i}\n`).join('')}`);
    for (const name of names) expect(statSync(join(dir, name)).size).toBeLessThan(110);
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
