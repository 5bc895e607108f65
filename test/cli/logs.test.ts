import { renameSync, rmSync, truncateSync } from 'node:fs';
import { hostname } from 'node:os';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { main } from '../../src/cli/main.js';
import { followLog, type LogChoice } from '../../src/run/logs.js';
import { processStart } from '../../src/run/claim/lock.js';
import type { RunPaths } from '../../src/run/paths.js';
import { capture, RunFolder } from './run_directory.js';

let folder: RunFolder;
beforeEach(() => {
  folder = new RunFolder();
});
afterEach(() => {
  vi.restoreAllMocks();
  folder.remove();
});

describe('editrl logs', () => {
  it.each([
    [[], 'c\nd\n'],
    [['--lines', '1'], 'd\n'],
    [['--lines', '0'], ''],
    [['--lines', '9'], 'c\nd\n'],
    [['--attempt', '1'], 'a\nb\n'],
    [['--rank', '1'], '{"rank":1}\n'],
    [['--json'], '{"rank":0}\n'],
  ] as const)('prints with %j', async (flags, expected) => {
    const paths = folder.make('mine', 'finished');
    folder.log(paths.consoleLog(1), 'a\nb\n');
    folder.log(paths.consoleLog(2), 'c\nd\n');
    for (const rank of [0, 1]) folder.log(paths.rankLog(2, rank), `{"rank":${rank}}\n`);
    const written = capture();
    expect(await main(['logs', 'mine', '--exp-dir', folder.dir, ...flags])).toBe(0);
    expect(written.out).toBe(expected);
  });

  it('obeys nothing that a log holds', async () => {
    const paths = folder.make('mine', 'running');
    // Long enough that letters of several bytes lie across two reads.
    folder.log(paths.consoleLog(1), `\u001b[2J evil\u202e\r\tä\n${'ä€'.repeat(200_001)}\u009b1m`);
    const written = capture();
    expect(await main(['logs', 'mine', '--exp-dir', folder.dir])).toBe(0);
    expect(written.out).toBe(
      String.raw`\u001b[2J evil\u202e\u000d` + `\tä\n${'ä€'.repeat(200_001)}` + String.raw`\u009b1m`,
    );
  });

  it('reports what there is instead of what is missing', async () => {
    const paths = folder.make('mine', 'finished');
    const written = capture();
    const fails = async (...flags: string[]): Promise<string> => {
      written.error = '';
      expect(await main(['logs', 'mine', '--exp-dir', folder.dir, ...flags])).not.toBe(0);
      return written.error;
    };
    expect(await fails()).toContain("run 'mine' has no logs yet");
    folder.log(paths.consoleLog(1), 'a\n');
    expect(await fails('--attempt', '3')).toContain('Attempts with logs: 1.');
    expect(await fails('--rank', '5')).toContain('Log files: console.log.');
    expect(await fails('--lines', '-1')).toContain('--lines: found -1; allowed: a whole number >= 0');
  });
});

describe('following', () => {
  function follow(paths: RunPaths, choice: Partial<LogChoice> = {}): { text: () => string; ended: Promise<void> } {
    const chunks: Uint8Array[] = [];
    const options = {
      rank: null,
      attempt: null,
      lines: null,
      ...choice,
      stop: new AbortController().signal,
      pollMs: 5,
    };
    const ended = (async () => {
      for await (const chunk of followLog(paths, options)) chunks.push(chunk);
    })();
    return { text: () => Buffer.concat(chunks).toString('utf8'), ended };
  }

  function running(): RunPaths {
    const paths = folder.make('mine', 'running');
    folder.lock(paths, { host: hostname(), pid: process.pid, process_start: processStart(process.pid) });
    return paths;
  }

  function end(paths: RunPaths): void {
    folder.setState(paths, 'finished');
    rmSync(paths.lock);
  }

  it('waits for a log that is not there yet, and ends with the run', async () => {
    const paths = running();
    const followed = follow(paths);
    await vi.waitFor(() => expect(followed.text()).toBe(''));
    folder.log(paths.consoleLog(1), 'first\n');
    await vi.waitFor(() => expect(followed.text()).toBe('first\n'));
    folder.log(paths.consoleLog(1), 'last\n');
    end(paths);
    await followed.ended;
    expect(followed.text()).toBe('first\nlast\n');
  });

  it('begins with the last lines and continues with the next attempt from its start', async () => {
    const paths = running();
    folder.log(paths.consoleLog(1), 'a\nb\nc\n');
    const followed = follow(paths, { lines: 1 });
    await vi.waitFor(() => expect(followed.text()).toBe('c\n'));
    folder.log(paths.consoleLog(2), 'd\ne\n');
    await vi.waitFor(() => expect(followed.text()).toBe('c\nd\ne\n'));
    end(paths);
    await followed.ended;
  });

  it('stays with the attempt that was asked for, and ends with it', async () => {
    const paths = running();
    folder.log(paths.consoleLog(1), 'a\n');
    folder.log(paths.consoleLog(2), 'b\n');
    const followed = follow(paths, { attempt: 1 });
    await followed.ended;
    expect(followed.text()).toBe('a\n');
  });

  it('survives a log that is moved away or cut', async () => {
    const paths = running();
    const log = paths.consoleLog(1);
    folder.log(log, 'a long first line\n');
    const followed = follow(paths);
    await vi.waitFor(() => expect(followed.text()).toBe('a long first line\n'));
    renameSync(log, `${log}.1`);
    folder.log(log, 'after the move\n');
    await vi.waitFor(() => expect(followed.text()).toBe('a long first line\nafter the move\n'));
    truncateSync(log);
    folder.log(log, 'cut\n');
    await vi.waitFor(() => expect(followed.text()).toMatch(/after the move\ncut\n$/));
    end(paths);
    await followed.ended;
  });

  it('reports it when the run is over and has no such log', async () => {
    const paths = folder.make('mine', 'finished');
    folder.log(paths.consoleLog(1), 'a\n');
    await expect(follow(paths, { rank: 3 }).ended).rejects.toThrow("run 'mine' has no log of rank 3 in attempt 1");
  });
});
