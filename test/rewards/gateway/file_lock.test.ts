/** Who has the files of a gateway, after every way in which the one before may have ended. */
import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ConfigError } from '../../../src/core/errors.js';
import { processStart } from '../../../src/core/process_start.js';
import { STALE_AFTER_S } from '../../../src/core/lock.js';
import { GatewayLock } from '../../../src/rewards/gateway/file_lock.js';

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'editrl-gateway-folder-'));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

describe('the folder of a gateway', () => {
  const lockFile = () => join(dir, 'gateway.pid');
  const events = {
    onLost: (error: Error) => expect.fail(error.message),
    onError: (error: Error) => expect.fail(error.message),
  };
  const claimed = () => ({ name: 'the cache', own: 'a folder of its own', path: dir, lockPath: lockFile() });
  const take = () => GatewayLock.take(claimed(), events);
  /** A lock that a gateway left, or has. */
  function leave(owner: Readonly<Record<string, unknown>>, silentS = 0): void {
    const whole = { token: 'a token', host: hostname(), pid: process.pid, process_start: '1', ...owner };
    writeFileSync(lockFile(), `${JSON.stringify(whole)}\n`);
    heardOf(silentS);
  }
  function heardOf(silentS: number): void {
    const at = Date.now() / 1000 - silentS;
    utimesSync(lockFile(), at, at);
  }
  const held = () => JSON.parse(readFileSync(lockFile(), 'utf8')) as { pid: number; process_start: string };
  const ownStart = processStart(process.pid) ?? '';

  it('belongs to one at a time', () => {
    const lock = take();
    expect(take).toThrow(`in use by process ${process.pid}`);
    lock.heartbeat();
    lock.release();
    lock.release();
    expect(readdirSync(dir)).toEqual([]);
    take().release();
  });

  it.skipIf(ownStart === '')('is taken from a process whose number another one has now, be it this one', () => {
    leave({});
    const lock = take();
    expect(held()).toMatchObject({ pid: process.pid, process_start: ownStart });
    lock.release();
    leave({ pid: process.ppid });
    take().release();
    leave({ process_start: ownStart });
    expect(take).toThrow(/in use by process \d+$/);
  });

  it('is taken from a process that is gone', () => {
    leave({ pid: 999_999_999 });
    take().release();
    expect(readdirSync(dir)).toEqual([]);
  });

  it('is taken from an owner that cannot be looked at once it has been silent for long', () => {
    leave({ host: 'another-host' }, STALE_AFTER_S - 30);
    expect(take).toThrow(/in use by process/);
    leave({ host: 'another-host' }, STALE_AFTER_S + 1);
    take().release();
    // One whose start nobody knows can be looked at: there is a process of its number.
    leave({ process_start: '' }, STALE_AFTER_S + 1);
    expect(take).toThrow(/in use by process/);
    leave({ host: 'another-host' }, 5);
    let found: unknown;
    try {
      take();
    } catch (error) {
      found = error;
    }
    expect(found).toBeInstanceOf(ConfigError);
    expect((found as ConfigError).toText()).toMatch(
      /on another-host\n.*silent for 120 s \(it was last seen [56] s ago\)/,
    );
  });

  it.each(['', '{"tok', '1234\n'])('is taken from a lock that says nothing (%j) when it is old', (text) => {
    writeFileSync(lockFile(), text);
    expect(take).toThrow('in use by another gateway');
    heardOf(STALE_AFTER_S + 1);
    take().release();
  });

  it('is heard of by others as long as its owner lives', () => {
    const lock = take();
    heardOf(1000);
    lock.heartbeat();
    expect(Date.now() - statSync(lockFile()).mtimeMs).toBeLessThan(500_000);
    lock.release();
  });

  it('is not given free by one that has lost it', () => {
    const told: string[] = [];
    const lock = GatewayLock.take(claimed(), { ...events, onLost: (error) => told.push(error.message) });
    leave({ host: 'another-host' });
    lock.heartbeat();
    lock.heartbeat();
    lock.release();
    expect(told).toEqual([expect.stringContaining('taken the cache over')]);
    expect(existsSync(lockFile())).toBe(true);
  });
});
